"""Tests of the projection onto the ball of matrices whose spectral norm is bounded.

The projection clips singular values, is idempotent, and gives the nearest point.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr.solvers.line_search import spectral_ball
from support import oracles

SHAPES = [(1, 1), (1, 5), (2, 5), (3, 3), (4, 2)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_bound = pytest.mark.parametrize("bound", [0.3, 1.0, 2.5])


def _singular_values(B):
    return np.linalg.svd(B, compute_uv=False)


@every_shape
@every_bound
def test_clips_the_singular_values(shape, bound):
    B = 2.0 * np.random.default_rng(0).normal(size=shape)
    before = B.copy()
    projected = spectral_ball(B, bound)
    assert_array_equal(B, before)
    assert_allclose(projected, oracles.project_spectral_ball(B, bound), rtol=1e-10, atol=1e-12)
    assert_allclose(_singular_values(projected), np.minimum(_singular_values(B), bound), rtol=1e-12, atol=1e-14)


@every_shape
@every_bound
def test_idempotent(shape, bound):
    projected = spectral_ball(np.random.default_rng(1).normal(size=shape) * 3.0, bound)
    assert_allclose(spectral_ball(projected, bound), projected, rtol=1e-12, atol=1e-14)


@every_shape
@every_bound
def test_identity_inside_the_ball(shape, bound):
    B = np.random.default_rng(2).normal(size=shape)
    B *= 0.99 * bound / _singular_values(B)[0]
    assert_array_equal(spectral_ball(B, bound), B)  # a map inside the ball is not changed at all
    assert_array_equal(spectral_ball(np.zeros(shape), bound), np.zeros(shape))


@every_shape
@every_bound
def test_no_point_of_the_ball_is_nearer(shape, bound):
    """Test that random points of the ball, drawn around the projection of B, are not nearer to B than the projection.

    Points that are drawn outside the ball are scaled into the ball.
    """
    rng = np.random.default_rng(3)
    B = 2.0 * bound * rng.normal(size=shape)
    projected = spectral_ball(B, bound)
    distance = np.linalg.norm(B - projected)
    for spread in (1.0, 0.1, 0.01):
        for _ in range(200):
            other = projected + spread * bound * rng.normal(size=shape)
            other /= max(1.0, _singular_values(other)[0] / bound)
            assert np.linalg.norm(B - other) >= distance * (1.0 - 1e-12)


@every_shape
def test_nearest_by_the_variational_inequality(shape):
    """Test that <B - proj B, Z - proj B> <= 0 for every Z in the ball, which characterises the nearest point.

    It is enough to test the extreme points of the ball, whose singular values are all one.
    """
    rng = np.random.default_rng(4)
    B = 3.0 * rng.normal(size=shape)
    projected = spectral_ball(B)
    for _ in range(200):
        U, _, Vt = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
        assert np.sum((B - projected) * (U @ Vt - projected)) <= 1e-12


def test_bound_is_one_by_default():
    assert_allclose(spectral_ball(np.diag([4.0, 0.25])), np.diag([1.0, 0.25]), rtol=1e-14, atol=1e-15)
