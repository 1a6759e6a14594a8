"""Tests of the weights of an ensemble: a naive oracle, the penalty for parameters, row weights, odd predictions."""

from itertools import chain, combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr.estimators.search.stacking import stacking_weights

N = 40


def _problem(T=1, K=4, weighted=False, seed=0):
    """Return the predictions of K candidates, the targets, the row weights, and the candidates' parameter counts."""
    rng = np.random.default_rng([seed, T, K])
    Y = rng.normal(size=(N, T)) * [1.0, 20.0, 0.1][:T]
    predictions = [Y * rng.uniform(0.5, 1.2) + Y.std(axis=0) * rng.normal(size=(N, T)) for _ in range(K)]
    w = rng.uniform(0.2, 3.0, size=N) if weighted else np.ones(N)
    return predictions, Y, w, rng.integers(1, 12, size=K)


def _objective(weights, predictions, Y, w, n_parameters):
    """Return the objective, computed by loops.

    Each target is divided by its standard deviation, and row i counts w_i times. The penalty of candidate k is
    c s^2 p_k / n times its weight, with c = 6. p_k is its number of parameters, and s^2 is the smallest error of a
    candidate.
    """
    n, variance = sum(w), [sum(w * y * y) / sum(w) for y in Y.T]

    def error(F):
        return sum(sum(w * (Y[:, t] - F[:, t]) ** 2) / n / variance[t] for t in range(Y.shape[1]))

    total = sum(weight * F for weight, F in zip(weights, predictions, strict=True))
    price = sum(weight * p for weight, p in zip(weights, n_parameters, strict=True)) / n
    return error(total) + 6.0 * min(error(F) for F in predictions) * price


def _oracle(predictions, Y, w, n_parameters):
    """Return the best weights by trying each set of positive weights.

    The objective is quadratic, so its gradient and its Hessian for a set of candidates are exact finite differences.
    Candidates with weights below 0.01 are removed, and the weights of the other candidates are computed again.
    """

    def value(weights):
        return _objective(weights, predictions, Y, w, n_parameters)

    def best_among(allowed):
        best = np.zeros(len(predictions))
        for some in chain.from_iterable(combinations(allowed, size) for size in range(1, len(allowed) + 1)):
            unit = np.eye(len(predictions))[list(some)]
            at, zero = [value(e) for e in unit], value(0.0 * unit[0])
            hessian = np.array([[value(e + f) for f in unit] for e in unit]) - np.add.outer(at, at) + zero
            slope = np.array(at) - zero - hessian.diagonal() / 2.0
            found = unit.T @ np.linalg.solve(hessian, -slope)
            if np.all(found >= 0.0) and value(found) < value(best):
                best = found
        return best

    allowed = range(len(predictions))
    while True:
        best = best_among(allowed)
        kept = [k for k in allowed if best[k] >= 0.01]
        if not kept or len(kept) == len(allowed):
            return best
        allowed = kept


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_weights_match_the_oracle(T, weighted, seed):
    problem = _problem(T, weighted=weighted, seed=seed)
    found, expected = stacking_weights(*problem), _oracle(*problem)
    assert_allclose(found, expected, atol=1e-7)
    assert np.any(expected > 0.1)
    assert_array_equal(found == 0.0, expected == 0.0)


def test_small_weights_are_set_to_zero_and_the_others_are_computed_again():
    """Test three orthogonal predictions, so that each weight is the best multiple of one prediction."""
    F = np.linalg.qr(np.random.default_rng(0).normal(size=(N, 3)))[0]
    Y = F @ [[1.0], [0.5], [0.008]]
    predictions = [F[:, [k]] for k in range(3)]
    found = stacking_weights(predictions, Y, np.ones(N), np.zeros(3))
    assert_allclose(found, [1.0, 0.5, 0.0], atol=1e-8)
    # If all weights are small, they are kept.
    assert_allclose(stacking_weights(predictions[2:], Y, np.ones(N), np.zeros(1)), [0.008], rtol=1e-6)


def test_whole_weights_are_repeated_rows():
    predictions, Y, _, n_parameters = _problem(2)
    w = np.random.default_rng(1).integers(1, 4, size=N)
    repeated = stacking_weights(
        [np.repeat(F, w, axis=0) for F in predictions], np.repeat(Y, w, axis=0), np.ones(w.sum()), n_parameters
    )
    assert_allclose(stacking_weights(predictions, Y, w, n_parameters), repeated, atol=1e-9)


def test_rows_of_weight_zero_have_no_influence():
    predictions, Y, w, n_parameters = _problem(weighted=True)
    w[:5] = 0.0
    without = stacking_weights([F[5:] for F in predictions], Y[5:], w[5:], n_parameters)
    assert_allclose(stacking_weights(predictions, Y, w, n_parameters), without, atol=1e-9)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_of_two_equal_predictions_the_one_with_fewer_parameters_gets_the_weight(order):
    predictions, Y, w, _ = _problem(K=1)
    found = stacking_weights(predictions * 2, Y, w, np.array([3, 5])[order])
    assert found[order.index(1)] == 0.0
    assert_allclose(found[order.index(0)], stacking_weights(predictions, Y, w, np.array([3]))[0], rtol=1e-6)


def test_more_parameters_lower_the_weight():
    """Test the formula for one candidate: ``w = max(0, (y'f - 3 s^2 p) / f'f)``, with s^2 its mean squared error."""
    (F,), Y, w, _ = _problem(K=1)
    s2 = np.mean((Y - F) ** 2)
    weights = [stacking_weights([F], Y, w, np.array([p]))[0] for p in (0, 2, 4, 1_000)]
    assert_allclose(weights, [max(0.0, np.sum(F * Y) - 3.0 * s2 * p) / np.sum(F * F) for p in (0, 2, 4, 1_000)])
    assert weights[0] > weights[1] > weights[2] > weights[3] == 0.0


def test_the_price_vanishes_with_many_rows():
    """Test that a full map with the better predictions gets the weight if there are enough rows, and not before."""
    rng = np.random.default_rng(0)
    y, good, bad = rng.normal(size=(3, 20_000))

    def share(n):
        predictions = [(y + 0.50 * good)[:n, None], (y + 0.55 * bad)[:n, None]]
        weights = stacking_weights(predictions, y[:n, None], np.ones(n), np.array([200, 2]))
        return weights[0] / weights.sum()

    assert share(200) == 0.0
    assert share(20_000) > 0.5


def test_collinear_predictions():
    """Test that the weighted sum of collinear predictions is the best one, although its weights are not unique."""
    (F, G), Y, w, _ = _problem(K=2)
    predictions = [F, G, F + G, 2.0 * F]
    found = stacking_weights(predictions, Y, w, np.zeros(4))
    combined = sum(weight * one for weight, one in zip(found, predictions, strict=True))
    best = stacking_weights([F, G], Y, w, np.zeros(2)) @ np.stack([F[:, 0], G[:, 0]])
    assert np.all(found >= 0.0)
    assert_allclose(combined[:, 0], best, atol=1e-4 * np.abs(best).max())


def test_constant_targets_have_no_influence():
    predictions, Y, w, n_parameters = _problem()
    wide = [np.hstack([F, np.ones((N, 1))]) for F in predictions]
    found = stacking_weights(wide, np.hstack([Y, np.zeros((N, 1))]), w, n_parameters)
    assert_allclose(found, stacking_weights(predictions, Y, w, n_parameters), atol=1e-12)
    assert_array_equal(stacking_weights(predictions, 0.0 * Y, w, n_parameters), np.zeros(4))


def test_predictions_of_zero_get_no_weight():
    predictions, Y, w, n_parameters = _problem()
    found = stacking_weights([0.0 * Y, *predictions], Y, w, np.array([1, *n_parameters]))
    assert found[0] == 0.0
    assert_allclose(found[1:], stacking_weights(predictions, Y, w, n_parameters), atol=1e-7)
    assert_array_equal(stacking_weights([0.0 * Y, 0.0 * Y], Y, w, np.ones(2)), np.zeros(2))


def test_predictions_that_point_away_from_the_target_get_no_weight():
    Y = _problem()[1]
    assert_array_equal(stacking_weights([-Y, -2.0 * Y], Y, np.ones(N), np.ones(2)), np.zeros(2))


@pytest.mark.parametrize("factor", [1e-150, 1e-6, 1e6, 1e150])
def test_the_units_of_the_targets_do_not_matter(factor):
    predictions, Y, w, n_parameters = _problem(weighted=True)
    scaled = stacking_weights([factor * F for F in predictions], factor * Y, w, n_parameters)
    assert_allclose(scaled, stacking_weights(predictions, Y, w, n_parameters), rtol=1e-9, atol=1e-12)
