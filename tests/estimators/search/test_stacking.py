"""Tests of the weights of an ensemble: a naive oracle, the penalty for parameters, row weights, odd predictions."""

from itertools import chain, combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from hkrr.estimators.search.stacking import CROSS_FIT_PRICE, PRICE, stacking_weights

N = 40


def _problem(T=1, K=4, weighted=False, seed=0):
    """Return the predictions of K candidates for T targets, the targets, the row weights, and the parameter counts.

    The parameter counts are the numbers of parameters of the candidates' maps.
    """
    rng = np.random.default_rng([seed, T, K])
    Y = rng.normal(size=(N, T)) * [1.0, 20.0, 0.1][:T]
    predictions = [Y * rng.uniform(0.5, 1.2) + Y.std(axis=0) * rng.normal(size=(N, T)) for _ in range(K)]
    w = rng.uniform(0.2, 3.0, size=N) if weighted else np.ones(N)
    return predictions, Y, w, rng.integers(1, 12, size=K)


def _objective(weights, predictions, Y, w, n_parameters, price=PRICE):
    """Return the objective, computed by loops.

    Each target is divided by its standard deviation, and row i counts w_i times. The penalty of candidate k is
    c s^2 p_k / n times its weight, where c is the price and n the sum of all w_i. p_k is its number of parameters, and
    s^2 is the smallest error of a candidate or of predicting zero. If the sum of the weights is S, the last term is
    s^2 (1 - S)^2 / (n t^2), with t = 0.2.
    """
    n, variance = sum(w), [sum(w * y * y) / sum(w) for y in Y.T]

    def error(F):
        return sum(sum(w * (Y[:, t] - F[:, t]) ** 2) / n / variance[t] for t in range(Y.shape[1]))

    total = sum(weight * F for weight, F in zip(weights, predictions, strict=True))
    n_used = sum(weight * p for weight, p in zip(weights, n_parameters, strict=True))
    least = min(error(F) for F in [0.0 * Y, *predictions])
    return error(total) + price * least * n_used / n + least * (1.0 - sum(weights)) ** 2 / (n * 0.2**2)


def _oracle(predictions, Y, w, n_parameters, price=PRICE):
    """Return the best weights by trying each set of positive weights.

    The objective is quadratic, so its gradient and its Hessian for a set of candidates are exact finite differences.
    Candidates with weights below 0.01 are removed, and the weights of the other candidates are computed again.
    """

    def value(weights):
        return _objective(weights, predictions, Y, w, n_parameters, price)

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


@pytest.mark.parametrize("price", [0.0, CROSS_FIT_PRICE, PRICE, 10.0])
@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("K", [2, 3, 4])
def test_no_other_weights_have_a_lower_objective(price, T, K):
    """Test that the weights agree with a numerical minimization, and that random changes do not lower the objective.

    If a weight would be below 0.01, the other weights are computed without this candidate. Only these other weights are
    therefore compared and changed.
    """
    rng, problem = np.random.default_rng(K), _problem(T, K, weighted=True, seed=7)
    found = stacking_weights(*problem, price)
    kept = np.flatnonzero(found)

    def value(some):
        weights = np.zeros(K)
        weights[kept] = some
        return _objective(weights, *problem, price)

    start = np.full(len(kept), 1.0 / len(kept))
    best = minimize(value, start, bounds=[(0.0, None)] * len(kept), options={"ftol": 1e-15, "gtol": 1e-10})
    assert_allclose(found[kept], best.x, atol=1e-5)
    for size in (0.1, 1e-3):
        for _ in range(20):
            other = np.maximum(found[kept] + size * rng.normal(size=len(kept)), 0.0)
            assert value(other) >= value(found[kept]) - 1e-12


@pytest.mark.parametrize("price", [0.0, 1.0, 20.0])
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (2, True)])
def test_the_price_of_a_parameter(price, T, weighted):
    problem = _problem(T, weighted=weighted, seed=11)
    found = stacking_weights(*problem, price)
    assert_allclose(found, _oracle(*problem, price), atol=1e-7)
    assert np.sum(found > 0.0) >= 2


def test_the_default_price_is_that_of_leave_one_out_predictions():
    problem = _problem()
    assert (PRICE, CROSS_FIT_PRICE) == (3.0, 1.0)
    assert_array_equal(stacking_weights(*problem), stacking_weights(*problem, PRICE))
    assert not np.allclose(stacking_weights(*problem), stacking_weights(*problem, CROSS_FIT_PRICE), atol=1e-3)


def test_small_weights_are_set_to_zero_and_the_others_are_computed_again():
    """Test that a weight of 0.008 is set to zero, and that the two other weights are computed again.

    The three predictions are orthogonal, with the best weights 0.6, 0.392 and 0.008, whose sum is 1. Without the third
    candidate, each of the other two weights grows by d, where ``d = P (0.008 - 2 d)``. P is the weight of the prior of
    the sum: the smallest squared error of a candidate, divided by n t^2, for n rows and t = 0.2.
    """
    F = np.linalg.qr(np.random.default_rng(0).normal(size=(N, 3)))[0]
    Y = F @ [[0.6], [0.392], [0.008]]
    predictions = [F[:, [k]] for k in range(3)]
    P = np.sum((Y - predictions[0]) ** 2) / (N * 0.2**2)
    d = 0.008 * P / (1.0 + 2.0 * P)
    assert d > 1e-3
    found = stacking_weights(predictions, Y, np.ones(N), np.zeros(3))
    assert_allclose(found, [0.6 + d, 0.392 + d, 0.0], atol=1e-8)


def test_if_all_weights_are_small_they_are_kept():
    """Test that a weight of 0.005 is kept if there is only one candidate.

    The number of parameters is chosen such that the best weight is 0.005.
    """
    (F,), Y, w, _ = _problem(K=1)
    s2 = np.mean((Y - F) ** 2)
    n_parameters = (np.sum(F * Y) + s2 / 0.04 - 0.005 * (np.sum(F * F) + s2 / 0.04)) / (PRICE / 2.0 * s2)
    assert_allclose(stacking_weights([F], Y, w, np.array([n_parameters])), [0.005], rtol=1e-6)


# ------------------------------------------------------------------------------------------- the sum of the weights


def _weak(n, size, seed=0):
    """Return two predictions of standard deviation `size`, and targets of standard deviation 1 unrelated to them."""
    rng = np.random.default_rng(seed)
    return [size * rng.normal(size=(n, 1)) for _ in range(2)], rng.normal(size=(n, 1)), np.ones(n), np.zeros(2)


@pytest.mark.parametrize("seed", range(5))
def test_with_a_weak_signal_the_sum_of_the_weights_is_near_one(seed):
    """Test that the prior keeps the sum of the weights near 1 if the rows hardly determine this sum.

    The predictions are small and unrelated to the targets. Without the prior, the sums would be far from 1, such as 0
    for predictions that point away from the targets.
    """
    (F, _), Y, w, _ = problem = _weak(40, 0.05, seed)
    assert stacking_weights(*problem).sum() == pytest.approx(1.0, abs=0.1)
    for one in (F, -F):
        assert stacking_weights([one], Y, w, np.zeros(1)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("truth", [0.4, 1.0, 1.7])
def test_with_a_strong_signal_the_prior_has_no_influence(truth):
    rng = np.random.default_rng(0)
    F = rng.normal(size=(400, 1))
    Y = truth * F + 0.1 * rng.normal(size=(400, 1))
    found = stacking_weights([F], Y, np.ones(400), np.zeros(1))
    assert found == pytest.approx(np.sum(F * Y) / np.sum(F * F), abs=0.03)


def test_the_prior_vanishes_with_many_rows():
    """Test that the weight is near 1 with few rows, and near the best weight with many rows.

    The predictions are five times too large, so the best weight is 0.2.
    """
    rng = np.random.default_rng(1)
    F, noise = rng.normal(size=(2, 40_000, 1))
    Y = 0.2 * 0.3 * F + noise

    def weight(n):
        return stacking_weights([0.3 * F[:n]], Y[:n], np.ones(n), np.zeros(1))[0]

    assert weight(20) > 0.8
    assert weight(40_000) == pytest.approx(0.2, abs=0.05)


def test_the_prior_of_the_sum_for_one_candidate():
    """Test that one candidate has the weight ``w = (y'f + s^2 / t^2 - c s^2 p / 2) / (f'f + s^2 / t^2)``.

    Here f are the predictions, y the targets, s^2 the mean squared error of f, p = 3 the number of parameters, c the
    price of a parameter, and t = 0.2 the standard deviation of the prior. f and y are multiplied by the same sizes.
    """
    (F, _), Y, w, _ = _weak(40, 0.3)
    for size in (1.0, 5.0, 100.0):
        s2 = np.mean((size * (Y - F)) ** 2)
        top = size**2 * np.sum(F * Y) + s2 / 0.04 - CROSS_FIT_PRICE * s2 * 3 / 2.0
        expected = top / (size**2 * np.sum(F * F) + s2 / 0.04)
        found = stacking_weights([size * F], size * Y, w, np.array([3]), CROSS_FIT_PRICE)
        assert_allclose(found, [expected], rtol=1e-8)


# ------------------------------------------------------------------------------------------------ rows and parameters


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
    """Test that one candidate has the weight ``w = max(0, (y'f + 25 s^2 - c s^2 p / 2) / (f'f + 25 s^2))``.

    Here f are the predictions, y the targets, s^2 the mean squared error of f, p the number of parameters, and c the
    price of a parameter. The terms 25 s^2 come from the prior of the sum of the weights.
    """
    (F,), Y, w, _ = _problem(K=1)
    s2 = np.mean((Y - F) ** 2)
    weights = [stacking_weights([F], Y, w, np.array([p]))[0] for p in (0, 2, 4, 1_000)]
    top = np.array([np.sum(F * Y) + 25.0 * s2 - PRICE / 2.0 * s2 * p for p in (0, 2, 4, 1_000)])
    expected = top / (np.sum(F * F) + 25.0 * s2)
    assert_allclose(weights, np.maximum(0.0, expected))
    assert weights[0] > weights[1] > weights[2] > weights[3] == 0.0


def test_the_price_vanishes_with_many_rows():
    """Test that the better of two predictions, whose map has 200 parameters, gets weight only if there are many rows.

    The map of the other predictions has two parameters.
    """
    rng = np.random.default_rng(0)
    y, good, bad = rng.normal(size=(3, 20_000))

    def share(n):
        predictions = [(y + 0.50 * good)[:n, None], (y + 0.55 * bad)[:n, None]]
        weights = stacking_weights(predictions, y[:n, None], np.ones(n), np.array([200, 2]))
        return weights[0] / weights.sum()

    assert share(200) == 0.0
    assert share(20_000) > 0.5


def test_collinear_predictions():
    """Test that the weighted sum of collinear predictions is the best one, although its weights are not unique.

    The third and the fourth prediction are combinations of the first two, with factors that sum to 1, so they do not
    change the prior of the sum of the weights. They are no better than the first two.
    """
    (F, G), Y, w, _ = _problem(K=2)
    predictions = [F, G, F, 1.5 * F - 0.5 * G]
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


def test_predictions_of_zero_are_the_mean_of_the_targets():
    """Test an additional candidate that predicts zero, which is the mean of the targets.

    Its weight only changes the sum S of the weights. The other weights are therefore not influenced by the prior of the
    sum. If all predictions are zero, ``1 - S = c p t^2 / 2``, where c is the price of a parameter, p = 1 the number
    of parameters of each candidate, and t = 0.2 the standard deviation of the prior.
    """
    predictions, Y, w, n_parameters = _problem()
    problem = [0.0 * Y, *predictions], Y, w, np.array([1, *n_parameters])
    assert_allclose(stacking_weights(*problem), _oracle(*problem), atol=1e-7)
    found = stacking_weights([0.0 * Y, 0.0 * Y], Y, w, np.ones(2))
    assert found.sum() == pytest.approx(1.0 - PRICE * 0.04 / 2.0, abs=1e-6)


def test_predictions_that_point_away_from_the_target():
    """Test that predictions with the opposite sign of the targets get no weight if there are many rows.

    With few rows, the prior of the sum of the weights may give them a weight, as the oracle does.
    """
    Y = _problem()[1]
    problem = [-Y, -2.0 * Y], Y, np.ones(N), np.ones(2)
    assert_allclose(stacking_weights(*problem), _oracle(*problem), atol=1e-7)
    many = np.tile(Y, (100, 1))
    assert_array_equal(stacking_weights([-many, -2.0 * many], many, np.ones(100 * N), np.ones(2)), np.zeros(2))


@pytest.mark.parametrize("factor", [1e-150, 1e-6, 1e6, 1e150])
def test_the_units_of_the_targets_do_not_matter(factor):
    predictions, Y, w, n_parameters = _problem(weighted=True)
    scaled = stacking_weights([factor * F for F in predictions], factor * Y, w, n_parameters)
    assert_allclose(scaled, stacking_weights(predictions, Y, w, n_parameters), rtol=1e-9, atol=1e-12)
