"""The experiments: one quick run of all through the command line, the paper's sizes, and what they are made of."""

from __future__ import annotations

import re
from itertools import product
from math import cos, exp, isqrt, pi
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from scipy.spatial.distance import pdist
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from typer.testing import CliRunner

from hkrr.cli import app
from hkrr.experiments import NAMES, convergence, get_experiment, paper, toy, toy_path
from hkrr.experiments.paper import Grid

THREE, LINKS = ("VarPro", "AGD", "L-BFGS"), ("square", "sigmoid")
STARTS = (("square", -1.5, -1.5), ("square", -1.5, -0.1), ("sigmoid", 5.0, -1.75))
OF_THE_ALGORITHMS = ("convergence", "toy-path", "toy-map", "latent-dimension", "training-size", "stationarity")
# What tells the rows of a table apart: values, or the field of the config that has them (a number: so many).
CROSSED = {
    "convergence": {"start": "repeats", "method": THREE},
    "toy-map": {"link": LINKS, "first_step": "first_steps", "x0": "grid of x0", "y0": "grid of y0"},
    "latent-dimension": {"data_set": (1, 2), "d": "dimensions", "repeat": "repeats", "method": THREE},
    "training-size": {"m": "sizes", "d": "dimensions", "repeat": "repeats", "method": THREE},
    "sample-complexity": {"D": "features", "m": "sizes", "repeat": "repeats"}
    | {"system": ("HKRR", "KRR on X", "KRR on the true map")},
    "adaptivity": {"m": "sizes", "repeat": "repeats", "rule": ("held-out", "evidence")},
    "stationarity": {"start": "repeats", "method": THREE},
}
SCORES = ("R2", "objective", "subspace_distance", "iterations", "seconds")
LEAST = ("least_squared_gradient", "least_squared_mapping", "least_eigenvalue")
MEASURED = {
    "convergence": ("iteration", "seconds", "loss"),
    "toy-path": ("iteration", "x", "y", "loss"),
    "toy-map": tuple(f"y_{method}" for method in THREE),
    "latent-dimension": ("true_d", *SCORES),
    "training-size": SCORES,
    "sample-complexity": ("d", "excess_risk"),
    "nystrom": ("excess_risk",),
    "adaptivity": ("true_d", "excess_risk", "least_on_grid", "d", "reg_lambda"),
    "stationarity": ("iteration", "path_of_B", "path_of_alpha", "norm_of_B", *LEAST),
}
# The sentences to check, as far as they are the same for every size.
CLAIMS = {
    "convergence": ("AGD ends lower than VarPro from most starts", "VarPro is faster where both arrive"),
    "toy-map": tuple(
        rf"the basin of the global minimum is larger for AGD.*{link}, first step {step}\)"
        for link, step in product(LINKS, ("0.01", "0.1", "1"))
    ),
    "latent-dimension": (r"d < d\* costs much accuracy", r"d > d\* costs little", r"d > d\* often helps"),
    "training-size": (r"at a fixed budget d = \d+ is worse than d = \d+ for large m",),
    "sample-complexity": ("HKRR's risk falls faster with m than KRR's", "HKRR's slope hardly depends on D while KRR's"),
    "nystrom": ("fewer centers than rows cost nothing in rate", "leverage scores need fewer centers than uniform ones"),
}
PAPER = {
    "convergence": {"n_features": 300, "n_components": 2, "n_samples": 300, "n_centers": 5},
    "latent-dimension": {"n_features": 50, "n_components": 3, "n_centers": 5, "reg_lambda": 1e-7, "seconds": 60.0}
    | {"repeats": 5, "n_train": 600, "n_validation": 600, "n_test": 4800},
    "training-size": {"sizes": (1000, 4000, 8000, 12000, 16000), "dimensions": (3, 20, 50), "n_centers": 25}
    | {"reg_lambda": 1e-8, "seconds": 80.0, "repeats": 10, "n_features": 50, "n_components": 3, "n_validation": 600},
    "sample-complexity": {"features": (10, 20, 50)},
}


def _wanted(name, config):
    """Return the columns that name a case, and the cases that a table must have."""
    if name == "toy-path":
        return ("link", "x0", "y0", "method"), {(*start, method) for start in STARTS for method in THREE}
    if name == "nystrom":
        by_centers = product(["centers"], [config.n_samples], config.n_centers, ["uniform", "leverage"])
        by_size = {("rate", m, c, "uniform") for m in config.sizes for c in (4 * isqrt(m), m)}
        return ("part", "m", "c", "centers"), {*by_centers, *by_size}
    values = []
    for value in CROSSED[name].values():
        if value in ("grid of x0", "grid of y0"):
            value = np.linspace(*getattr(config, value[-2:]), config.n_points)
        value = getattr(config, value) if isinstance(value, str) else value
        values.append(range(value) if isinstance(value, int) else value)
    return tuple(CROSSED[name]), set(product(*values))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All experiments, small, as CI runs them."""
    out = tmp_path_factory.mktemp("reproduced")
    result = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--out", str(out)])
    return SimpleNamespace(out=out, result=result, screen=result.output)


def _table(quick, name):
    table = pd.read_csv(quick.out / f"{name}.csv")
    return table[table["part"] != "theorem"] if name == "nystrom" else table


def _claims(quick, name):
    *claims, runs = (quick.out / f"{name}.txt").read_text().splitlines()
    assert re.fullmatch(r"\d+ runs, \d+ s of one core in all", runs)
    return claims


def test_all_of_them_run(quick):
    assert quick.result.exception is None, quick.screen
    assert quick.result.exit_code == 0
    assert tuple(MEASURED) == NAMES
    assert {path.name for path in quick.out.iterdir() if not path.name.startswith(".")} == {
        f"{name}.{kind}" for name in NAMES for kind in ("csv", "png", "txt")
    }


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_tidy_and_complete(quick, name):
    table = _table(quick, name)
    columns, wanted = _wanted(name, get_experiment(name).Config.quick())
    assert {*columns, *MEASURED[name]} <= set(table.columns)
    assert set(table[list(columns)].itertuples(index=False, name=None)) == wanted
    more = [column for column in ("iteration", "repeat") if column in table and column not in columns]
    assert not table.duplicated([*columns, *more]).any()
    assert more or len(table) == len(wanted)
    assert np.all(np.isfinite(table[list(MEASURED[name])].to_numpy(dtype=float)))
    if name == "nystrom":
        (theorem,) = pd.read_csv(quick.out / "nystrom.csv").query("part == 'theorem'").itertuples()
        assert min(theorem.plain, theorem.als, theorem.n_inf) >= theorem.n_eff > 0


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_drawn_with_our_own_colour(quick, name):
    with Image.open(quick.out / f"{name}.png") as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
    assert len(np.unique(pixels, axis=0)) > 20
    red, green, blue = pixels.T
    assert np.sum((green > red + 60) & (green > blue + 15)) > 50
    if name in OF_THE_ALGORITHMS:
        assert np.sum((red > green + 60) & (red > blue + 60)) > 50
        assert np.sum((blue > red + 60) & (blue > green + 20)) > 50


@pytest.mark.parametrize("name", NAMES)
def test_each_claim_has_its_sentence_and_its_number(quick, name):
    claims = _claims(quick, name)
    assert claims
    for claim in claims:
        assert re.fullmatch(r"(holds|does not hold): .+ \(.*\d.*\)", claim), claim
    for sentence in CLAIMS.get(name, ()):
        assert sum(bool(re.search(f"hold(s)?: {sentence}", claim)) for claim in claims) == 1


@pytest.mark.parametrize("name", NAMES)
def test_claims_and_runs_are_on_the_screen(quick, name):
    shown = " ".join(quick.screen.split())
    for claim in _claims(quick, name):
        assert claim in shown
    n_cases = len(get_experiment(name).cases(get_experiment(name).Config.quick()))
    assert re.search(rf"{name} \S* ?{n_cases}/{n_cases} runs [\d:]+ done", shown)


@pytest.mark.parametrize("name", NAMES)
def test_each_claim_on_the_screen_is_one_line(quick, name):
    """Output that goes to a file has no width: whoever looks for a claim finds all of it."""
    lines = [line.strip() for line in quick.screen.splitlines()]
    assert not [claim for claim in _claims(quick, name) if claim not in lines]


@pytest.mark.parametrize("name", PAPER)
def test_defaults_are_the_papers(name):
    config = get_experiment(name).Config()
    assert {field: getattr(config, field) for field in PAPER[name]} == PAPER[name]


def test_other_defaults_reach_as_far_as_they_must():
    latent = get_experiment("latent-dimension").Config()
    assert {1, 2, 3, 50} <= set(latent.dimensions)
    assert sum(3 < d <= 20 for d in latent.dimensions) >= 3
    nystrom = get_experiment("nystrom").Config()
    assert max(nystrom.n_centers) == nystrom.n_samples  # all rows, which fewer centers are compared with
    assert {(link, *start) for link in toy_path.STARTS for start in toy_path.STARTS[link]} == set(STARTS)


def test_all_methods_share_start_data_and_centers(quick):
    first = _table(quick, "convergence").query("iteration == 0").pivot(index="start", columns="method", values="loss")
    assert_allclose(first["AGD"], first["VarPro"], rtol=1e-5)
    assert_allclose(first["L-BFGS"], first["VarPro"], rtol=1e-5)
    assert first["VarPro"].nunique() == len(first)
    first = _table(quick, "stationarity").query("iteration == 1").groupby("start")
    assert (first["least_eigenvalue"].nunique() == 1).all()
    assert (first["norm_of_B"].nunique() == 1).all()


def test_what_accumulates_never_turns_back(quick):
    for (_, method), run in _table(quick, "stationarity").groupby(["start", "method"]):
        assert all(run[name].is_monotonic_increasing for name in ("iteration", "path_of_B", "path_of_alpha"))
        assert all(run[name].is_monotonic_decreasing for name in LEAST[:2])
        assert run["path_of_B"].iloc[0] == 0.0
        assert method == "L-BFGS" or run["norm_of_B"].max() <= 1.0 + 1e-5
    for _, run in _table(quick, "convergence").groupby(["start", "method"]):
        assert run["seconds"].is_monotonic_increasing


def test_the_true_map_of_convergence_is_the_first_two_coordinates(monkeypatch):
    drawn, make = [], convergence.make_mim_sines
    monkeypatch.setattr(convergence, "make_mim_sines", lambda *a, **k: drawn.append(make(*a, **k)) or drawn[-1])
    config = convergence.Config(n_samples=200, n_features=12, seconds=0.01, repeats=2)
    for case in convergence.cases(config):
        convergence.run_case(config, case)
    X, y = drawn[0].X, drawn[0].y
    z = np.sin(1.5 * pi * X[:, 0]) + np.sin(2.0 * pi * X[:, 1])
    assert 0.05 < np.std(y - z) / np.std(z) < 0.2  # a tenth, but for chance
    for other in drawn[1:]:
        assert_array_equal(other.X, X)
        assert_array_equal(other.y, y)


def _f(link, x, y):
    h = y**2 if link == "square" else 1 / (1 + exp(-y))
    return (x - h) ** 2 + cos(pi * y) + (1 - y) ** 2 + 1


@pytest.mark.parametrize("link", ["square", "sigmoid"])
@pytest.mark.parametrize(("x", "y"), [(-1.5, -1.5), (-1.5, -0.1), (5.0, -1.75), (0.3, 2.2), (1.0, 1.0)])
def test_toy_functions_and_their_slopes(link, x, y):
    of, B, alpha, h = toy.Toy(link), np.array([[y]]), np.array([[x]]), 1e-6
    value, slope = of.value_and_grad_B(B, alpha)
    assert [value, of.at(x, y), of.value(B, alpha), of.inner(B).value(alpha)] == pytest.approx([_f(link, x, y)] * 4)
    assert slope[0, 0] == pytest.approx((_f(link, x, y + h) - _f(link, x, y - h)) / (2 * h), abs=1e-7)
    assert of.inner(B).grad(alpha)[0, 0] == pytest.approx((_f(link, x + h, y) - _f(link, x - h, y)) / (2 * h), abs=1e-7)
    best, reduced = of.inner(B).solve(), of.reduced(B)
    assert_allclose([reduced.alpha, of.solve_alpha(B)], [best, best], rtol=1e-12)
    assert reduced.value == pytest.approx(_f(link, best[0, 0], y), abs=1e-12)
    low, high = (of.reduced(np.array([[y + step]])).value for step in (-h, h))
    assert reduced.grad[0, 0] == pytest.approx((high - low) / (2 * h), abs=1e-7)


@pytest.mark.parametrize("method", THREE)
@pytest.mark.parametrize(("link", "x0", "y0"), STARTS)
def test_toy_paths_start_where_they_should_and_go_down(link, x0, y0, method):
    path = toy.minimise(link, method, x0, y0, 200)
    assert path[0][:2] == (x0, y0)
    assert_allclose([loss for _, _, loss in path], [_f(link, x, y) for x, y, _ in path], rtol=1e-9, atol=1e-12)
    assert max(np.diff([loss for _, _, loss in path])) <= 1e-12
    if method != "AGD":  # it goes to the best x at once; AGD does not
        assert path[1][1] == y0
        assert path[1][0] == pytest.approx(y0**2 if link == "square" else 1 / (1 + exp(-y0)))


@pytest.mark.parametrize(("data_set", "d"), [(1, 1), (1, 3), (2, 2)])
def test_refit_is_kernel_ridge_chosen_on_the_validation_rows(data_set, d):
    split, grid = paper.draw(data_set, 90, 50, 70, 6, 2, seed=3), Grid((1e-1, 1e-3, 1e-5), (0.3, 1.0, 3.0))
    B = np.random.default_rng(d).normal(size=(d, 6))
    P, P_validation, P_test = split.X @ B.T, split.X_validation @ B.T, split.X_test @ B.T
    gamma, tried = 1 / (2 * np.median(pdist(P)) ** 2), []
    for scale, reg_lambda in product(grid.scales, grid.lambdas):
        model = KernelRidge(alpha=reg_lambda * len(P), kernel="rbf", gamma=scale * gamma).fit(P, split.y)
        error = np.mean((model.predict(P_validation) - split.y_validation) ** 2)
        tried.append((error, r2_score(split.y_test, model.predict(P_test))))
    assert paper.refit(split, B, grid) == pytest.approx(min(tried)[1], rel=1e-6)


def test_refit_with_some_rows_as_centers_is_hardly_worse(monkeypatch):
    split, grid = paper.draw(1, 300, 100, 200, 4, 1, seed=0), Grid((1e-2, 1e-3, 1e-4), (0.3, 1.0, 3.0))
    exact = paper.refit(split, split.B, grid)
    monkeypatch.setattr(paper, "_EXACT_ROWS", 200)
    monkeypatch.setattr(paper, "_CENTERS", 100)
    assert paper.refit(split, split.B, grid) == pytest.approx(exact, abs=0.02)


def test_splits_and_excess_risk():
    data = paper.draw_with_truth(400, 300, 5, 2, seed=1)
    z, z_test = (sum(np.sin((1 + j / 2) * pi * (X @ data.B[j - 1])) for j in (1, 2)) for X in (data.X, data.X_test))
    assert_allclose(data.z_test, z_test, atol=1e-12)
    assert 0.05 < np.std(data.y - z) / np.std(z) < 0.2
    assert data.excess_risk(z_test) == pytest.approx(0.0, abs=1e-20)
    assert data.excess_risk(np.full(300, z_test.mean())) == pytest.approx(1.0)
    assert data.excess_risk(z_test + 0.3) == pytest.approx(0.09 / np.var(z_test))
    split = paper.draw(2, 30, 20, 10, 5, 2, seed=0)
    assert [len(each) for each in split[:6]] == [30, 30, 20, 20, 10, 10]


@pytest.mark.parametrize("seed", range(4))
def test_kernel_ridge_by_the_evidence_is_about_as_good_as_by_folds(seed):
    rng = np.random.default_rng(seed)
    X, X_test = rng.normal(size=(120, 3)) * [1.0, 5.0, 0.2], rng.normal(size=(500, 3)) * [1.0, 5.0, 0.2]

    def target(X):
        return np.sin(1.5 * X[:, 0]) + 0.02 * X[:, 1] ** 2

    y, z = target(X) + 0.1 * rng.normal(size=120), target(X_test)
    ours, scale = paper.learned_krr(X, y, X_test, seed), X.std(axis=0)
    folds = GridSearchCV(
        KernelRidge(kernel="rbf"), {"alpha": 10.0 ** np.arange(-4, 2), "gamma": 4.0 ** np.arange(-5, 1)}
    )
    theirs = folds.fit(X / scale, y - y.mean()).predict(X_test / scale) + y.mean()
    assert np.mean((ours - z) ** 2) <= 2.0 * np.mean((theirs - z) ** 2) + 1e-3
    assert_allclose(paper.learned_krr(X, y + 100.0, X_test, seed), ours + 100.0, atol=1e-3)
