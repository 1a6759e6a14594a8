"""Tests of the links from scores to probabilities, and of the calibration of their parameters."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit, softmax

from hkrr.estimators.classification.probability_calibration import MIN_PROBABILITY, _psi, calibrate, probabilities


@pytest.mark.parametrize("s", [0.02, 0.3, 5.0])
def test_soft_link_against_its_integral(s):
    for u in (-1.0, -0.1, 0.0, 0.4, 0.5, 0.9, 1.2, 2.5):
        expected, _ = quad(lambda t, u=u: expit((u - t) / s), 0.0, 1.0, points=[min(max(u, 0.0), 1.0)])
        found, in_u, in_s = (float(part) for part in _psi(np.array(u), s))
        assert_allclose(found, expected, rtol=1e-6, atol=1e-14)
        h = 1e-6
        assert_allclose(in_u, float(_psi(np.array(u + h), s)[0] - _psi(np.array(u - h), s)[0]) / (2 * h), atol=1e-7)
        assert_allclose(in_s, float(_psi(np.array(u), s + h)[0] - _psi(np.array(u), s - h)[0]) / (2 * h), atol=1e-7)


def test_limits_of_the_soft_link():
    u = np.array([0.2, 0.5, 0.7])
    assert_allclose(_psi(u, 0.01)[0], u, atol=1e-8)
    assert_allclose(_psi(u * 10, 10.0)[0], expit((u * 10 - 0.5) / 10.0), atol=1e-4)


@pytest.mark.parametrize("softness", [None, 0.2])
@pytest.mark.parametrize("K", [2, 4])
def test_probabilities_are_positive_and_sum_to_one(softness, K):
    rng = np.random.default_rng(0)
    u = rng.normal(size=(500, K)) * 10.0 ** rng.uniform(-3, 6, size=(500, 1))
    p = probabilities(u, softness)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all((p > 0) & (p < 1))
    assert np.min(p) >= 0.1 * MIN_PROBABILITY


@pytest.mark.parametrize("K", [2, 3])
def test_known_parameters_are_recovered(K):
    """Calibration recovers the slope and the offsets from which 20,000 labels were drawn."""
    rng = np.random.default_rng(K)
    scores = rng.normal(size=(20_000, K))
    offsets = np.linspace(-0.5, 0.5, K)
    p = softmax(0.6 * scores + offsets, axis=1)
    codes = np.eye(K)[np.argmax(p.cumsum(axis=1) > rng.uniform(size=(len(p), 1)), axis=1)]
    found = calibrate(scores, codes, np.ones(len(scores)), soft=False)
    assert_allclose(found.slope, 0.6, atol=0.03)
    assert_allclose(found.offsets, offsets, atol=0.05)


def test_scores_that_are_probabilities_are_unchanged():
    rng = np.random.default_rng(0)
    share = rng.uniform(0.02, 0.98, 20_000)
    codes = np.eye(2)[(rng.uniform(size=len(share)) < share).astype(int)]
    scores = np.column_stack([1 - share, share])
    found = calibrate(scores, codes, np.ones(len(share)), soft=True)
    assert np.max(np.abs(probabilities(found.linear(scores), found.softness)[:, 1] - share)) < 0.03
    # Stretched and shifted scores, like the outputs of an overfitted regression, are corrected.
    found = calibrate(2.0 * scores - 0.45, codes, np.ones(len(share)), soft=True)
    assert np.max(np.abs(probabilities(found.linear(2.0 * scores - 0.45), found.softness)[:, 1] - share)) < 0.03


@pytest.mark.parametrize("soft", [False, True])
def test_integer_weights_equal_repeated_rows(soft):
    rng = np.random.default_rng(0)
    index = np.arange(30) % 3
    codes, times = np.eye(3)[index], 1 + np.arange(30) % 2
    scores = codes + 0.01 * rng.normal(size=codes.shape)
    once = calibrate(scores, codes, times.astype(float), soft)
    every = np.repeat(np.arange(30), times)
    repeated = calibrate(scores[every], codes[every], np.ones(len(every)), soft)
    assert_allclose(once.linear(scores), repeated.linear(scores), atol=1e-4)
    # Platt's smoothed targets keep the probabilities of separable scores away from 0 and 1.
    p = probabilities(once.linear(scores), once.softness)
    assert 0.8 < np.min(np.max(p, axis=1)) < np.max(p) < 0.99


@pytest.mark.parametrize("K", [2, 10])
def test_smoothed_targets(K):
    """For separable classes of 20 rows each, each row has the probability 21/22 of its own class.

    This is the smoothed target (N + 1) / (N + 2) for N = 20.
    """
    codes = np.eye(K)[np.arange(20 * K) % K]
    found = calibrate(codes, codes, np.ones(20 * K), soft=False)
    assert_allclose(np.max(probabilities(found.linear(codes), None), axis=1), 21 / 22, rtol=1e-4)
