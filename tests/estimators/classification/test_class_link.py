"""Tests of the link from scores to probabilities: a naive oracle, its gradient, exact solutions, and odd scores."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from hkrr.estimators.classification import class_link
from hkrr.estimators.classification.class_link import LOG_LOSS, PRICE, SOFTNESS, ClassLink, fit_link, soft_log
from hkrr.estimators.search.search_and_refit import LeftOutPredictions

both_scales = pytest.mark.parametrize("of_logarithms", [True, False], ids=["logarithms", "identity"])
# The oracle takes about 0.1 s for two models of two classes, and more time for larger problems.
PROBLEMS = [
    *((2, 1, 0), (2, 2, 0), (2, 2, 1), (3, 1, 0)),
    *(pytest.param(K, M, 0, marks=pytest.mark.thorough) for K, M in [(2, 3), (3, 2), (3, 3), (5, 2), (5, 3)]),
    *(pytest.param(2, 2, seed, marks=pytest.mark.thorough) for seed in range(2, 12)),
]


def _problem(K, M, seed=0, n=16, price=1.0, weighted=True, of_logarithms=True):
    """Return the left-out predictions of M models for n rows of K classes. The models differ in their noise.

    The first K rows belong to the K classes. The predictions are regressions on indicators, or logarithms of
    probabilities if `of_logarithms` is False.
    """
    rng = np.random.default_rng([seed, K, M])
    index = np.append(np.arange(K), rng.integers(K, size=n - K))
    w = rng.uniform(0.3, 2.0, n) if weighted else np.ones(n)
    Y = np.eye(K)[index]
    Y = Y - np.average(Y, axis=0, weights=w)
    predictions = [(0.6 - 0.1 * m) * Y + (0.25 + 0.1 * m) * rng.normal(size=Y.shape) for m in range(M)]
    if not of_logarithms:
        predictions = [3.0 * one for one in predictions]
    return LeftOutPredictions(predictions, Y, w, rng.uniform(0.0, 3.0, M), price)


def _g(left_out, of_logarithms):
    """Return g(f), as defined in `class_link`, by model, row and class, and the class of each row, as lists."""
    classes = [int(np.argmax(row)) for row in left_out.targets]
    frequencies = [float(classes[0] == j) - left_out.targets[0, j] for j in range(left_out.targets.shape[1])]
    g = []
    for one in left_out.predictions:
        g.append([])
        for row in one.tolist():
            if of_logarithms:
                u = [(f + p) / 0.2 for f, p in zip(row, frequencies, strict=True)]
                g[-1].append([math.log(math.log1p(math.exp(x))) for x in u])
            else:
                g[-1].append(row)
    return g, classes


def _objective(w, b, g, classes, left_out):
    """Return the objective of the module docstring of `class_link`, computed by loops."""
    W, K = math.fsum(left_out.row_weight), len(b)
    share = 1.0 / (W + 2.0)
    frequencies = [
        math.fsum(r for r, k in zip(left_out.row_weight, classes, strict=True) if k == j) / W for j in range(K)
    ]
    value = 0.0
    for i, k in enumerate(classes):
        scores = [sum(w[m] * g[m][i][j] for m in range(len(w))) + b[j] for j in range(K)]
        top = max(scores)
        total = top + math.log(sum(math.exp(s - top) for s in scores))
        for j in range(K):
            target = (1.0 - share) * (j == k) + share * frequencies[j]
            value -= left_out.row_weight[i] / W * target * (scores[j] - total)
    if sum(w) > 0.0:
        value += left_out.price * sum(x * p for x, p in zip(w, left_out.n_parameters, strict=True)) / (W * sum(w))
    return value


def _oracle(left_out, of_logarithms=True):
    """Return the weights, the offsets and the objective that a derivative-free method finds.

    The method starts from each model alone, from each pair of models, and from equal weights. Then it restarts from the
    best of its results. Models whose share of the weights is below 1% are removed.
    """
    g, classes = _g(left_out, of_logarithms)
    M, K = len(g), left_out.targets.shape[1]

    def search(kept):
        def spread(some):
            # Weights are absolute values.
            weights = np.zeros(M)
            weights[kept] = np.abs(some)
            return weights

        def value(theta):
            # The last offset is zero, because a constant in all offsets has no effect.
            return _objective(spread(theta[: len(kept)]), [*theta[len(kept) :], 0.0], g, classes, left_out)

        def from_start(start, tol):
            options = {"xatol": tol, "fatol": tol, "maxiter": 20_000, "maxfev": 20_000, "adaptive": True}
            return minimize(value, start, method="Nelder-Mead", options=options)

        unit = np.eye(len(kept))
        starts = [*unit, np.mean(unit, axis=0), *(0.8 * a + 0.2 * b for a in unit for b in unit if a is not b)]
        best = min((from_start(np.append(start, np.zeros(K - 1)), 1e-4) for start in starts), key=lambda end: end.fun)
        for _ in range(2):
            best = from_start(best.x, 1e-10)
        return spread(best.x[: len(kept)]), np.append(best.x[len(kept) :], 0.0), best.fun

    kept = list(range(M))
    while True:
        weights, offsets, least = search(kept)
        large = [m for m in kept if weights[m] >= 0.01 * np.sum(weights)]
        if large == kept:
            return weights, offsets, least
        kept = large


def _value(left_out, link):
    """Return the objective of a link, computed by loops."""
    return _objective(link.weights, link.offsets, *_g(left_out, link.of_logarithms), left_out)


def _centered(link):
    return link.offsets - np.mean(link.offsets)


# ------------------------------------------------------------------------------------------------ oracle, gradient


@both_scales
@pytest.mark.parametrize(("K", "M", "seed"), PROBLEMS)
def test_the_link_is_that_of_the_oracle(K, M, seed, of_logarithms):
    left_out = _problem(K, M, seed, of_logarithms=of_logarithms)
    found = fit_link(left_out, of_logarithms)
    weights, offsets, least = _oracle(left_out, of_logarithms)
    assert_allclose(_value(left_out, found.link), least, atol=1e-6)
    assert_array_equal(found.link.weights == 0.0, weights < 1e-6)
    assert_allclose(found.link.weights, weights, atol=0.02)
    assert_allclose(_centered(found.link), offsets - np.mean(offsets), atol=0.02)
    oracle = ClassLink(weights, offsets, of_logarithms)
    frequencies = np.eye(K)[0] - left_out.targets[0]  # the first row belongs to the first class
    scores = [one + frequencies if of_logarithms else one for one in left_out.predictions]
    assert_allclose(found.log_loss, _log_loss(oracle.probabilities(scores), left_out), atol=1e-3)


@both_scales
@pytest.mark.parametrize(("K", "M"), [(2, 1), (2, 3), (5, 2)])
def test_the_gradient_against_finite_differences(K, M, of_logarithms, monkeypatch):
    """Test the gradient that the minimization uses, in random directions at random points."""
    objectives, ends = [], []

    def record(objective, *arguments, **options):
        end = minimize(objective, *arguments, **options)
        objectives.append(objective)
        ends.append(end)
        return end

    monkeypatch.setattr(class_link, "minimize", record)
    left_out = _problem(K, M, price=3.0, of_logarithms=of_logarithms)
    link = fit_link(left_out, of_logarithms).link
    rng = np.random.default_rng(0)
    for _ in range(5):
        theta, direction = np.append(rng.uniform(0.2, 2.0, M), rng.normal(size=K)), rng.normal(size=M + K)
        high, low = (objectives[0](theta + h * direction)[0] for h in (1e-5, -1e-5))
        assert_allclose((high - low) / 2e-5, objectives[0](theta)[1] @ direction, rtol=1e-6, atol=1e-8)
    # At zero weights, the price has no gradient, because it depends on the ratios of the weights only.
    assert np.all(np.isfinite(objectives[0](np.zeros(M + K))[1]))
    if np.all(link.weights > 0.0):
        assert_allclose(min(end.fun for end in ends), _value(left_out, link), rtol=1e-12)


# ------------------------------------------------------------------------------------------------ exact solutions


def _planted(weights, offsets, n=40, of_logarithms=True, seed=0):
    """Return left-out predictions for which the best link has the given weights and offsets.

    Each point is repeated as one row for each class. The weight of a row is the probability of its class, times 1e7.
    With such large weights, the smoothing has no influence.
    """
    rng, K = np.random.default_rng([seed, len(weights), len(offsets)]), len(offsets)
    scores = [rng.uniform(-0.2, 1.0, (n, K)) if of_logarithms else rng.normal(size=(n, K)) for _ in weights]
    p = ClassLink(np.array(weights), np.array(offsets), of_logarithms).probabilities(scores)
    index = np.tile(np.arange(K), n)
    scores, frequencies = [np.repeat(one, K, axis=0) for one in scores], np.mean(p, axis=0)
    predictions = [one - frequencies if of_logarithms else one for one in scores]
    return LeftOutPredictions(predictions, np.eye(K)[index] - frequencies, 1e7 * p.ravel(), np.zeros(len(weights)), 1.0)


@both_scales
@pytest.mark.parametrize("weights", [[1.0], [0.4], [1.0, 0.6], [0.3, 1.2, 0.5]], ids=str)
@pytest.mark.parametrize("K", [2, 5])
def test_planted_weights_are_recovered(weights, K, of_logarithms):
    offsets = np.linspace(-1.0, 1.0, K)
    found = fit_link(_planted(weights, offsets, of_logarithms=of_logarithms), of_logarithms)
    assert_allclose(found.link.weights, weights, atol=2e-3)
    assert_allclose(_centered(found.link), offsets, atol=2e-3)


def test_models_with_a_small_share_are_removed():
    """Test that a model with 0.5% of the sum of the weights gets no weight, and that a model with 2% keeps its weight.

    The weights of the other models are computed again without the removed model.
    """
    small, kept = (_planted([1.0, 0.5, weight], [0.0, 0.3], n=400) for weight in (0.0075, 0.03))
    assert_allclose(fit_link(kept).link.weights, [1.0, 0.5, 0.03], atol=5e-3)
    found = fit_link(small)
    without = small._replace(predictions=small.predictions[:2], n_parameters=np.zeros(2))
    assert_array_equal(found.link.weights, np.append(fit_link(without).link.weights, 0.0))


@both_scales
@pytest.mark.parametrize("K", [2, 5])
def test_separable_classes_have_the_smoothed_probabilities(K, of_logarithms):
    """Test that the weights are finite if the scores are the indicators of the classes.

    With n rows in each of K classes, the predicted probability of the class of a row is its smoothed target,
    ``1 - (1 - 1 / K) / (n K + 2)``.
    """
    Y = np.eye(K)[np.arange(20 * K) % K]
    scores = Y if of_logarithms else 3.0 * Y
    predictions = scores - 1.0 / K if of_logarithms else scores
    left_out = LeftOutPredictions([predictions], Y - 1.0 / K, np.ones(20 * K), np.zeros(1), 1.0)
    found = fit_link(left_out, of_logarithms)
    assert 0.5 < found.link.weights[0] < 10.0
    own = 1.0 - (1.0 - 1.0 / K) / (20 * K + 2)
    assert_allclose(np.max(found.link.probabilities([scores]), axis=1), own, atol=1e-4)
    assert_allclose(found.log_loss, -math.log(own), atol=1e-4)
    assert found.accuracy == 1.0


@pytest.mark.parametrize("K", [2, 5])
def test_without_a_useful_model_the_probabilities_are_the_frequencies(K):
    left_out = _problem(K, 2)
    scores = [-5.0 * left_out.targets, -left_out.targets]
    found = fit_link(left_out._replace(predictions=scores))
    frequencies = np.eye(K)[0] - left_out.targets[0]
    assert_array_equal(found.link.weights, 0.0)
    assert_allclose(found.link.probabilities(scores), np.tile(frequencies, (len(scores[0]), 1)), atol=1e-3)
    assert (found.price, found.accuracy) == (0.0, pytest.approx(np.max(frequencies)))


# ------------------------------------------------------------------------------------------------ rows and classes


def _log_loss(p, left_out):
    """Return the weighted log loss, by a loop."""
    pairs = zip(left_out.row_weight, p, np.argmax(left_out.targets, axis=1), strict=True)
    return -sum(w * math.log(row[k]) for w, row, k in pairs) / sum(left_out.row_weight)


@pytest.mark.parametrize(("K", "M"), [(2, 1), (2, 2), (5, 2)])
def test_the_reported_quality(K, M):
    left_out = _problem(K, M, n=40)
    found = fit_link(left_out)
    p = found.link.probabilities([one + np.eye(K)[0] - left_out.targets[0] for one in left_out.predictions])
    w, index = left_out.row_weight, np.argmax(left_out.targets, axis=1)
    assert_allclose(found.log_loss, _log_loss(p, left_out), rtol=1e-12)
    assert_allclose(found.accuracy, np.sum(w[np.argmax(p, axis=1) == index]) / np.sum(w), rtol=1e-12)
    n_parameters = np.average(left_out.n_parameters, weights=found.link.weights)
    assert_allclose(found.price, n_parameters / np.sum(w), rtol=1e-12)
    assert found.expected_log_loss == found.log_loss + found.price
    assert 0.5 < found.accuracy < 1.0


@both_scales
@pytest.mark.parametrize("K", [2, 5])
def test_whole_weights_are_repeated_rows(K, of_logarithms):
    left_out = _problem(K, 2, weighted=False, of_logarithms=of_logarithms)
    times = 1 + np.arange(16) % 3
    once, n = left_out._replace(row_weight=times.astype(float)), int(np.sum(times))
    every = [np.repeat(one, times, axis=0) for one in left_out.predictions]
    again = left_out._replace(predictions=every, targets=np.repeat(left_out.targets, times, axis=0))
    found, expected = (fit_link(one, of_logarithms) for one in (once, again._replace(row_weight=np.ones(n))))
    assert_allclose(found.link.weights, expected.link.weights, rtol=1e-3)
    assert_allclose(found.link.offsets, expected.link.offsets, atol=1e-3)
    assert found.log_loss == pytest.approx(expected.log_loss, rel=1e-4)
    assert not np.allclose(found.link.weights, fit_link(left_out, of_logarithms).link.weights, rtol=1e-2)


def test_rows_of_weight_zero_have_no_influence():
    left_out = _problem(3, 2, n=30)
    w = np.append(np.zeros(5), left_out.row_weight[5:])
    part = [one[5:] for one in left_out.predictions]
    without = left_out._replace(predictions=part, targets=left_out.targets[5:], row_weight=w[5:])
    found, expected = fit_link(left_out._replace(row_weight=w)), fit_link(without)
    assert_allclose(found.link.weights, expected.link.weights, rtol=1e-3)
    assert_allclose(found.link.offsets, expected.link.offsets, atol=1e-3)


@pytest.mark.parametrize("K", [2, 5])
def test_the_order_of_models_and_classes_does_not_matter(K):
    left_out, models, classes = _problem(K, 3, n=40), [2, 0, 1], np.roll(np.arange(K), 1)
    expected = fit_link(left_out)
    other = left_out._replace(
        predictions=[left_out.predictions[m][:, classes] for m in models],
        targets=left_out.targets[:, classes],
        n_parameters=left_out.n_parameters[models],
    )
    found = fit_link(other)
    assert np.sum(expected.link.weights > 0.0) > 1
    assert_allclose(found.link.weights, expected.link.weights[models], atol=5e-3)
    assert_allclose(_centered(found.link), _centered(expected.link)[classes], atol=5e-3)
    assert_allclose(found.log_loss, expected.log_loss, atol=1e-4)


@both_scales
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("n_present", [1, 2])
def test_classes_without_a_row_in_the_sample(n_classes, n_present, of_logarithms):
    """Test that classes without a left-out row get a small probability, and the other classes are fitted.

    If two classes are present, their log loss is that of a link of these two classes. The present classes are the last
    ones.
    """
    rng, absent = np.random.default_rng(0), n_classes - n_present
    index = np.append(np.arange(absent, n_classes), rng.integers(absent, n_classes, 38))[:40]
    frequencies = np.append(np.full(absent, 0.01), np.full(n_present, (1.0 - 0.01 * absent) / n_present))
    Y = np.eye(n_classes)[index] - frequencies
    predictions = [0.5 * Y + 0.3 * rng.normal(size=Y.shape)]
    left_out = LeftOutPredictions(predictions, Y, np.ones(len(Y)), np.zeros(1), 1.0)
    found = fit_link(left_out, of_logarithms)
    scores = [one + frequencies if of_logarithms else one for one in predictions]
    p = found.link.probabilities(scores)
    assert np.all(np.isfinite(found.link.weights))
    assert np.max(p[:, :absent], initial=0.0) < 0.01
    assert found.log_loss == pytest.approx(_log_loss(p, left_out), rel=1e-9)
    if n_present == 1:
        assert found.accuracy == 1.0
        assert found.log_loss < 0.05
    else:
        shift = 0.0 if of_logarithms else frequencies
        present = [(one + frequencies - shift)[:, absent:] - (0.5 if of_logarithms else 0.0) for one in predictions]
        pair = left_out._replace(predictions=present, targets=np.eye(2)[index - absent] - 0.5)
        assert found.log_loss == pytest.approx(fit_link(pair, of_logarithms).log_loss, abs=5e-3)


# ------------------------------------------------------------------------------------------------ the price


def _with_parameters(n_parameters, price=PRICE):
    """Return two models of two classes, with independent errors of similar size."""
    left_out, rng = _problem(2, 2, n=60), np.random.default_rng(1)
    predictions = [0.5 * left_out.targets + error * rng.normal(size=(60, 2)) for error in (0.35, 0.4)]
    return left_out._replace(predictions=predictions, n_parameters=np.array(n_parameters, float), price=price)


def test_a_model_with_many_parameters_is_removed():
    free = fit_link(_with_parameters([0, 0])).link.weights
    assert np.min(free) > 0.2 * np.sum(free)
    for order in ([0, 100], [100, 0]):
        found = fit_link(_with_parameters(order)).link.weights
        assert found[order.index(100)] == 0.0
        assert found[order.index(0)] > 0.0
    cheap = fit_link(_with_parameters([0, 1])).link.weights
    assert 0.0 < cheap[1] / np.sum(cheap) < free[1] / np.sum(free)
    assert_array_equal(fit_link(_with_parameters([0, 100], price=0.0)).link.weights, free)


def test_equal_numbers_of_parameters_do_not_change_the_weights():
    """Test that the price does not lower the sum of the weights, because it is a mean over the models."""
    free, priced = fit_link(_with_parameters([0, 0])), fit_link(_with_parameters([30, 30]))
    assert_allclose(priced.link.weights, free.link.weights, rtol=1e-3)
    assert_allclose(priced.price, 30.0 / np.sum(_with_parameters([0, 0]).row_weight), rtol=1e-12)


def test_the_weights_of_an_ensemble_of_classes():
    left_out = _problem(3, 2, n=30)
    assert_array_equal(LOG_LOSS.weights(*left_out), fit_link(left_out).link.weights)
    assert (LOG_LOSS.price, LOG_LOSS.nats_per_parameter, LOG_LOSS.of_classes) == (1.0, 1.0, True)


# ------------------------------------------------------------------------------------------------ odd scores

HUGE = [-1e300, -1e10, -50.0, -1.0, 0.0, 1.0, 50.0, 1e10, 1e300]


@both_scales
@pytest.mark.parametrize("K", [2, 5])
def test_probabilities_are_positive_and_sum_to_one(K, of_logarithms):
    rng = np.random.default_rng(K)
    scores = [rng.choice(HUGE, (500, K)), np.where(rng.uniform(size=(500, K)) < 0.5, 0.3, rng.choice(HUGE, (500, K)))]
    link = ClassLink(np.array([2.0, 0.0 if K == 2 else 1.0]), rng.normal(size=K), of_logarithms)
    p = link.probabilities(scores)
    assert_allclose(np.sum(p, axis=1), 1.0, rtol=1e-12)
    assert np.min(p) >= 1e-9 / (1.0 + K * 1e-9)
    assert np.max(p) < 1.0
    # The lower bound on probabilities does not change moderate differences of scores.
    moderate = [np.clip(one, 0.0, 1.0) for one in scores]
    logs = np.log(link.probabilities(moderate))
    expected = link.log_probabilities(moderate)
    assert_allclose(logs - logs[:, :1], expected - expected[:, :1], atol=1e-5)


@both_scales
@pytest.mark.parametrize("factor", [0.0, 1e-200, 1e-10, 1e10, 1e150])
def test_scores_of_any_size_give_a_finite_link(factor, of_logarithms):
    left_out = _problem(3, 2, n=30, of_logarithms=of_logarithms)
    predictions = [factor * one for one in left_out.predictions]
    found = fit_link(left_out._replace(predictions=predictions), of_logarithms)
    assert np.all(np.isfinite(found.link.weights))
    assert np.all(np.isfinite(found.link.offsets))
    assert found.log_loss < math.log(3.0)


def test_scores_of_zero_give_a_moderate_weight():
    """Test scores (logarithms of probabilities) that are all zero, so that the weight of the model has no influence."""
    scores = [np.zeros((16, 2))]
    found = fit_link(_problem(2, 1)._replace(predictions=scores), of_logarithms=False)
    assert 0.0 <= found.link.weights[0] <= 10.0
    assert found.log_loss < math.log(2.0)


# ------------------------------------------------------------------------------------------------ the soft logarithm


def test_soft_log_against_extended_precision():
    u = np.concatenate([np.linspace(-60.0, 60.0, 2001), 10.0 ** np.linspace(0.0, 300.0, 200), [-29.99, -30.0, -30.01]])
    exact = np.log(np.log1p(np.exp(np.minimum(u, 700.0).astype(np.longdouble))))
    exact = np.where(u > 600.0, np.log(np.maximum(u, 1.0)), exact)
    assert_allclose(soft_log(SOFTNESS * u), exact.astype(float), rtol=1e-12, atol=1e-12)


def test_asymptotes_of_soft_log():
    large, small = np.array([5.0, 50.0, 1e6, 1e300]), np.array([-5.0, -50.0, -1e6, -1e300])
    assert_allclose(soft_log(large), np.log(large / SOFTNESS), atol=1e-9)
    assert_allclose(soft_log(small), small / SOFTNESS, rtol=1e-9)
    f = np.linspace(-20.0, 20.0, 4001)
    assert np.all(np.diff(soft_log(f)) > 0.0)
    slopes = np.diff(soft_log(f)) / np.diff(f)
    assert np.all(slopes <= 1.0 / SOFTNESS + 1e-9)  # the slope is largest for very negative scores
    assert np.all(np.diff(slopes) < 1e-9)  # the function is concave
