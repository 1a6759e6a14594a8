"""Test that outliers do not determine the number of directions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr import HyperKernelRidgeCV
from hkrr.criteria import Evidence
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.search_stages import is_outlier, rank_without_outliers
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from support.random_problems import SEEDS


def _wave(m=300, D=6, off=(), by=8.0):
    """Return X and a wave along the first column with little noise. `by` is added to y in the rows `off`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, D))
    y = np.sin(1.5 * X[:, 0]) + 0.05 * rng.normal(size=m)
    y[list(off)] += by
    return X, y - y.mean()


def _criterion(X, y):
    rows = InMemoryRows(X, y)
    return Evidence(rows, rows.take(np.arange(0, len(X), 3)), Gaussian(gamma=1.0), 1.0, True)


def _maps(D=6):
    """Return maps of the first column, and of the first two columns. The second map has the lower score."""
    one = Candidate(Origin.RANDOM, Gaussian(gamma=1.0), np.eye(1, D), 0.01, -1.0, 5.0)
    return [one, replace(one, origin=Origin.WIDENED, B=np.eye(2, D), score=-100.0)]


def test_outliers_are_found():
    off = [3, 50, 299]
    assert_array_equal(np.flatnonzero(is_outlier(_criterion(*_wave(off=off)), _maps()[0])), off)
    assert not is_outlier(_criterion(*_wave()), _maps()[0]).any()


def test_scores_are_recomputed_without_outliers():
    """Test that outliers change only the scores, not the maps and the noise.

    The scores come from a short run on the rows that are not outliers.
    """
    X, y = _wave(off=[7, 100])
    found = rank_without_outliers(_criterion(X, y), _maps(), math.inf)
    assert [one.label for one in found] == ["random", "widened"]  # the second column has no effect
    for one, was in zip(found, _maps(), strict=True):
        assert_array_equal(one.B, was.B)
        assert one.nu == was.nu
        assert one.score != was.score


@pytest.mark.parametrize("off", [[], range(60)], ids=["none", "a fifth of the rows"])
def test_scores_do_not_change_without_outliers_or_with_too_many(off):
    found = rank_without_outliers(_criterion(*_wave(off=off, by=1e3)), _maps(), math.inf)
    assert [(one.label, one.score) for one in found] == [("widened", -100.0), ("random", 5.0)]


def test_the_smallest_map_is_not_compared():
    one, two = _maps()
    one = replace(one, score=-200.0)
    assert [each.label for each in rank_without_outliers(_criterion(*_wave(off=[5])), [two, one], math.inf)] == [
        "random",
        "widened",
    ]


@pytest.mark.parametrize(
    ("D", "options"),
    [
        pytest.param(5, {"n_components": [1, 2, 3], "n_init": 2}, id="5 columns"),
        pytest.param(8, {}, marks=pytest.mark.thorough, id="8 columns, defaults"),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_outlier_does_not_add_a_direction(seed, D, options):
    """Test that one direction is selected if one of 300 rows is off by 60 standard deviations of the noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, D))
    y = np.sin(1.5 * X[:, 0]) + 0.1 * rng.normal(size=300)
    y[10] += 6.0
    assert HyperKernelRidgeCV(**options, random_state=0).fit(X, y).n_components_ == 1
