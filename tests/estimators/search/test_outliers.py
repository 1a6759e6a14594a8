"""Rows far off do not choose the number of directions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr import HyperKernelRidgeCV
from hkrr.candidates import Candidate
from hkrr.criteria import Evidence
from hkrr.kernels import Gaussian
from hkrr.outliers import compared_without, far_off
from hkrr.rows import InMemoryRows
from problems import SEEDS


def _wave(m=300, D=6, off=(), by=8.0):
    """A wave along the first column, with a little noise; some targets are far off."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, D))
    y = np.sin(1.5 * X[:, 0]) + 0.05 * rng.normal(size=m)
    y[list(off)] += by
    return X, y - y.mean()


def _criterion(X, y):
    rows = InMemoryRows(X, y)
    return Evidence(rows, rows.take(np.arange(0, len(X), 3)), Gaussian(gamma=1.0), 1.0, True)


def _maps(D=6):
    """The first column alone, and with the second; one direction more has the lower score."""
    one = Candidate("one", Gaussian(gamma=1.0), np.eye(1, D), 0.01, -1.0, 5.0)
    return [one, replace(one, start="two", B=np.eye(2, D), score=-100.0)]


def test_far_off_rows_are_found():
    off = [3, 50, 299]
    assert_array_equal(np.flatnonzero(far_off(_criterion(*_wave(off=off)), _maps()[0])), off)
    assert not far_off(_criterion(*_wave()), _maps()[0]).any()


def test_without_them_the_scores_are_those_of_the_other_rows():
    """The candidates are what they were, and their scores come of a run on the rows that are left."""
    X, y = _wave(off=[7, 100])
    found = compared_without(_criterion(X, y), _maps(), math.inf)
    assert [one.start for one in found] == ["one", "two"]  # a second column is worth nothing
    for one, was in zip(found, _maps(), strict=True):
        assert_array_equal(one.B, was.B)
        assert one.nu == was.nu
        assert one.score != was.score


@pytest.mark.parametrize("off", [[], range(60)], ids=["none", "a fifth of them"])
def test_where_there_are_none_or_too_many_nothing_changes(off):
    found = compared_without(_criterion(*_wave(off=off, by=1e3)), _maps(), math.inf)
    assert [(one.start, one.score) for one in found] == [("two", -100.0), ("one", 5.0)]


def test_the_fewest_directions_have_none_to_be_compared_with():
    one, two = _maps()
    one = replace(one, score=-200.0)
    assert [each.start for each in compared_without(_criterion(*_wave(off=[5])), [two, one], math.inf)] == [
        "one",
        "two",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_wild_target_does_not_cost_a_direction(seed):
    """Of 300 rows one is off by 60 standard deviations of the noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 8))
    y = np.sin(1.5 * X[:, 0]) + 0.1 * rng.normal(size=300)
    y[10] += 6.0
    assert HyperKernelRidgeCV(random_state=0).fit(X, y).n_components_ == 1
