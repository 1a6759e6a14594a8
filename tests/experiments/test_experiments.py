"""Tests of the experiments: small runs through the command line, the paper's sizes, and the toy functions."""

from __future__ import annotations

import json
import re
from itertools import product
from math import cos, exp, isqrt, pi
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from typer.testing import CliRunner

from hkrr.cli import app
from hkrr.experiments import NAMES, convergence, get_experiment, toy_objectives, toy_trajectories
from hkrr.experiments.figures import COLOURS, ORANGE, PURPLE
from support.experiment_tables import LINKS, STEPS, THREE
from support.experiment_tables import TOY_STARTS as STARTS

# Parameters of the configurations in SMALL. An experiment with such a configuration runs in about a second.
_SIZES = {"n_validation": 60, "n_test": 100, "n_features": 8, "n_components": 2, "seconds": 0.03, "repeats": 1}
_GRID = {"lambdas": (1e-2, 1e-4), "scales": (1.0,)}
SMALL = {
    "convergence": {"n_samples": 100, "n_features": 8, "seconds": 0.05, "repeats": 3},
    "toy-path": {},
    "toy-map": {"n_points": 3},
    "latent-dimension": {"dimensions": (1, 2, 4), "n_train": 60, **_SIZES, **_GRID},
    "training-size": {"sizes": (60, 120), "dimensions": (2, 4, 8), **_SIZES, **_GRID},
    "sample-complexity": {"sizes": (40, 60), "features": (2, 3), "n_components": 1, "n_test": 100, "repeats": 1},
    "nystrom": {"n_samples": 100, "n_features": 3, "sizes": (50, 100), "n_centers": (10, 40), "n_test": 100}
    | {"repeats": 1},
    "adaptivity": {"sizes": (40, 60), "n_features": 3, "n_components": 1, "dimensions": (1, 2), "n_test": 100}
    | {"lambdas": (1e-1, 1e-2), "repeats": 1},
    "stationarity": {"n_samples": 60, "n_features": 4, "n_iterations": 60, "repeats": 2},
}
WITH_SOLVERS = ("convergence", "toy-path", "toy-map", "latent-dimension", "training-size", "stationarity")
# For each experiment, the columns that identify a case, with their values. A string stands for the values in the config
# field of this name. If the field is an integer n, the values are range(n). "grid of x0" and "grid of y0" stand for
# evenly spaced values (see `_expected_cases`).
CROSSED = {
    "convergence": {"start": "repeats", "method": THREE},
    "toy-map": {"link": LINKS, "first_step": "first_steps", "x0": "grid of x0", "y0": "grid of y0"} | {"method": THREE},
    "latent-dimension": {"data_set": (1, 2), "d": "dimensions", "repeat": "repeats", "method": THREE},
    "training-size": {"m": "sizes", "d": "dimensions", "repeat": "repeats", "method": THREE},
    "sample-complexity": {"D": "features", "m": "sizes", "repeat": "repeats"}
    | {"system": ("HKRR", "KRR on X", "KRR on the true map")},
    "adaptivity": {"m": "sizes", "repeat": "repeats", "rule": ("held-out", "evidence")},
    "stationarity": {"start": "repeats", "method": THREE},
}
SCORES = ("R2", "R2_of_start", "objective", "subspace_distance", "iterations", "seconds")
LEAST = ("least_squared_gradient", "least_squared_mapping", "least_eigenvalue")
MEASURED = {
    "convergence": ("iteration", "seconds", "loss", "time_limit"),
    "toy-path": ("iteration", "x", "y", "loss"),
    "toy-map": ("y",),
    "latent-dimension": ("true_d", *SCORES),
    "training-size": SCORES,
    "sample-complexity": ("d", "excess_risk"),
    "nystrom": ("excess_risk", "drawn", "c"),
    "adaptivity": ("true_d", "excess_risk", "least_on_grid", "d", "reg_lambda"),
    "stationarity": ("iteration", "loss", "least_step", "path_of_B", "path_of_alpha", "norm_of_B", *LEAST),
}
# Regular expressions for the beginnings of all claims.
CLAIMS = {
    "convergence": (
        "AGD ends with a lower loss than VarPro from most starting maps",
        "VarPro is faster than AGD when both reach the same loss",
        "from some starting maps, AGD escapes a minimum in which VarPro gets stuck",
    ),
    "toy-path": (
        r"AGD escapes .*\(square, y0 = -1.5, for every initial step size\)",
        r"AGD escapes .*\(sigmoid, y0 = -1.75, for every initial step size\)",
        "from y0 = -0.1 both VarPro and AGD reach the global minimum, and VarPro takes",
    ),
    "toy-map": tuple(rf"the basin of the global minimum is larger for AGD.*\({link}, for every" for link in LINKS),
    "latent-dimension": (r"d < d\* loses much accuracy", r"d > d\* loses little accuracy", r"d > d\* often helps"),
    "training-size": (
        r"at a fixed time budget, d = \d+ is worse than d = \d+ for large m",
        r"for large m, d = \d+ is better than d = \d+",
    ),
    "sample-complexity": (
        "HKRR's risk falls faster with m than KRR's",
        "HKRR's slope hardly depends on D .* while KRR's",
    ),
    "nystrom": (
        "fewer centers than rows do not change the rate",
        *(
            rf"leverage-score sampling needs fewer centers than uniform sampling \({kind} inputs;"
            for kind in ("cube", "clustered")
        ),
    ),
    "adaptivity": ("choosing d and lambda on held-out rows keeps the rate", r"the chosen d exceeds d\*"),
    "stationarity": tuple(
        rf"{text}.*\({method}\)"
        for method in THREE[:2]
        for text in (r"N min \|grad_B", r"min \|grad_B", r"min \|gradient map", "the path of B", "the path of alpha")
    ),
}
PAPER = {
    "convergence": {"n_features": 300, "n_components": 2, "n_samples": 300, "n_centers": 5},
    "latent-dimension": {"n_features": 50, "n_components": 3, "n_centers": 5, "reg_lambda": 1e-7, "seconds": 60.0}
    | {"repeats": 5, "n_train": 600, "n_validation": 600, "n_test": 4800},
    "training-size": {"sizes": (1000, 4000, 8000, 12000, 16000), "dimensions": (3, 20, 50), "n_centers": 25}
    | {"reg_lambda": 1e-8, "seconds": 80.0, "repeats": 10, "n_features": 50, "n_components": 3, "n_validation": 600},
    "sample-complexity": {"features": (10, 20, 50)},
}


def _expected_cases(name, config):
    """Return the columns that identify a case, and the cases that a table must have."""
    if name == "toy-path":
        columns = ("link", "x0", "y0", "first_step", "method")
        return columns, {(*start, *of) for start in STARTS for of in product(STEPS, THREE)}
    if name == "nystrom":
        kinds = ["cube", "clustered"], [config.n_samples], config.n_centers, ["uniform", "leverage"]
        by_size = {("rate", "cube", m, c, "uniform") for m in config.sizes for c in (4 * isqrt(m), m)}
        return ("part", "inputs", "m", "drawn", "how"), {*product(["centers"], *kinds), *by_size}
    values = []
    for value in CROSSED[name].values():
        if value in ("grid of x0", "grid of y0"):
            value = np.linspace(*getattr(config, value[-2:]), config.n_points).round(6)
        value = getattr(config, value) if isinstance(value, str) else value
        values.append(range(value) if isinstance(value, int) else value)
    return tuple(CROSSED[name]), set(product(*values))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Run all experiments through the command line, with the small configurations in place of ``Config.quick()``."""
    out = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        for name, sizes in SMALL.items():
            small = classmethod(lambda cls, seed=0, sizes=sizes: cls(**sizes, seed=seed))
            patch.setattr(get_experiment(name).Config, "quick", small)
        result = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--out", str(out)])
        yield SimpleNamespace(out=out, result=result, screen=result.output)


def _table(quick, name):
    return pd.read_csv(quick.out / f"{name}.csv")


def _claims(quick, name):
    *claims, runs, provenance = (quick.out / f"{name}.txt").read_text().splitlines()
    assert re.fullmatch(r"\d+ runs, \d+ s of one core in total", runs)
    assert re.match(r"hkrr \d+\.\d+\S*, \d+ cores \(.+\), Python 3\.\d+\.\d+\S*; .*seed=0", provenance)
    return claims


def test_all_experiments_run(quick):
    assert quick.result.exception is None, quick.screen
    assert quick.result.exit_code == 0
    assert tuple(MEASURED) == NAMES
    assert {path.name for path in quick.out.iterdir() if not path.name.startswith(".")} == {
        f"{name}.{kind}" for name in NAMES for kind in ("csv", "png", "txt")
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_the_quick_configurations_run(tmp_path, name):
    result = CliRunner().invoke(app, ["reproduce", name, "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(_claims(SimpleNamespace(out=tmp_path), name)) == len(CLAIMS[name])


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_tidy_and_complete(quick, name):
    table = _table(quick, name)
    columns, expected = _expected_cases(name, get_experiment(name).Config.quick())
    assert {*columns, *MEASURED[name]} <= set(table.columns)
    assert set(table[list(columns)].itertuples(index=False, name=None)) == expected
    more = [column for column in ("iteration", "repeat") if column in table and column not in columns]
    assert not table.duplicated([*columns, *more]).any()
    assert more or len(table) == len(expected)
    assert np.all(np.isfinite(table[list(MEASURED[name])].to_numpy(dtype=float)))


def test_the_theorems_numbers_of_centers_are_in_the_table(quick):
    table = _table(quick, "nystrom")
    centers, rate = table[table["part"] == "centers"], table[table["part"] == "rate"]
    of_all = ["risk_of_all_rows", "n_eff", "n_inf", "theorem_uniform", "theorem_leverage"]
    assert (centers.groupby(["inputs", "repeat"])[of_all].nunique() == 1).all(axis=None)
    assert (centers[of_all[2:]].min(axis=1) >= centers["n_eff"]).all()
    assert (centers[["risk_of_all_rows", "n_eff"]] > 0).all(axis=None)
    assert (centers["c"] <= centers["drawn"]).all()
    assert (centers["c"] == centers["drawn"])[centers["how"] == "uniform"].all()
    few = rate["few"].astype(str) == "True"
    assert 0 < few.sum() < len(few)
    assert (rate["c"][few] == 4 * np.sqrt(rate["m"]).astype(int)[few]).all()
    assert (rate["c"][~few] == rate["m"][~few]).all()


@pytest.mark.parametrize("name", NAMES)
def test_figures_have_their_colours(quick, name):
    with Image.open(quick.out / f"{name}.png") as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
    assert len(np.unique(pixels @ (65536, 256, 1))) > 20
    colours = COLOURS.values() if name in WITH_SOLVERS else (PURPLE, ORANGE)
    for colour in colours:
        of = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
        assert np.sum(np.max(np.abs(pixels - of), axis=1) <= 60) > 50


@pytest.mark.parametrize("name", NAMES)
def test_each_claim_has_its_text_and_its_number(quick, name):
    claims = _claims(quick, name)
    assert claims
    for claim in claims:
        assert re.fullmatch(r"(holds|does not hold|inconclusive): .+\. Measured: .*\d.*", claim), claim
    assert len(claims) == len(CLAIMS[name])
    for sentence in CLAIMS[name]:
        assert sum(bool(re.search(f"(holds?|inconclusive): {sentence}", claim)) for claim in claims) == 1, sentence


@pytest.mark.parametrize("name", NAMES)
def test_claims_and_progress_are_printed(quick, name):
    shown = " ".join(quick.screen.split())
    for claim in _claims(quick, name):
        assert claim in shown
    n_cases = len(get_experiment(name).cases(get_experiment(name).Config.quick()))
    assert re.search(rf"{name} \S* ?{n_cases}/{n_cases} runs [\d:]+ done", shown)


@pytest.mark.parametrize("name", NAMES)
def test_each_claim_is_printed_in_one_line(quick, name):
    """Test that output to a file is not wrapped, so that a claim can be found by a text search."""
    lines = [line.strip() for line in quick.screen.splitlines()]
    assert not [claim for claim in _claims(quick, name) if claim not in lines]


@pytest.mark.parametrize("name", PAPER)
def test_defaults_are_those_of_the_paper(name):
    config = get_experiment(name).Config()
    assert {field: getattr(config, field) for field in PAPER[name]} == PAPER[name]


def test_other_defaults_have_sufficient_ranges():
    latent = get_experiment("latent-dimension").Config()
    assert {1, 2, 3, 50} <= set(latent.dimensions)
    assert sum(3 < d <= 20 for d in latent.dimensions) >= 3
    assert len(get_experiment("sample-complexity").Config().sizes) > 3  # the slopes use the last three
    starts = toy_trajectories.STARTS
    assert {(link, *start) for link in starts for start in starts[link]} == set(STARTS)


def test_all_methods_share_start_data_and_centers(quick):
    first = _table(quick, "convergence").query("iteration == 0").pivot(index="start", columns="method", values="loss")
    assert_allclose(first["AGD"], first["VarPro"], rtol=1e-5)
    assert_allclose(first["L-BFGS"], first["VarPro"], rtol=1e-5)
    assert first["VarPro"].nunique() == len(first)
    first = _table(quick, "stationarity").query("iteration == 1").groupby("start")
    assert (first["least_eigenvalue"].nunique() == 1).all()
    assert (first["norm_of_B"].nunique() == 1).all()


def test_cumulative_columns_are_monotonic(quick):
    for (_, method), run in _table(quick, "stationarity").groupby(["start", "method"]):
        assert all(run[name].is_monotonic_increasing for name in ("iteration", "path_of_B", "path_of_alpha"))
        assert all(run[name].is_monotonic_decreasing for name in (*LEAST, "least_step"))
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
    # The noise has a tenth of the standard deviation of the target, up to the sampling error.
    assert 0.05 < np.std(y - z) / np.std(z) < 0.2
    for other in drawn[1:]:
        assert_array_equal(other.X, X)
        assert_array_equal(other.y, y)


def _f(link, x, y):
    h = y**2 if link == "square" else 1 / (1 + exp(-y))
    return (x - h) ** 2 + cos(pi * y) + (1 - y) ** 2 + 1


@pytest.mark.parametrize("link", ["square", "sigmoid"])
@pytest.mark.parametrize(("x", "y"), [(-1.5, -1.5), (-1.5, -0.1), (5.0, -1.75), (0.3, 2.2), (1.0, 1.0)])
def test_toy_functions_and_their_derivatives(link, x, y):
    of, B, alpha, h = toy_objectives.Toy(link), np.array([[y]]), np.array([[x]]), 1e-6
    value, slope = of.value_and_grad_B(B, alpha)
    assert [value, of.at(x, y), of.value(B, alpha)] == pytest.approx([_f(link, x, y)] * 3)
    assert slope[0, 0] == pytest.approx((_f(link, x, y + h) - _f(link, x, y - h)) / (2 * h), abs=1e-7)
    assert of.inner(B).grad(alpha)[0, 0] == pytest.approx((_f(link, x + h, y) - _f(link, x - h, y)) / (2 * h), abs=1e-7)
    reduced = of.reduced(B)
    assert_allclose(of.inner(B).grad(reduced.alpha), 0.0, atol=1e-12)
    assert_allclose(of.solve_alpha(B), reduced.alpha)
    assert reduced.value == pytest.approx(_f(link, reduced.alpha[0, 0], y), abs=1e-12)
    low, high = (of.reduced(np.array([[y + step]])).value for step in (-h, h))
    assert reduced.grad[0, 0] == pytest.approx((high - low) / (2 * h), abs=1e-7)


@pytest.mark.parametrize("method", THREE)
@pytest.mark.parametrize(("link", "x0", "y0"), STARTS)
@pytest.mark.parametrize("step", STEPS)
def test_toy_trajectories_begin_at_the_start_and_decrease(step, link, x0, y0, method):
    path = toy_objectives.minimise(link, method, x0, y0, 200, step)
    assert path[0][:2] == (x0, y0)
    assert_allclose([loss for _, _, loss in path], [_f(link, x, y) for x, y, _ in path], rtol=1e-9, atol=1e-12)
    assert max(np.diff([loss for _, _, loss in path])) <= 1e-12
    if method != "AGD":  # the first step of VarPro and L-BFGS only moves x to its minimizer h(y)
        assert path[1][1] == y0
        assert path[1][0] == pytest.approx(y0**2 if link == "square" else 1 / (1 + exp(-y0)))


@pytest.mark.parametrize("n_cases", [4, pytest.param(12, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", NAMES)
def test_claims_and_figure_without_one_case(quick, name, n_cases):
    """Test that the claims and the figure can be made even if one case is missing because it failed.

    At most n_cases cases are left out, one at a time.
    """
    experiment = get_experiment(name)
    lines = [json.loads(line) for line in (quick.out / f".{name}.jsonl").read_text().splitlines()]
    for k in range(0, len(lines), 1 + len(lines) // n_cases):
        rest = [row for line in lines[:k] + lines[k + 1 :] for row in line["rows"]]
        assert all(str(claim) for claim in experiment.claims(rest)), lines[k]["case"]
        plt.close(experiment.plot(rest))


def test_all_methods_share_the_starts_of_figure_2(quick):
    for name, setting in (("latent-dimension", ["data_set", "d", "repeat"]), ("training-size", ["m", "d", "repeat"])):
        assert (_table(quick, name).groupby(setting)["R2_of_start"].nunique() == 1).all()
