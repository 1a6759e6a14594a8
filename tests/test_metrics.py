"""Tests of the distance between the row spaces of two maps."""

import math

import numpy as np
import pytest

from hkrr.metrics import subspace_distance
from support import oracles


@pytest.mark.parametrize("d", [1, 2, 4])
def test_same_span_under_invertible_mixing(d):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(d, 6))
    mixing = rng.normal(size=(d, d)) + 3.0 * np.eye(d)
    assert subspace_distance(B, mixing @ B) == pytest.approx(0.0, abs=1e-12)
    assert subspace_distance(1e-6 * B, 1e6 * mixing @ B) == pytest.approx(0.0, abs=1e-12)


def test_orthogonal_direction_is_at_distance_one():
    E = np.eye(5)
    assert subspace_distance(E[:2], E[2:3]) == pytest.approx(1.0, rel=1e-12)
    assert subspace_distance(E[:2], E[1:3]) == pytest.approx(1.0, rel=1e-12)


def test_containment_is_not_symmetric():
    B = np.random.default_rng(1).normal(size=(3, 7))
    inside = np.array([[1.0, -2.0, 0.5]]) @ B
    assert subspace_distance(B, inside) == pytest.approx(0.0, abs=1e-12)
    assert subspace_distance(inside, B) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 0.3, math.pi / 4, 1.5, math.pi / 2, 2.5])
def test_sine_of_the_angle_in_the_plane(angle):
    rotated = np.array([[-3.0 * math.cos(angle), -3.0 * math.sin(angle)]])
    distance = subspace_distance(np.array([[2.0, 0.0]]), rotated)
    assert distance == pytest.approx(abs(math.sin(angle)), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("d1", "d2"), [(1, 1), (2, 3), (3, 2), (3, 3)])
def test_matches_the_oracle(d1, d2):
    rng = np.random.default_rng(2)
    B1, B2 = rng.normal(size=(d1, 6)), rng.normal(size=(d2, 6))
    assert subspace_distance(B1, B2) == pytest.approx(oracles.subspace_distance(B1, B2), rel=1e-10)


def test_dependent_rows_add_no_direction():
    """Test that linearly dependent rows of a map, in either argument, do not add directions to its row space."""
    E = np.eye(4)
    twice = np.vstack([E[0], 2.0 * E[0]])
    assert subspace_distance(twice, E[:1]) == pytest.approx(0.0, abs=1e-12)
    assert subspace_distance(E[:1], twice) == pytest.approx(0.0, abs=1e-12)
    assert subspace_distance(twice, E[1:2]) == pytest.approx(1.0, rel=1e-12)
    assert subspace_distance(np.vstack([E[0], E[0] + E[1], E[1]]), E[2:3]) == pytest.approx(1.0, rel=1e-12)
