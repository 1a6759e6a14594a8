"""Tests of the paper's two data sets: formulas, ranges, the norm of the map, the noise, and reproducibility."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr.datasets import make_mim_mixed, make_mim_sines
from support import oracles

every_set = pytest.mark.parametrize(
    ("make", "formula", "reach"),
    [(make_mim_sines, oracles.mim_sines, 1.0), (make_mim_mixed, oracles.mim_mixed, 10.0)],
    ids=["sines", "mixed"],
)


@every_set
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_noise_free_target_matches_the_formula(make, formula, reach, d):
    data = make(50, 8, d, noise=0.0, random_state=0)
    assert data.X.shape == (50, 8)
    assert data.y.shape == (50,)
    assert data.B.shape == (d, 8)
    assert data.noise == 0.0
    assert_allclose(data.y, formula(data.X, data.B), rtol=1e-10, atol=1e-12)


@every_set
def test_inputs_are_uniform_on_their_cube(make, formula, reach):
    """Test that the range, mean and variance of 20,000 entries of X agree with the uniform distribution.

    The inputs are divided by `reach`, half of the side length of their cube. The entries come within 1% of both ends of
    [-1, 1]. Mean and variance agree up to 5 standard errors.
    """
    X = make(2000, 10, random_state=1).X / reach
    assert X.min() >= -1.0
    assert X.max() <= 1.0
    assert X.min() < -0.99
    assert X.max() > 0.99
    assert abs(X.mean()) <= 5.0 * np.sqrt(1 / 3 / X.size)
    assert abs((X**2).mean() - 1 / 3) <= 5.0 * np.sqrt((1 / 5 - 1 / 9) / X.size)


@every_set
@pytest.mark.parametrize("d", [1, 3])
def test_map_is_uniform_and_of_spectral_norm_one(make, formula, reach, d):
    B = make(3, 1000, d, random_state=2).B
    assert np.linalg.svd(B, compute_uv=False)[0] == pytest.approx(1.0, rel=1e-12)
    entries = B / B.max()
    assert entries.min() >= 0.0
    # U[0, 1] has mean 1/2 and variance 1/12. Allow 5 standard errors, and 0.01 more because the largest of the drawn
    # entries, by which all entries are divided, is slightly below 1.
    assert abs(entries.mean() - 0.5) <= 5.0 * np.sqrt(1 / 12 / entries.size) + 0.01
    assert abs(entries.var() - 1 / 12) <= 5.0 * np.sqrt(1 / 180 / entries.size) + 0.01


@every_set
@pytest.mark.parametrize("noise", [0.01, 0.5])
def test_noise_is_a_share_of_the_variance(make, formula, reach, noise):
    n = 4000
    data = make(n, 6, 3, noise=noise, random_state=3)
    z = formula(data.X, data.B)
    # The variance of z may be divided by n or by n - 1, which differ by 1/4000.
    assert data.noise**2 == pytest.approx(noise * z.var(), rel=1e-3)
    errors = (data.y - z) / data.noise
    assert abs(errors.mean()) <= 5.0 / np.sqrt(n)
    assert abs(errors.var() - 1.0) <= 5.0 * np.sqrt(2.0 / n)
    # The fourth moment of a standard normal distribution is 3.
    assert abs((errors**4).mean() - 3.0) <= 5.0 * np.sqrt(96.0 / n)
    assert abs(np.corrcoef(errors, z)[0, 1]) <= 5.0 / np.sqrt(n)


@every_set
def test_defaults(make, formula, reach):
    data = make(400, random_state=4)
    assert data.X.shape == (400, 50)
    assert data.B.shape == (3, 50)
    assert data.noise**2 == pytest.approx(0.01 * formula(data.X, data.B).var(), rel=1e-2)


@every_set
def test_same_seed_same_data(make, formula, reach):
    one, two, other = make(20, random_state=5), make(20, random_state=5), make(20, random_state=6)
    for name in ("X", "y", "B", "noise"):
        assert_array_equal(getattr(one, name), getattr(two, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))


@every_set
def test_global_random_state_is_left_alone(make, formula, reach):
    before = np.random.get_state()  # noqa: NPY002  # this test is about the global state
    make(20, random_state=7)
    after = np.random.get_state()  # noqa: NPY002  # this test is about the global state
    assert_array_equal(before[1], after[1])
    assert before[2:] == after[2:]


@every_set
def test_no_seed_gives_new_data(make, formula, reach):
    assert not np.array_equal(make(20).X, make(20).X)
