"""Tests of starting maps: maps ranked by held-out error, the median heuristic, and the path of decreasing lambda."""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import LBFGS
from hkrr.solvers.initialization import descend_lambda, median_kernel, ranked_maps, sample_map
from support.random_problems import SEEDS


def _rows(m=300, D=6, d=2, seed=0):
    data = make_mim_sines(m, D, d, random_state=seed)
    return InMemoryRows(data.X, data.y - data.y.mean())


def _rank(rows, n_init, rng, **options):
    return ranked_maps(
        rows, Gaussian(), n_components=2, n_init=n_init, reg_lambda=1e-3, n_centers=50, rng=rng, **options
    ).starts


def test_sampled_maps_have_norm_one():
    B = sample_map(3, 10, np.random.RandomState(0))
    assert B.shape == (3, 10)
    assert np.linalg.norm(B, 2) == pytest.approx(1.0, rel=1e-12)


def test_each_map_has_its_own_median_gamma():
    rows = _rows()
    starts = _rank(rows, 5, np.random.RandomState(0))
    gammas = [kernel.gamma for _, kernel in starts]
    assert len(set(gammas)) == 5
    for B, kernel in starts:
        assert kernel.gamma == pytest.approx(Gaussian().median_gamma(rows.gather()[0] @ B.T), rel=1e-12)
    assert median_kernel(Gaussian(gamma=2.0), rows, starts[0][0], np.random.RandomState(0)).gamma == 2.0


def test_maps_are_ranked_by_their_error_on_held_out_rows():
    """Test that maps are sorted by their error on held-out rows, which the test computes from the same random draws.

    Two thirds of the rows, with 50 centers, determine the coefficients. The error is computed on the remaining rows.
    """
    rows = _rows()
    starts = _rank(rows, 6, np.random.RandomState(3))
    rng = np.random.RandomState(3)
    order = rows.draw(4000, rng)
    X, Y, _ = rows.gather()
    train, test = order[:200], order[200:]
    centers = X[train][InMemoryRows(X[train], Y[train]).draw(50, rng)]
    errors = []
    for B, kernel in starts:
        K = kernel(X[train] @ B.T, centers @ B.T)
        A = K.T @ K + 1e-3 * 200 * kernel(centers @ B.T, centers @ B.T)
        predicted = kernel(X[test] @ B.T, centers @ B.T) @ np.linalg.lstsq(A, K.T @ Y[train], rcond=1e-14)[0]
        errors.append(np.mean((predicted - Y[test]) ** 2))
    # The systems are nearly singular, so the two solutions of each system differ. The effect on the errors is smaller
    # than the differences between the maps.
    assert_allclose(errors, np.sort(errors), rtol=1e-3)


def test_after_the_deadline_only_one_map_is_drawn():
    assert len(_rank(_rows(), 50, np.random.RandomState(0), deadline=time.perf_counter())) == 1


def test_the_path_decreases_the_objective():
    rows = _rows(d=2)
    starts = _rank(rows, 4, np.random.RandomState(0))
    B, kernel = descend_lambda(rows, starts, LBFGS(), reg_lambda=1e-3, n_centers=100, rng=np.random.RandomState(0))
    objective = Objective(rows, rows.take(np.arange(100)), kernel, 1e-3)
    assert objective.reduced(B).value < 0.5 * min(
        Objective(rows, rows.take(np.arange(100)), k, 1e-3).reduced(b).value for b, k in starts
    )


def test_at_a_large_lambda_there_is_no_path():
    rows = _rows()
    starts = _rank(rows, 3, np.random.RandomState(0))
    found = descend_lambda(rows, starts, LBFGS(), reg_lambda=0.1, n_centers=50, rng=np.random.RandomState(0))
    assert found is starts[0]


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))])
@pytest.mark.parametrize(("make", "least"), [(make_mim_sines, 0.95), (make_mim_mixed, 0.85)])
def test_default_fits_find_planted_models(make, least, seed):
    """Test that a single fit is reliable. Without the decreasing lambdas, half of the scores are near zero."""
    data = make(1600, n_features=30, n_components=3, random_state=seed)
    model = HyperKernelRidge(3, n_centers=100, random_state=seed).fit(data.X[:600], data.y[:600])
    assert model.score(data.X[600:], data.y[600:]) > least
