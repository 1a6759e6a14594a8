"""Tests of the claims and figures if some cases failed, or if the configuration is not the paper's."""

from __future__ import annotations

from itertools import product

import pytest

from support import experiment_tables as tables
from support.experiment_tables import LINKS, STEPS, check_claims_and_figure, claims_of, without

# Arguments of the functions in `tables`. With these arguments, all claims about the tables in WHOLE hold.
SAME, ESCAPES = ([(1, 1)], [(9, 1)]), ([(1, 2)], [(9, 1)])
_WELL = (lambda n: n**-2.0, lambda n: n**-2.0, lambda n: 1.0 - 1.0 / n, lambda n: 1.0 - 1.0 / n, 0.5, 1.0, 0.1)
_LATENT = (0.0, 0.4, 0.8, 0.84, 0.82, 0.81, 0.81, 0.0)
_ENDS = {(k, step): ((-0.5, 1), (1, 1), (-0.5, 1))[k] for k in range(3) for step in STEPS}


def _R2(method, m, k):
    return (0.5, 0.8, 0.6, 0.6)[k]


WHOLE = {
    "convergence": tables.convergence(SAME, ESCAPES, ESCAPES),
    "toy-path": tables.toy_trajectories(_ENDS, dict.fromkeys(STEPS, (5, 9, 3))),
    "toy-map": tables.toy_basins(dict.fromkeys(product(LINKS, STEPS), (range(3), range(6), range(3))), n_points=3),
    "latent-dimension": tables.latent(_LATENT),
    "training-size": tables.training_size(_R2),
    "sample-complexity": tables.sample_complexity((-1.0,) * 3, (-0.8, -0.5, -0.2)),
    "nystrom": tables.nystrom(-1.0, (9, 5, 2, 1), (9, 5, 1, 1)),
    "adaptivity": tables.adaptivity(lambda m: 1.5),
    "stationarity": tables.stationarity(_WELL, _WELL, _WELL),
}
# For each experiment, the case that is missing in `test_without_a_case`.
ONE = {
    "convergence": {"start": 1, "method": "AGD"},
    "toy-path": {"link": "square", "y0": -1.5, "first_step": 0.1, "method": "AGD"},
    "toy-map": {"link": "square", "first_step": 0.1, "y0": 1.0},
    "latent-dimension": {"data_set": 1, "d": 3, "repeat": 1, "method": "AGD"},
    "training-size": {"m": 1000, "d": 20, "repeat": 1, "method": "AGD"},
    "sample-complexity": {"D": 20, "m": 800, "repeat": 1},
    "nystrom": {"part": "rate", "m": 400, "repeat": 1, "few": False},
    "adaptivity": {"m": 400, "repeat": 1},
    "stationarity": {"start": 1, "method": "AGD"},
}
# The settings whose cases are all missing in `test_without_a_setting`.
SETTINGS = [
    ("convergence", {"method": "AGD"}),
    ("convergence", {"method": "L-BFGS"}),
    ("toy-map", {"link": "sigmoid", "first_step": 1.0}),
    ("latent-dimension", {"data_set": 1, "d": 3, "method": "AGD"}),
    ("latent-dimension", {"data_set": 2}),
    ("training-size", {"m": 1000, "d": 20, "method": "AGD"}),
    ("training-size", {"m": 1000}),
    ("sample-complexity", {"D": 20, "m": 1600}),
    ("sample-complexity", {"D": 20}),
    ("nystrom", {"part": "centers", "inputs": "clustered"}),
    ("nystrom", {"part": "rate", "m": 400, "few": False}),
    ("nystrom", {"part": "rate"}),
    ("adaptivity", {"m": 1600}),
    ("stationarity", {"method": "VarPro"}),
]


@pytest.mark.parametrize("name", WHOLE)
def test_all_claims_hold_for_the_complete_tables(name):
    assert {claim.holds for claim in check_claims_and_figure(name, WHOLE[name])} == {True}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("convergence", "nystrom") else pytest.param(name, marks=pytest.mark.thorough)
        for name in WHOLE
        if not name.startswith("toy")
    ],
)
@pytest.mark.parametrize("repeat", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in (1, 2))])
def test_without_a_repeat(name, repeat):
    which = "start" if name in ("convergence", "stationarity") else "repeat"
    found = check_claims_and_figure(name, without(WHOLE[name], **{which: repeat}))
    assert [claim.text for claim in found] == [claim.text for claim in claims_of(name, WHOLE[name])]


@pytest.mark.parametrize("name", WHOLE)
def test_without_a_case(name):
    """Test that all claims are still made if one case is missing.

    The missing case can refute only claims that count runs: those of latent-dimension and convergence.
    """
    found = check_claims_and_figure(name, without(WHOLE[name], **ONE[name]))
    assert [claim.text for claim in found] == [claim.text for claim in claims_of(name, WHOLE[name])]
    assert not [
        str(claim) for claim in found if claim.holds is False and name not in ("latent-dimension", "convergence")
    ]


# `make test` uses one setting only, because test_without_a_case covers the other experiments.
@pytest.mark.parametrize(
    ("name", "where"),
    [SETTINGS[0], *(pytest.param(*setting, marks=pytest.mark.thorough) for setting in SETTINGS[1:])],
)
def test_without_a_setting(name, where):
    """Test that there are claims and a figure for the remaining settings if one setting failed in every repeat."""
    check_claims_and_figure(name, without(WHOLE[name], **where))


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("convergence", tables.convergence(SAME)),
        ("latent-dimension", tables.latent(_LATENT, shifts=(0.0,))),
        ("training-size", tables.training_size(_R2, repeats=1)),
        ("sample-complexity", tables.sample_complexity((-1.0,) * 3, (-0.8, -0.5, -0.2), repeats=1)),
        ("nystrom", tables.nystrom(-1.0, (9, 5, 2, 1), (9, 5, 1, 1), repeats=1)),
        ("adaptivity", tables.adaptivity(lambda m: 1.5, d=(4,))),
        ("stationarity", tables.stationarity(_WELL)),
    ],
)
def test_one_repeat(name, table):
    assert {claim.holds for claim in check_claims_and_figure(name, table)} <= {True, False} | (
        {None} if name == "convergence" else set()
    )


@pytest.mark.parametrize(
    ("name", "table", "no_rate"),
    [
        ("training-size", tables.training_size(_R2, sizes=(1000,)), False),
        ("sample-complexity", tables.sample_complexity((-1.0,) * 3, (-0.8, -0.5, -0.2), sizes=(400,)), True),
        ("nystrom", tables.nystrom(-1.0, (9, 5, 2, 1), (9, 5, 1, 1), sizes=(400,)), True),
        ("adaptivity", tables.adaptivity(lambda m: 1.5, sizes=(400,)), True),
    ],
)
def test_one_size(name, table, no_rate):
    """Test that claims about a rate are inconclusive with one size, because a rate needs at least two sizes."""
    assert (check_claims_and_figure(name, table)[0].holds is None) == no_rate


@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [(400, 800), (100, 400, 800, 1600)])
def test_other_numbers_of_sizes(sizes):
    hkrr, krr = (-1.0,) * 3, (-0.8, -0.5, -0.2)
    assert [
        c.holds for c in check_claims_and_figure("sample-complexity", tables.sample_complexity(hkrr, krr, sizes=sizes))
    ] == [True] * 2
    assert {
        c.holds for c in check_claims_and_figure("nystrom", tables.nystrom(-1.0, (2, 1.5), (2, 1), sizes=sizes))
    } == {True}


@pytest.mark.parametrize("D", [10, 50])
def test_one_dimension_of_the_inputs(D):
    found = check_claims_and_figure("sample-complexity", tables.sample_complexity((-1.0,), (-0.8,), features=(D,)))
    assert [claim.holds for claim in found] == [True, None]


@pytest.mark.parametrize("dimensions", [(3,), (3, 20), (3, 10, 20, 50)])
def test_other_numbers_of_directions(dimensions):
    check_claims_and_figure("training-size", tables.training_size(_R2, dimensions=dimensions))


@pytest.mark.parametrize(("true_d", "dimensions"), [(1, (1, 2, 4)), (4, (1, 2, 4)), (3, (1, 2, 4)), (3, (3,))])
def test_other_true_numbers_of_directions(true_d, dimensions):
    """Test that some claim is inconclusive if d* is the smallest or the largest d that was tried, or was not tried."""
    found = check_claims_and_figure(
        "latent-dimension", tables.latent((0.4, 0.6, 0.8), true_d=true_d, dimensions=dimensions)
    )
    assert None in [claim.holds for claim in found]


@pytest.mark.thorough
@pytest.mark.parametrize("n_points", [2, 5])
@pytest.mark.parametrize("steps", [(0.1,), (0.1, 1.0)])
def test_other_first_steps_of_the_map(steps, n_points):
    arrivals = dict.fromkeys(product(LINKS, steps), (range(1), range(3), range(2)))
    assert {claim.holds for claim in check_claims_and_figure("toy-map", tables.toy_basins(arrivals, n_points))} == {
        True
    }


def test_a_first_step_that_takes_more_than_half_of_the_time():
    table = [row | {"seconds": row["seconds"] + 25.0} for row in tables.convergence(SAME, ESCAPES)]
    check_claims_and_figure("convergence", table)
