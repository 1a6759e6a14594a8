"""Tests of weights and repeated rows: merging, normalization, and fits of bootstrap samples and weighted rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.rows.weights import merge_identical, normalize_weights

# -------------------------------------------------------------------------------------- merging and normalization


def _bag(X, y, w):
    """Return the samples and their weights in a canonical order."""
    w = np.ones(len(X)) if w is None else w
    return sorted((*map(float, x), *np.ravel(t).tolist(), float(weight)) for x, t, weight in zip(X, y, w, strict=True))


def _distinct(n, seed=0, D=2, T=1):
    rng = np.random.default_rng([seed, n, D, T])
    return rng.normal(size=(n, D)), rng.normal(size=n if T == 1 else (n, T))


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_distinct_samples_stay_without_weights(T, seed):
    X, y = _distinct(20, seed, T=T)
    found = merge_identical(X, y, None)
    assert found[2] is None
    assert _bag(*found) == _bag(X, y, None)
    assert found[1].shape == y.shape


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copies_are_merged_to_weights_of_mean_one(T, seed):
    """Test that, in any order of the rows, weights are proportional to counts and samples keep their targets."""
    X, y = _distinct(20, seed, T=T)
    counts = np.random.default_rng(seed).integers(1, 5, size=20)
    order = np.random.default_rng(seed).permutation(np.repeat(np.arange(20), counts))
    found = merge_identical(X[order], y[order], None)
    assert len(found[0]) == 20
    assert_allclose(_bag(*found), _bag(X, y, counts / counts.mean()), rtol=1e-14)


@pytest.mark.parametrize("whole", [True, False])
def test_weights_of_copies_are_added(whole):
    X, y = _distinct(10)
    w = np.arange(1.0, 31.0) if whole else np.linspace(0.3, 2.0, 30)
    X2, y2, found = merge_identical(np.tile(X, (3, 1)), np.tile(y, 3), w)
    expected = w.reshape(3, 10).sum(axis=0)
    assert_allclose(_bag(X2, y2, found), _bag(X, y, expected / expected.mean()), rtol=1e-13)


def test_samples_of_weight_zero_are_removed():
    """Test that samples of weight zero are removed.

    They are copies of other samples, or differ from other samples only in the target.
    """
    X, y = _distinct(6)
    X, y, w = np.vstack([X, X]), np.append(y, y[:3]), np.repeat([2.0, 0.0], 6)
    y = np.append(y, [99.0] * 3)
    found = merge_identical(X, y, w)
    assert _bag(*found) == _bag(X[:6], y[:6], np.ones(6))


def _frequencies(n, seed=0):
    """Return two binary columns and a binary target: eight distinct samples, each repeated many times."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, size=(n, 2)).astype(float), rng.integers(0, 2, size=n).astype(float)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_frequencies_are_counted(seed):
    """Test that copies of rows count as frequencies if the same inputs also occur with a different target.

    The weight of each distinct pair of inputs and target is then the number of its copies.
    """
    X, y = _frequencies(400, seed)
    X2, y2, w = merge_identical(X, y, None)
    for x, target, weight in zip(X2, y2, w, strict=True):
        assert weight == np.count_nonzero(np.all(x == X, axis=1) & (y == target))
    assert w.sum() == 400
    # Integer weights give the same result as repeated rows.
    again = merge_identical(X2, y2, w)
    for one, other in zip((X2, y2, w), again, strict=True):
        assert_array_equal(one, other)


def test_weights_that_are_not_integers_are_not_frequencies():
    X, y, w = merge_identical(*_frequencies(400), None)
    assert_allclose(merge_identical(X, y, w / 7.0)[2], w / w.mean(), rtol=1e-13)


@pytest.mark.parametrize(("copied", "kept"), [(39, True), (41, False)])
def test_the_majority_of_the_repetitions_decides(copied, kept):
    """Test that copies count as frequencies only if most repetitions are of inputs that occur with several targets.

    One input occurs 21 times with each of two targets, which gives forty repetitions. In addition, ``copied`` rows,
    whose inputs occur with a single target, are repeated once. If ``kept`` is true, the weights are the numbers of
    copies. Otherwise, the weights are scaled to mean one.
    """
    X, y = _distinct(50)
    X = np.vstack([np.zeros((42, 2)), X, X[:copied]])
    y = np.concatenate([np.repeat([0.0, 1.0], 21), y, y[:copied]])  # two targets, 21 times each: 40 repetitions
    unit = 1.0 if kept else len(X) / 52
    assert_allclose(np.unique(merge_identical(X, y, None)[2]), np.array([1.0, 2.0, 21.0]) / unit, rtol=1e-14)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_normalized_weights(seed):
    """Test that the positive weights get a mean of one and keep their ratios."""
    w = np.random.default_rng(seed).uniform(0.0, 9.0, size=30)
    w[:4] = 0.0
    found = normalize_weights(w)
    assert np.sum(found) == pytest.approx(26.0, rel=1e-14)
    assert_allclose(found / found[5], w / w[5], rtol=1e-14)
    assert normalize_weights(None) is None


@pytest.mark.parametrize("weight", [0.5, 3.0, 49.0, 1e9])
def test_equal_weights_are_removed(weight):
    """Test that the weights are None if all given weights are equal, or if all samples have the same number of copies.

    The sum and the mean of equal weights have no rounding error, so equality is recognized exactly.
    """
    X, y = _distinct(300)
    assert normalize_weights(np.full(300, weight)) is None
    assert merge_identical(X, y, np.full(300, weight))[2] is None
    assert merge_identical(np.tile(X, (7, 1)), np.tile(y, 7), None)[2] is None


# ------------------------------------------------------------------------------------------------ fits

D = 10


def _cv(seed):
    return HyperKernelRidgeCV(n_init=2, random_state=seed)


def _evidence(seed):
    return HyperKernelRidge(criterion="evidence", reg_lambda="auto", n_centers="all", random_state=seed)


def _bootstrap(seed, m=200):
    """Return X and y of a planted model, 3 m indices drawn from the first m rows, and the slice of 1,000 test rows.

    On average, 95% of the m rows are drawn.
    """
    data = make_mim_sines(m + 1000, D, 2, random_state=seed)
    drawn = np.random.RandomState(seed).randint(m, size=3 * m)
    return data.X, data.y, drawn, slice(m, None)


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        (_evidence, 0),
        pytest.param(_evidence, 1, marks=pytest.mark.thorough),
        pytest.param(_cv, 0, marks=pytest.mark.thorough),
    ],
)
def test_a_bootstrap_sample_gives_as_good_a_fit_as_its_distinct_rows(make, seed):
    """Test that copies are not counted as information about the noise.

    Otherwise lambda would go to zero and R2 would decrease.
    """
    X, y, drawn, test = _bootstrap(seed)
    distinct = np.unique(drawn)
    copies, once = make(seed).fit(X[drawn], y[drawn]), make(seed).fit(X[distinct], y[distinct])
    assert once.score(X[test], y[test]) > 0.97
    assert copies.score(X[test], y[test]) > once.score(X[test], y[test]) - 0.01
    assert len(copies.components_) == 2
    assert 0.2 < copies.reg_lambda_ / once.reg_lambda_ < 5.0


def test_copies_do_no_harm_with_few_centers():
    """Test that a sample with copies gives as good a fit as its distinct rows if the final fit has 50 centers.

    The final fit then needs no merging, but the search merges identical rows.
    """
    X, y, drawn, test = _bootstrap(0, m=100)
    distinct = np.unique(drawn)
    copies, once = (
        HyperKernelRidgeCV(refit=50, n_init=2, random_state=0).fit(X[rows], y[rows]) for rows in (drawn, distinct)
    )
    assert copies.centers_.shape == once.centers_.shape == (50, D)
    assert copies.score(X[test], y[test]) > once.score(X[test], y[test]) - 0.01


@pytest.mark.parametrize("make", [_evidence, pytest.param(_cv, marks=pytest.mark.thorough)])
def test_weights_are_equivalent_to_repeats_in_any_unit(make):
    """Test that integer weights, multiplied by any constant, give bitwise the same fit as repeated rows."""
    X, y, drawn, test = _bootstrap(0, m=80)
    distinct, counts = np.unique(drawn, return_counts=True)
    copies = make(0).fit(X[drawn], y[drawn]).predict(X[test])
    for unit in (1, 1 / 4, 4096.0):
        assert_array_equal(make(0).fit(X[distinct], y[distinct], unit * counts).predict(X[test]), copies)


@pytest.mark.parametrize("n_centers", ["all", 30])
def test_the_unit_of_weights_changes_a_single_run_by_rounding_only(n_centers):
    """Test that multiplying all weights by a constant changes a fit only by rounding errors.

    The centers are all rows or 30 rows. The kernel matrix is not singular and there is a single start, so rounding
    errors are not amplified.
    """
    X, y, drawn, test = _bootstrap(0, m=80)
    distinct, counts = np.unique(drawn, return_counts=True)
    start = np.eye(2, D) + 0.1
    model = _evidence(0).set_params(kernel="matern32", init=start, n_centers=n_centers, max_iter=5)
    one, *others = (clone(model).fit(X[distinct], y[distinct], c * counts) for c in (1.0, 3.0, 0.1, 1e6))
    for other in others:
        assert other.reg_lambda_ == pytest.approx(one.reg_lambda_, rel=1e-6)
        assert_allclose(other.predict(X[test]), one.predict(X[test]), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # the model predicts the mean and therefore warns
@pytest.mark.parametrize("make", [_cv, pytest.param(_evidence, marks=pytest.mark.thorough)])
def test_frequencies_determine_the_noise(make):
    """Test that frequencies, given as repeated rows or as weights, determine the mean target to two percent.

    There are eight distinct samples, which are repeated two thousand times in total.
    """
    X, y = _frequencies(2000)
    y = (np.random.default_rng(1).uniform(size=2000) < 0.2 + 0.5 * X[:, 0]).astype(float)
    X8, y8, counts = merge_identical(X, y, None)
    repeated, weighted = make(0).fit(X, y), make(0).fit(X8, y8, counts)
    assert_array_equal(repeated.predict(X8), weighted.predict(X8))
    for x in (0.0, 1.0):
        rows = X[:, 0] == x
        assert np.mean(repeated.predict(X[rows])) == pytest.approx(np.mean(y[rows]), abs=0.02)
    # If the weights are not integers, only their ratios count, and eight samples say little about the noise.
    assert make(0).fit(X8, y8, counts / 7.0).reg_lambda_ > 3.0 * repeated.reg_lambda_
