"""Hashes of values: equivalent values have the same hash, and different values have different hashes."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from hkrr._base.value_hashing import digest
from hkrr.kernels import Gaussian, Matern
from hkrr.solvers import AGD, LBFGS

# Each list contains equivalent values. Values in different lists are not equivalent.
SAME = [
    [3, 3.0, np.int8(3), np.float32(3.0), np.array(3)],
    [0.1, np.float64(0.1)],
    [True, np.True_],
    [[1, 2], (1, 2), range(1, 3), np.array([1, 2], dtype=np.int8), np.array([1.0, 2.0]), [np.int64(1), 2.0]],
    [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]), np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])],
    [[("a", 1)], (["a", np.int64(1)],)],
    ["a/b", Path("a/b")],
    [Gaussian(), Gaussian(gamma=None)],
    [Gaussian(gamma=2), Gaussian(gamma=np.float64(2.0))],
    [LBFGS(memory=5), LBFGS(memory=np.int64(5))],
    [None],
    ["3"],
    ["True"],
    [np.array([1, 2, 3, 4])],
    [[1, [2]]],
    [[]],
    [Matern(gamma=2.0)],
    [AGD()],
    [2**60],
    [2**60 + 1],
    [float("nan")],
    [float("inf")],
]


def test_equivalent_and_different_values():
    found = [{digest(one) for one in group} for group in SAME]
    assert [len(group) for group in found] == [1] * len(SAME)
    for (i, one), (j, other) in combinations(enumerate(found), 2):
        assert one != other, (SAME[i], SAME[j])


def test_devices():
    torch = pytest.importorskip("torch")
    assert digest(torch.device("cpu")) == digest("cpu")


def test_objects_of_unknown_classes_are_hashed_by_the_given_function():
    class Unknown:
        pass

    assert digest(Unknown(), other=lambda one: "a") == digest(Unknown(), other=lambda one: "a")
    assert digest(Unknown(), other=lambda one: "a") != digest(Unknown(), other=lambda one: "b")
