"""The scores of a benchmark, compared with scikit-learn and with naive implementations."""

import numpy as np
import pytest
import sklearn.metrics

from hkrr.bench.scores import accuracy, calibration_error, constant_error, log_loss, r2, scores_of

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 200)
P = RNG.dirichlet([0.3, 0.5, 0.7], 200)


def naive_calibration_error(y, P):
    """Return the expected calibration error with 15 bins (0, 1/15], (1/15, 2/15], ..., (14/15, 1]."""
    total = 0.0
    for k in range(15):
        rows = [i for i in range(len(y)) if k / 15 < max(P[i]) <= (k + 1) / 15]
        if rows:
            right = np.mean([np.argmax(P[i]) == y[i] for i in rows])
            total += len(rows) / len(y) * abs(right - np.mean([max(P[i]) for i in rows]))
    return total


def test_scores_of_classes():
    assert log_loss(Y, P) == pytest.approx(np.mean([-np.log(P[i, Y[i]]) for i in range(200)]))
    assert log_loss(Y, P) == pytest.approx(sklearn.metrics.log_loss(Y, P))
    assert accuracy(Y, P) == sklearn.metrics.accuracy_score(Y, P.argmax(axis=1))
    assert calibration_error(Y, P) == pytest.approx(naive_calibration_error(Y, P))


def test_a_probability_of_zero_counts_as_1e_15():
    assert log_loss(np.array([0]), np.array([[0.0, 1.0]])) == pytest.approx(-np.log(1e-15))


def test_a_perfect_classifier_is_calibrated():
    assert calibration_error(Y, np.eye(3)[Y]) == 0.0
    assert calibration_error(Y, np.eye(3)[(Y + 1) % 3]) == 1.0


def test_r2():
    y, predicted = RNG.standard_normal((2, 50))
    assert r2(y, predicted) == pytest.approx(sklearn.metrics.r2_score(y, predicted))


def test_errors_of_the_constant_prediction():
    y, y_test = RNG.standard_normal(30), RNG.standard_normal(20)
    expected = np.sqrt(1 - sklearn.metrics.r2_score(y_test, np.full(20, y.mean())))
    assert constant_error(y, y_test, 0) == pytest.approx(expected)
    frequencies = [np.mean(Y[:150] == k) for k in range(3)]
    expected = sklearn.metrics.log_loss(Y[150:], [frequencies] * 50)
    assert constant_error(Y[:150], Y[150:], 3) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (P[:, :2], r"of shape \(200, 3\), got shape \(200, 2\)"),
        (np.where(P > 0.5, np.nan, P), "not finite"),
        (2 * P, "with the sum 1 in each row"),
        (P - 0.1, "not negative"),
    ],
)
def test_invalid_probabilities(predicted, message):
    with pytest.raises(ValueError, match=message):
        scores_of(Y, predicted, 3)
