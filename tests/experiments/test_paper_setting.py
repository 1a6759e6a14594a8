"""Tests of the paper's setting (appendix D.1: seeds, starts, time budgets and refit) and of the excess risk."""

from __future__ import annotations

from itertools import product
from math import pi

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV

from hkrr.centers import uniform
from hkrr.experiments import convergence, nystrom
from hkrr.experiments import excess_risk_tools as excess_risk
from hkrr.experiments import paper_setting as paper
from hkrr.experiments.excess_risk_tools import Truth
from hkrr.experiments.paper_setting import Budget, Grid
from hkrr.rows import InMemoryRows

THREE = ("VarPro", "AGD", "L-BFGS")


def test_solvers_have_the_papers_parameters():
    for method in ("VarPro", "AGD"):
        made = paper.solver(method, first_step=0.25)
        assert [made.rho, made.delta, made.c, made.norm_bound, made.first_step] == [0.5, 0.8, 1e-4, 1.0, 0.25]
    assert paper.solver("AGD").n_alpha == 10
    assert [type(paper.solver(method)).__name__ for method in paper.METHODS] == ["VarPro", "AGD", "LBFGS"]


def test_every_role_of_every_repeat_has_its_own_seed():
    seeds = {
        (seed, repeat, role): paper.seed_of(seed, repeat, role)
        for seed, repeat, role in product(range(5), range(20), ("data", "start", "model"))
    }
    assert len(set(seeds.values())) == len(seeds)
    assert all(paper.seed_of(*key) == seed for key, seed in seeds.items())
    assert all(0 <= seed < 2**32 for seed in seeds.values())  # the range that RandomState accepts
    with pytest.raises(ValueError, match="not in"):
        paper.seed_of(0, 0, "other")


@pytest.mark.parametrize(("d", "D"), [(1, 1), (2, 7), (5, 5), (3, 50)])
@pytest.mark.parametrize("entries", paper.STARTS)
def test_maps_have_norm_one(entries, d, D):
    maps = [paper.draw_map(d, D, entries, np.random.RandomState(seed)) for seed in range(20)]
    assert {B.shape for B in maps} == {(d, D)}
    assert_allclose([np.linalg.norm(B, 2) for B in maps], 1.0, rtol=1e-12)
    assert (np.min(maps) >= 0.0) == (entries == "uniform")


@pytest.mark.parametrize("entries", paper.STARTS)
@pytest.mark.parametrize("n_maps", [1, 10])
def test_the_start_is_the_sampled_map_with_the_lowest_validation_error(entries, n_maps, monkeypatch):
    monkeypatch.setattr(paper, "_N_MAPS", n_maps)
    split, d, c, reg_lambda, seed = paper.draw(1, 80, 60, 10, 6, 2, seed=5), 2, 7, 1e-3, 11
    start = paper.best_start(split, d, c, reg_lambda, entries, seed)
    # Draw the maps again in the same order, and solve the normal equations.
    rng, tried = np.random.RandomState(seed), []
    C = uniform(InMemoryRows(split.X, split.y), c, rng)
    for _ in range(n_maps):
        B = paper.draw_map(d, 6, entries, rng)
        gamma = 1 / (2 * np.median(pdist(split.X @ B.T)) ** 2)
        K, K_c, K_validation = (rbf_kernel(X @ B.T, C @ B.T, gamma) for X in (split.X, C, split.X_validation))
        alpha = np.linalg.solve(K.T @ K / 80 + reg_lambda * K_c, K.T @ split.y / 80)
        tried.append((np.mean((K_validation @ alpha - split.y_validation) ** 2), gamma, B))
    _, gamma, B = min(tried, key=lambda each: each[0])
    assert_array_equal(start.B, B)
    assert_array_equal(start.objective.centers, C)
    assert start.objective.kernel.gamma == pytest.approx(gamma)
    assert start.objective.reg_lambda == reg_lambda


@pytest.mark.parametrize("entries", paper.STARTS)
def test_all_methods_share_start_gamma_and_centers(entries, monkeypatch):
    split, grid = paper.draw(2, 90, 50, 70, 6, 2, seed=3), Grid((1e-1, 1e-3), (0.3, 1.0))
    begun, run = [], paper.run

    def noted(solver, objective, B0, **options):
        begun.append((objective, B0))
        assert options["time_limit"] == 0.02
        return run(solver, objective, B0, **options)

    monkeypatch.setattr(paper, "run", noted)
    scores = [paper.learn_and_score(split, method, 3, Budget(5, 1e-3, 0.02, entries), grid, 4) for method in THREE]
    assert len({score["R2_of_start"] for score in scores}) == 1
    for objective, B in begun[1:]:
        assert_array_equal(B, begun[0][1])
        assert_array_equal(objective.centers, begun[0][0].centers)
        assert objective.kernel.gamma == begun[0][0].kernel.gamma
    assert scores[0]["R2_of_start"] == paper.refit(split, begun[0][1], grid)
    first = [begun[0][0].reduced(begun[0][1]).value] * 3
    assert all(score["objective"] <= loss * (1 + 1e-9) for score, loss in zip(scores, first, strict=True))
    other = paper.learn_and_score(split, "VarPro", 3, Budget(5, 1e-3, 0.02, entries), grid, 5)
    assert other["R2_of_start"] != scores[0]["R2_of_start"]


@pytest.mark.parametrize("starts", paper.STARTS)
def test_loss_curves_of_a_start_have_the_same_first_loss(starts):
    config = convergence.Config(n_samples=100, n_features=12, seconds=0.02, repeats=2, starts=starts)
    first = {(c["start"], c["method"]): convergence.run_case(config, c)[0] for c in convergence.cases(config)}
    for start in range(2):
        assert_allclose([first[start, method]["loss"] for method in THREE], first[start, "AGD"]["loss"], rtol=1e-9)
        assert {first[start, method]["iteration"] for method in THREE} == {0}
    assert first[0, "AGD"]["loss"] != first[1, "AGD"]["loss"]
    assert {row["time_limit"] for row in first.values()} == {0.02}


def _kernel_ridge(split, B, reg_lambda, scale):
    """Return the validation error and the test R2 of scikit-learn's `KernelRidge` on the points B x.

    gamma is ``scale / (2 median^2)``, with the median distance between the first 1,000 points.
    """
    P, P_validation, P_test = split.X @ B.T, split.X_validation @ B.T, split.X_test @ B.T
    gamma = scale / (2 * np.median(pdist(P[:1000])) ** 2)
    model = KernelRidge(alpha=reg_lambda * len(P), kernel="rbf", gamma=gamma).fit(P, split.y)
    error = np.mean((model.predict(P_validation) - split.y_validation) ** 2)
    return error, r2_score(split.y_test, model.predict(P_test))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("data_set", "d"), [(1, 1), (1, 3), (2, 2), (2, 6)])
def test_refit_is_kernel_ridge_chosen_on_the_validation_rows(data_set, d, seed):
    split, grid = paper.draw(data_set, 90, 50, 70, 6, 2, seed=seed), Grid((1e-1, 1e-3, 1e-5), (0.3, 1.0, 3.0))
    B = np.random.default_rng(d).normal(size=(d, 6))
    tried = [_kernel_ridge(split, B, reg_lambda, scale) for scale, reg_lambda in product(grid.scales, grid.lambdas)]
    assert paper.refit(split, B, grid) == pytest.approx(min(tried)[1], rel=1e-6)
    orders = Grid(grid.lambdas[::-1], grid.scales[::-1])
    assert paper.refit(split, B, orders) == pytest.approx(min(tried)[1], rel=1e-6)


def test_the_final_fit_has_all_rows_as_centers():
    """Test that with 1,300 rows, the refit agrees with `KernelRidge`, in which all rows are centers.

    Only the fits that choose gamma and lambda are limited to 1,000 centers. The test first gives a single value of
    gamma and lambda, and then two values of lambda, between which the choice is easy.
    """
    split = paper.draw(1, 1300, 100, 1100, 4, 1, seed=0)
    error, R2 = _kernel_ridge(split, split.B, 1e-3, 0.3)
    assert np.isfinite(error)
    assert paper.refit(split, split.B, Grid((1e-3,), (0.3,))) == pytest.approx(R2, rel=1e-9)
    tried = [_kernel_ridge(split, split.B, reg_lambda, 1.0) for reg_lambda in (10.0, 1e-3)]
    assert paper.refit(split, split.B, Grid((10.0, 1e-3), (1.0,))) == pytest.approx(min(tried)[1], rel=1e-9)


def test_the_refit_works_with_repeated_rows():
    """Test that the refit works with repeated rows, which make the kernel matrix singular.

    The errors by which lambda is chosen must still be finite.
    """
    split = paper.draw(1, 60, 40, 40, 4, 1, seed=0)
    twice = split._replace(X=np.vstack([split.X] * 2), y=np.concatenate([split.y] * 2))
    grid = Grid((1e-1, 1e-3), (0.3, 1.0))
    assert paper.refit(twice, split.B, grid) == pytest.approx(paper.refit(split, split.B, grid), rel=0.2)


def test_splits_and_excess_risk():
    data = excess_risk.draw_with_truth(400, 300, 5, 2, seed=1)
    z, z_test = (sum(np.sin((1 + j / 2) * pi * (X @ data.B[j - 1])) for j in (1, 2)) for X in (data.X, data.X_test))
    assert_allclose(data.z_test, z_test, atol=1e-12)
    assert 0.05 < np.std(data.y - z) / np.std(z) < 0.2
    # Large training targets, so that no prediction is clipped.
    inside = data._replace(y=100.0 * data.y)
    assert inside.excess_risk(z_test) == pytest.approx(0.0, abs=1e-20)
    assert inside.excess_risk(np.full(300, z_test.mean())) == pytest.approx(1.0)
    assert inside.excess_risk(z_test + 0.3) == pytest.approx(0.09 / np.var(z_test))
    split = paper.draw(2, 30, 20, 10, 5, 2, seed=0)
    assert [len(each) for each in split[:6]] == [30, 30, 20, 20, 10, 10]


def test_predictions_are_clipped_at_the_largest_target():
    data = Truth(np.zeros((2, 1)), np.array([0.5, -2.0]), np.zeros((4, 1)), np.array([1.0, -1.0, 1.0, -1.0]), None)
    assert data.excess_risk(np.array([9.0, -9.0, 2.0, -1.5])) == pytest.approx((1.0 + 1.0 + 1.0 + 0.25) / 4)


@pytest.mark.parametrize("slope", [-2.0, -0.3, 0.0, 0.5])
def test_slopes(slope):
    sizes = [100, 250, 900]
    assert excess_risk.slope(sizes, [3.0 * m**slope for m in sizes]) == pytest.approx(slope, abs=1e-12)


def test_clustered_inputs_have_the_same_function():
    config = nystrom.Config(n_samples=600, n_features=4, n_components=2, n_test=400)
    data = nystrom._clustered(config, 3)
    assert (len(data.X), len(data.y), len(data.X_test), len(data.z_test)) == (600, 600, 400, 400)
    z, z_test = (sum(np.sin((1 + j / 2) * pi * (X @ data.B[j - 1])) for j in (1, 2)) for X in (data.X, data.X_test))
    assert_allclose(data.z_test, z_test, atol=1e-12)
    assert 0.05 < np.std(data.y - z) / np.std(z) < 0.2
    for X in (data.X, data.X_test):
        half = np.abs(X).max()
        assert 0.8 < np.mean(np.abs(X).max(axis=1) <= 0.2 * half * (1 + 1e-9)) < 1.0


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in (1, 2, 3))])
def test_kernel_ridge_by_the_evidence_is_about_as_good_as_by_cross_validation(seed):
    rng = np.random.default_rng(seed)
    X, X_test = rng.normal(size=(120, 3)) * [1.0, 5.0, 0.2], rng.normal(size=(500, 3)) * [1.0, 5.0, 0.2]

    def target(X):
        return np.sin(1.5 * X[:, 0]) + 0.02 * X[:, 1] ** 2

    y, z = target(X) + 0.1 * rng.normal(size=120), target(X_test)
    ours, scale = excess_risk.learned_krr(X, y, X_test, seed), X.std(axis=0)
    folds = GridSearchCV(
        KernelRidge(kernel="rbf"), {"alpha": 10.0 ** np.arange(-4, 2), "gamma": 4.0 ** np.arange(-5, 1)}
    )
    theirs = folds.fit(X / scale, y - y.mean()).predict(X_test / scale) + y.mean()
    assert np.mean((ours - z) ** 2) <= 2.0 * np.mean((theirs - z) ** 2) + 1e-3
    assert_allclose(excess_risk.learned_krr(X, y + 100.0, X_test, seed), ours + 100.0, atol=1e-3)
