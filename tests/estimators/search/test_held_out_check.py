"""Tests of the held-out check of a map: when the check is made, its verdicts, its splits, and its errors.

Predictions out of the fold, by models that were learned on the other folds, are tested too.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from hkrr import HyperKernelRidgeCV
from hkrr._maps import Diagonal, Full, Scaled
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.datasets import make_mim_sines
from hkrr.estimators.search import held_out_check, search_stages
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.held_out_check import (
    HeldOutCheck,
    Verdict,
    needs_check,
    predict_held_out,
    squared_errors,
)
from hkrr.estimators.search.lasso_columns import selected_columns
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import FAILED_CHECK, NO_SIGNAL
from hkrr.kernels import Gaussian, get_kernel
from hkrr.rows import InMemoryRows
from support import oracles
from support.random_problems import SEEDS

KERNEL = Gaussian(gamma=1.0)
SHAPES = {"full": Full(), "diagonal": Diagonal(), "identity": Scaled(np.ones(5))}


@pytest.mark.parametrize(("lead", "expected"), [(-1.0, True), (0.0, True), (26.9, True), (27.1, False), (500.0, False)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_lead_of_less_than_three_nats_per_parameter_is_checked(lead, expected, shape):
    """Test that a full map is checked if its lead over the rival is below three nats per parameter.

    The lead is the score of the rival minus the score of the map. A map with two directions of five columns has nine
    parameters, so the limit is 27 nats. Diagonal and identity maps are never checked.
    """
    rival = Candidate(Origin.PLAIN, KERNEL, np.ones(5), 0.1, score=10.0, shape=SHAPES["identity"])
    B = np.eye(2, 5) if shape == "full" else np.ones(5)
    chosen = Candidate(Origin.RANDOM, KERNEL, B, 0.1, score=10.0 - lead, shape=SHAPES[shape])
    assert needs_check(chosen, rival) == (expected and shape == "full")


def test_the_lead_is_divided_by_the_parameters_of_independent_columns():
    """Test that two directions of a thousand columns count as nine parameters if only five columns are independent."""
    rival = Candidate(Origin.PLAIN, KERNEL, np.ones(1000), 0.1, score=0.0, shape=Scaled(np.ones(1000)))
    for lead, expected in ((26.9, True), (27.1, False)):
        chosen = Candidate(Origin.RANDOM, KERNEL, np.eye(2, 1000), 0.1, score=-lead, n_free_columns=5)
        assert needs_check(chosen, rival) == expected


def _wave(X, rng):
    return np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))


def _distance(X, rng):
    return np.linalg.norm(X, axis=1) + 0.1 * rng.normal(size=len(X))


def _noise(X, rng):
    return rng.normal(size=len(X))


def _data(target, seed=0, m=80, D=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D))
    y = target(X, rng)
    return X, y - y.mean()


def _candidates(D, d=1):
    """Return a map of the first d columns, and plain kernel ridge regression."""
    rival = Candidate(Origin.PLAIN, KERNEL, np.full(D, 0.2), 0.1, shape=Scaled(np.ones(D)))
    return Candidate(Origin.POLISHED, KERNEL, np.eye(d, D), 0.1), rival


def _task(rows, make=Evidence, seed=0, **options):
    return SearchProblem(rows, make, range(1, rows.n_features + 1), True, 2, np.random.RandomState(seed), **options)


def _compare(X, y, w=None, d=1, seed=0, make=Evidence, **options):
    check = HeldOutCheck(_task(InMemoryRows(X, y, w), make, seed, **options))
    return check.compare(*_candidates(X.shape[1], d))


# ------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_a_true_direction_passes(seed):
    verdict = _compare(*_data(_wave, seed), seed=seed)
    assert verdict.holds
    assert verdict.error < verdict.error_of_rival < 1.0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_a_map_fitted_to_noise_fails(seed):
    """Test that a map with forty parameters, fitted to 75 rows of noise, fails: it predicts much worse than the mean.

    The rival predicts approximately the mean.
    """
    verdict = _compare(*_data(_noise, seed, m=100, D=40), seed=seed)
    assert not verdict.holds
    assert verdict.error > 1.3
    assert verdict.error_of_rival == pytest.approx(1.0, abs=0.2)


def test_constant_columns_do_not_count_as_columns_of_a_square_map(monkeypatch):
    """Test that a square map of 4 columns, with 10 parameters, is tried on 60 rows despite 10 constant columns."""
    X, y = _data(_wave)
    rows, shapes = InMemoryRows(np.hstack([X, np.full((80, 10), 3.0)]), y).count_free_columns(), set()
    monkeypatch.setattr(held_out_check, "improve", lambda on, start, *limits: shapes.add(start.B.shape) or start)
    HeldOutCheck(_task(rows)).compare(*_candidates(14))
    assert shapes == {(4, 14), (1, 14), (14,)}


def test_one_direction_fails_if_all_directions_matter():
    verdict = _compare(*_data(_distance, m=120, D=6))
    assert not verdict.holds
    assert verdict.error_of_rival < 0.5 < verdict.error


@pytest.mark.parametrize(
    "B",
    [
        pytest.param(np.eye(1, 4, 2), id="another"),
        pytest.param(1e3 * np.eye(1, 4), id="too long", marks=pytest.mark.thorough),
    ],
)
def test_the_map_is_learned_from_scratch(B):
    """Test that the values of the given map have no effect. Only its number of directions counts."""
    X, y = _data(_wave)
    _, rival = _candidates(4)
    check = HeldOutCheck(_task(InMemoryRows(X, y)))
    verdict = check.compare(Candidate(Origin.POLISHED, KERNEL, B, 0.1), rival)
    assert verdict == _compare(X, y)


def test_threads_do_not_change_the_verdict():
    X, y = _data(_wave)
    assert _compare(X, y, n_threads=2) == _compare(X, y)


def test_after_the_deadline_the_map_is_rejected_without_a_verdict():
    verdict = _compare(*_data(_noise, m=100, D=40), deadline=0.0)
    assert verdict.holds is False
    assert math.isnan(verdict.error)
    assert math.isnan(verdict.error_of_rival)


@pytest.mark.parametrize("m", [2, 3, 7])
def test_with_too_few_rows_the_map_is_kept(m):
    verdict = _compare(*_data(_noise, m=m))
    assert verdict.holds is True
    assert math.isnan(verdict.error)


def test_rows_of_weight_zero_do_not_count_as_rows():
    X, y = _data(_noise, m=100)
    verdict = _compare(X, y, np.where(np.arange(100) < 7, 1.0, 0.0))
    assert verdict.holds is True
    assert math.isnan(verdict.error)


# ------------------------------------------------------------------------------------------------------- the rule


def _errors_given(monkeypatch, mine, theirs):
    """Skip the fits, and let the errors of the map be `mine(y)` and those of its rival `theirs(y)`.

    Here y are the held-out targets. Return a list that records the training rows and the held-out rows of each call.
    """
    monkeypatch.setattr(HeldOutCheck, "_relearn_map", lambda self, groups, chosen, rng: chosen)
    monkeypatch.setattr(HeldOutCheck, "_relearn_scales", lambda self, groups, rival: rival)
    calls = []

    def errors(learn, last, candidate):
        calls.append((learn, last))
        return (mine if isinstance(candidate.shape, Full) else theirs)(last.gather()[1][:, 0])

    monkeypatch.setattr(held_out_check, "squared_errors", errors)
    return calls


@pytest.mark.parametrize(("excess", "holds"), [(-1.0, True), (0.0, True), (0.02, False), (5.0, False)])
def test_a_map_that_predicts_worse_fails(monkeypatch, excess, holds):
    """Test that the map fails if its mean error over all held-out rows is larger than the rival's mean error.

    The map is better than the rival in some rows and worse in others.
    """
    difference = np.where(np.arange(100) % 2, 1.0, -1.0) + excess
    _errors_given(monkeypatch, lambda y: 3.0 + y, lambda y: np.full(len(y), 3.0))
    verdict = _compare(np.zeros((100, 3)), difference)
    assert verdict.holds is holds
    assert verdict.error == pytest.approx(3.0 + excess)
    assert verdict.error_of_rival == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("m", "n_repeats", "held_out_rows"),
    [(8, 4, 2), (999, 4, 250), (1000, 2, 250), (1999, 2, 500), (2000, 1, 500), (6000, 1, 1500), (9000, 1, 1500)],
)
def test_fewer_rows_are_split_more_often(monkeypatch, m, n_repeats, held_out_rows):
    calls = _errors_given(monkeypatch, np.zeros_like, np.zeros_like)
    _compare(np.zeros((m, 1)), np.arange(m, dtype=float))
    assert len(calls) == 2 * n_repeats
    seen = []
    for (learn, held), (learn_of_rival, held_of_rival) in zip(calls[::2], calls[1::2], strict=True):
        parts = [set(rows.gather()[1][:, 0]) for rows in (learn, held, learn_of_rival, held_of_rival)]
        assert parts[:2] == parts[2:]
        assert not parts[0] & parts[1]
        assert len(parts[0] | parts[1]) == min(m, 6000)
        assert len(parts[1]) == held.n_rows <= held_out_rows
        seen += [*parts[1]]
    assert len(seen) == len(set(seen))  # no row is held out twice
    assert len(seen) == (m if n_repeats == 4 else n_repeats * held_out_rows)


def test_rows_of_weight_zero_are_left_out(monkeypatch):
    calls = _errors_given(monkeypatch, np.zeros_like, np.zeros_like)
    y = np.arange(60.0)
    _compare(np.zeros((60, 1)), y, np.where(y < 20, 0.0, 1.5))
    assert len(calls) == 8
    for learn, last in calls:
        assert sorted([*learn.gather()[1][:, 0], *last.gather()[1][:, 0]]) == list(range(20, 60))


# ------------------------------------------------------------------------------------ no leakage of held-out rows


def test_held_out_rows_are_not_used_for_learning(monkeypatch):
    """Test that changing the targets of held-out rows changes their errors, but not the fits to the training rows.

    The rows of the first of four folds are changed.
    """
    calls = []

    def recorded_errors(learn, last, candidate):
        calls.append((learn, last, candidate))
        return squared_errors(learn, last, candidate)

    monkeypatch.setattr(held_out_check, "squared_errors", recorded_errors)
    X, y = _data(_wave)
    drawn = InMemoryRows(X, y).draw(6000, np.random.RandomState(0))
    first = drawn[np.arange(len(drawn)) % 4 == 0]
    absurd = y.copy()
    absurd[first] = 1e3 * (-1.0) ** np.arange(len(first))
    verdicts = [_compare(X, targets) for targets in (y, absurd)]
    runs = calls[:8], calls[8:]
    for (learn, last, candidate), (same_learn, other_last, same) in zip(runs[0][:2], runs[1][:2], strict=True):
        assert_array_equal(last.gather()[0], X[first])
        for mine, theirs in zip(learn.gather()[:2], same_learn.gather()[:2], strict=True):
            assert_array_equal(mine, theirs)
        assert math.isfinite(candidate.value)
        assert_array_equal(candidate.B, same.B)
        assert (candidate.nu, candidate.value) == (same.nu, same.value)
        assert np.mean(squared_errors(same_learn, other_last, same)) > 1e3 * np.mean(
            squared_errors(learn, last, candidate)
        )
    assert not np.array_equal(runs[0][2][2].B, runs[1][2][2].B)  # in fold 2, the changed rows are training rows
    assert verdicts[1].error > verdicts[0].error


# ---------------------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("make", [Evidence, pytest.param(LeaveOneOut, marks=pytest.mark.thorough)])
def test_the_unit_of_the_target_does_not_matter(make):
    X, y = _data(_wave)
    expected, found = (_compare(X, c * y, make=make) for c in (1.0, 2.0**-30))
    assert found.holds == expected.holds
    assert_allclose(
        [found.error, found.error_of_rival], [expected.error, expected.error_of_rival], rtol=1e-6, equal_nan=False
    )


@pytest.mark.thorough
def test_the_units_of_two_targets_do_not_matter():
    """Test that rescaling one of two targets does not change the verdict and the errors."""
    X, y = _data(_wave)
    Y = np.column_stack([y, np.cos(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=len(X))])
    Y -= Y.mean(axis=0)
    expected = _compare(X, Y)
    assert expected.holds
    for units in ([1.0, 2.0**-300], [2.0**30, 1.0]):
        found = _compare(X, Y * units)
        assert found.holds
        assert_allclose([found.error, found.error_of_rival], [expected.error, expected.error_of_rival], rtol=1e-6)


def test_a_second_target_in_tiny_units_counts_equally():
    """Test that a second target of noise contributes half of the error, even if it is multiplied by 1e-12."""
    X, y = _data(_wave)
    noise = np.random.default_rng(1).normal(size=len(X))
    alone = _compare(X, y)
    both = _compare(X, np.column_stack([y, 1e-12 * (noise - noise.mean())]))
    assert both.error > alone.error + 0.3


# --------------------------------------------------------------------------------------------------------- errors


def _learn_and_last(weighted, T=2, m=27, D=3):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(m, D)), rng.normal(size=(m, T)) * [1.0, 50.0][:T]
    rows = InMemoryRows(X, Y, rng.uniform(0.5, 2.0, size=m) if weighted else None)
    return rows.subset(np.arange(20)), rows.subset(np.arange(20, m))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("B", [np.array([0.3, 1.0, 0.5]), np.array([[0.3, -1.0, 0.5], [0.2, 0.2, 1.0]])])
def test_the_errors_are_those_of_kernel_ridge_regression_on_the_training_rows(weighted, T, B):
    """Test that the squared errors of the held-out rows agree with scikit-learn's KernelRidge.

    Each squared error is divided by the mean square of the target on the training rows. It is multiplied by the weight
    of its row, divided by the mean weight.
    """
    learn, last = _learn_and_last(weighted, T)
    (X, Y, w), (X_last, Y_last, w_last) = learn.gather(), last.gather()
    matrix = np.diag(B) if B.ndim == 1 else B
    model = KernelRidge(alpha=0.4, kernel="rbf", gamma=KERNEL.gamma).fit(X @ matrix.T, Y, sample_weight=w)
    expected = np.mean((Y_last - model.predict(X_last @ matrix.T)) ** 2 / np.mean(Y**2, axis=0), axis=1)
    if weighted:
        expected *= w_last / w_last.mean()
    candidate = Candidate(Origin.RANDOM, KERNEL, B, 0.4, 0.0, shape=Diagonal() if B.ndim == 1 else Full())
    assert_allclose(squared_errors(learn, last, candidate), expected, rtol=1e-9)


def test_a_candidate_that_could_not_be_evaluated_predicts_the_mean():
    learn, last = _learn_and_last(weighted=False)
    expected = np.mean(last.gather()[1] ** 2 / np.mean(learn.gather()[1] ** 2, axis=0), axis=1)
    assert_allclose(
        squared_errors(learn, last, Candidate(Origin.RANDOM, KERNEL, np.eye(1, 3), 0.4)), expected, rtol=1e-12
    )


def test_a_constant_target_has_no_error():
    learn, last = _learn_and_last(weighted=False, T=1)
    X, Y, _ = learn.gather()
    X_last, Y_last, _ = last.gather()
    candidate = Candidate(Origin.RANDOM, KERNEL, np.eye(2, 3), 0.4, 0.0)
    alone = squared_errors(learn, last, candidate)
    both = squared_errors(
        InMemoryRows(X, np.column_stack([Y, 0.0 * Y])),
        InMemoryRows(X_last, np.column_stack([Y_last, 0.0 * Y_last])),
        candidate,
    )
    assert_allclose(both, alone / 2.0, rtol=1e-12)


def test_a_held_out_row_of_weight_w_counts_w_times():
    learn, last = _learn_and_last(weighted=False)
    X, Y, _ = last.gather()
    counts = np.arange(1, len(X) + 1)
    candidate = Candidate(Origin.RANDOM, KERNEL, np.eye(2, 3), 0.4, 0.0)
    repeated = squared_errors(
        learn, InMemoryRows(np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0)), candidate
    )
    weighted = squared_errors(learn, InMemoryRows(X, Y, counts.astype(float)), candidate)
    assert np.mean(weighted) == pytest.approx(np.mean(repeated), rel=1e-12)
    assert np.mean(weighted) != pytest.approx(np.mean(squared_errors(learn, last, candidate)), rel=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_the_unit_of_the_weights_does_not_change_the_errors(factor):
    """Test that multiplying all weights by a factor does not change the errors.

    nu is multiplied by the same factor, so that lambda, which is nu divided by the total weight, does not change.
    """
    learn, last = _learn_and_last(weighted=True)
    rescaled = [InMemoryRows(X, Y, factor * w) for X, Y, w in (learn.gather(), last.gather())]
    one, other = (Candidate(Origin.RANDOM, KERNEL, np.eye(2, 3), c * 0.4, 0.0) for c in (1.0, factor))
    assert_allclose(squared_errors(*rescaled, other), squared_errors(learn, last, one), rtol=1e-9)


# ------------------------------------------------------------------------------------------- predictions


def _candidate_with(B, nu=0.4, value=0.0):
    return Candidate(Origin.RANDOM, KERNEL, B, nu, value, shape=Diagonal() if B.ndim == 1 else Full())


MAPS = pytest.mark.parametrize(
    "B",
    [np.array([0.3, 0.0, 0.5]), np.array([[0.3, -1.0, 0.5], [0.2, 0.2, 1.0]])],
    ids=["diagonal", "full"],
)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("T", [1, 2])
@MAPS
def test_predictions_solve_kernel_ridge_regression_on_the_training_rows(weighted, T, B):
    """Test that the coefficients a solve ``(K + diag(nu / w)) a = y`` on the training rows.

    K is the kernel matrix and w the weights of the training rows. The targets and weights of the held-out rows do not
    count.
    """
    learn, last = _learn_and_last(weighted, T)
    (X, Y, w), (X_last, Y_last, _) = learn.gather(), last.gather()
    P, P_last = (oracles.project(A, oracles.as_matrix(B)) for A in (X, X_last))
    noise = 0.4 / (np.ones(len(X)) if w is None else w)
    gaussian = lambda p, c: math.exp(-sum((p - c) ** 2))  # noqa: E731
    K, K_last = oracles.gram(gaussian, P, P), oracles.gram(gaussian, P_last, P)
    expected = K_last @ np.linalg.solve(K + np.diag(noise), Y)
    assert_allclose(predict_held_out(learn, last, _candidate_with(B)), expected, rtol=1e-9, atol=1e-9)
    for absurd in (InMemoryRows(X_last, 1e3 - Y_last), InMemoryRows(X_last, Y_last, np.arange(1.0, 8.0))):
        assert_allclose(predict_held_out(learn, absurd, _candidate_with(B)), expected, rtol=1e-9, atol=1e-9)


@MAPS
def test_predictions_without_a_value_are_zero(B):
    learn, last = _learn_and_last(weighted=False)
    for value in (math.inf, math.nan):
        assert_array_equal(predict_held_out(learn, last, _candidate_with(B, value=value)), np.zeros((7, 2)))


# ------------------------------------------------------------------------------------ predictions out of the fold

LINEAR = get_kernel("linear").with_gamma(1.0)


def _sparse_candidate(D, columns, kernel=LINEAR):
    B = np.zeros(D)
    B[columns] = 0.5
    return Candidate(Origin.SPARSE, kernel, B, 0.1, 0.0, 0.0, shape=Diagonal(B))


def _each_shape(D):
    """Return a candidate of each shape. The maps are not those that are learned."""
    one, ones = np.full(D, 0.2), np.ones(D)
    return {
        "plain": Candidate(Origin.PLAIN, KERNEL, one, 0.1, 0.0, 0.0, shape=Scaled(ones)),
        "diagonal": Candidate(Origin.DIAGONAL, KERNEL, one, 0.1, 0.0, 0.0, shape=Diagonal()),
        "square": Candidate(Origin.SQUARE, KERNEL, np.eye(D), 0.1, 0.0, 0.0),
        "sparse": _sparse_candidate(D, [1]),
        "one direction": Candidate(Origin.POLISHED, KERNEL, np.eye(1, D), 0.1, 0.0, 0.0),
    }


def _folds(m, seed=0):
    """Return the fold of each row."""
    fold = np.empty(m, dtype=int)
    fold[np.random.RandomState(seed).permutation(m)] = np.arange(m) % 4
    return fold


def _out_of_fold(X, y, candidates, w=None, seed=0, **options):
    return HeldOutCheck(_task(InMemoryRows(X, y, w), seed=seed, **options)).out_of_fold(candidates)


def _without_learning(monkeypatch, B, nu, value=0.0):
    """Let each candidate have the given map, noise level and value after it was learned on the training rows.

    Return a list of the numbers of training rows.
    """
    seen = []

    def improve(on, start, *limits):
        seen.append(on.rows.n_rows)
        return replace(start, B=B, nu=nu, value=value)

    monkeypatch.setattr(held_out_check, "improve", improve)
    return seen


@pytest.mark.parametrize(("m", "T", "weighted"), [(41, 1, False), (40, 2, True), (9, 1, True)])
def test_each_row_is_predicted_by_the_other_three_folds(monkeypatch, m, T, weighted):
    """Test that the predictions agree with scikit-learn's KernelRidge, fitted to the rows of the other three folds.

    The map and the noise level are fixed.
    """
    rng = np.random.default_rng(m)
    X, Y, w = rng.normal(size=(m, 3)), rng.normal(size=(m, T)), rng.uniform(0.5, 2.0, size=m) if weighted else None
    B, fold, expected = np.array([0.3, 1.0, 0.5]), _folds(m), np.empty((m, T))
    for k in range(4):
        rest = fold != k
        model = KernelRidge(alpha=0.4, kernel="rbf", gamma=1.0)
        model.fit(X[rest] * B, Y[rest], None if w is None else w[rest])
        expected[~rest] = model.predict(X[~rest] * B)
    seen = _without_learning(monkeypatch, B, 0.4)
    candidates = [_each_shape(3)[name] for name in ("plain", "diagonal")]
    found = _out_of_fold(X, Y, candidates, w)
    assert len(found) == 2
    for predicted in found:
        assert_allclose(predicted, expected, rtol=0, atol=1e-9)
    assert set(seen) == {np.count_nonzero(fold != k) for k in range(4)}


def test_a_candidate_without_a_value_has_no_predictions(monkeypatch):
    X, y = _data(_wave, m=24)
    _without_learning(monkeypatch, np.ones(4), 0.4, math.inf)
    candidates = [_each_shape(4)["plain"], _each_shape(4)["diagonal"]]
    assert _out_of_fold(X, y, candidates) == [None, None]


@pytest.mark.parametrize(
    ("shape", "D"), [("plain", 3), ("diagonal", 3), ("square", 3), ("sparse", 8), ("one direction", 2)]
)
def test_the_own_target_of_a_row_does_not_change_its_prediction(shape, D):
    """Test that changing the target of a row changes predictions in the other folds, but none in its own fold."""
    X, y = _data(_wave, m=24, D=D)
    if shape == "sparse":
        y = X[:, 0] + 0.1 * y  # the lasso selects one of the eight columns
    candidate, fold = _each_shape(D)[shape], _folds(24)
    row = np.flatnonzero(fold == 2)[3]
    changed = y.copy()
    changed[row] += 3.0
    before, after = (_out_of_fold(X, targets, [candidate])[0] for targets in (y, changed))
    same = fold == fold[row]
    assert_array_equal(after[same], before[same])
    assert np.max(np.abs(after[~same] - before[~same])) > 0.1


def test_the_candidates_are_learned_from_scratch():
    """Test that the values of the given maps have no effect, and that a linear model predicts a linear target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=40)
    start = Candidate(Origin.DIAGONAL, LINEAR, np.ones(3), 0.1, 0.0, 0.0, shape=Diagonal())
    other = replace(start, B=np.array([1e-3, 5.0, 1e3]), nu=30.0, value=-1.0, score=7.0)
    found, same = _out_of_fold(X, y, [start, other])
    assert_array_equal(found, same)
    assert np.mean((found[:, 0] - y) ** 2) < 0.02


@pytest.mark.parametrize("n_columns", [1, 3, 25])
def test_a_sparse_candidate_selects_its_columns_again(monkeypatch, n_columns):
    """Test that the columns of a sparse candidate are selected again from the training rows of each fold.

    Of the sets that the lasso selects, the set whose size is closest to the candidate's number of columns is used. The
    columns of the given candidate have no effect on the target.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 60))
    y = 2.0 * X[:, 0] - 1.5 * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=80)
    learned = []

    def recorded(training, test, candidate):
        learned.append((training, candidate))
        return predict_held_out(training, test, candidate)

    monkeypatch.setattr(held_out_check, "predict_held_out", recorded)
    (found,) = _out_of_fold(X, y - y.mean(), [_sparse_candidate(60, np.arange(30, 30 + n_columns))])
    assert np.mean((found[:, 0] - y + y.mean()) ** 2) < 0.1 * np.var(y)
    assert len(learned) == 4
    for training, candidate in learned:
        used = candidate.B != 0.0
        sets = selected_columns(training)
        assert min(sets, key=lambda one: abs(np.sum(one) - n_columns)).tolist() == used.tolist()
        assert np.all(used[:3])
        assert (candidate.origin, candidate.degrees_of_freedom) == (Origin.SPARSE, np.count_nonzero(used))


def test_a_sparse_candidate_has_no_predictions_if_no_column_is_selected(monkeypatch):
    X, y = _data(_noise, m=40, D=6)
    monkeypatch.setattr(held_out_check, "selected_columns", lambda rows: [])
    candidates = [_sparse_candidate(6, [1]), _each_shape(6)["plain"]]
    sparse, plain = _out_of_fold(X, y, candidates)
    assert sparse is None
    assert np.any(plain != 0.0)


def test_several_targets_are_predicted_out_of_the_fold():
    X, y = _data(_wave, m=80, D=2)
    noise = 0.3 * np.random.default_rng(1).normal(size=80)
    Y = np.column_stack([y, 10.0 * (np.cos(2.0 * X[:, 0]) + noise), np.zeros(80)])
    (found,) = _out_of_fold(X, Y, [_each_shape(2)["diagonal"]])
    assert found.shape == (80, 3)
    assert np.all(np.mean((found - Y) ** 2, axis=0)[:2] < 0.4 * np.var(Y, axis=0)[:2])
    assert_allclose(found[:, 2], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "D"), [(["plain", "diagonal", "sparse"], 3), (["one direction", "one direction"], 2)]
)
def test_threads_do_not_change_the_predictions_out_of_the_fold(shapes, D):
    X, y = _data(_wave, m=24, D=D)
    candidates = [_each_shape(D)[shape] for shape in shapes]
    one, two = (_out_of_fold(X, y, candidates, n_threads=n) for n in (1, 2))
    for predicted, same in zip(one, two, strict=True):
        assert_array_equal(predicted, same)


def test_the_predictions_of_a_candidate_do_not_depend_on_the_other_candidates():
    X, y = _data(_wave, m=24, D=2)
    plain, wide = (_each_shape(2)[shape] for shape in ("plain", "one direction"))
    alone = _out_of_fold(X, y, [wide])[0]
    _, first, second = _out_of_fold(X, y, [plain, wide, wide])
    assert_allclose(first, alone, rtol=0, atol=1e-12)
    assert_allclose(second, alone, rtol=0, atol=1e-12)


def test_after_the_deadline_there_are_no_predictions_out_of_the_fold():
    X, y = _data(_wave, m=40)
    assert _out_of_fold(X, y, [_each_shape(4)["plain"]], deadline=0.0) == [None]


@pytest.mark.parametrize("m", [2, 3, 5])
def test_predictions_out_of_the_fold_of_a_few_rows(m):
    """Test that 2, 3 or 5 rows have finite predictions for plain and diagonal maps.

    For the other shapes, there may be no predictions. With 2 or 3 rows, there are fewer rows than folds.
    """
    X, y = _data(_wave, m=m, D=2)
    candidates = _each_shape(2)
    for name, predicted in zip(candidates, _out_of_fold(X, y, list(candidates.values())), strict=True):
        if predicted is None:
            assert name not in ("plain", "diagonal")
            continue
        assert predicted.shape == (m, 1)
        assert np.all(np.isfinite(predicted))


# -------------------------------------------------------------------------------------------------- the estimator


def _held_out_rows(model):
    return [k for k, start in enumerate(model.path_["start"]) if start == "held out"]


def _noise_fit(seed, w=None, D=40):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(100, D)), rng.normal(size=100)
    return HyperKernelRidgeCV(n_init=2, random_state=seed).fit(X, y, w)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # a parameter of the fit is at an edge of its range
@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # the target is pure noise
@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_a_map_that_fails_leaves_its_errors_in_the_path(seed):
    """Test that ``path_`` contains the held-out errors of a map that fails the check, and of its rival.

    The target of the 100 rows is noise, and there are 80 columns. The rival is plain kernel ridge regression or the
    mean of y.
    """
    model = _noise_fit(seed, D=80)
    assert model.map_shape_ == "identity"
    assert model.result_.message in (FAILED_CHECK, NO_SIGNAL)
    chosen, rival = _held_out_rows(model)
    path = model.path_
    assert [path["shape"][k] for k in (chosen, rival)] == ["full", "identity"]
    assert path["n_components"][chosen] < 80
    assert path["criterion"][chosen] > path["criterion"][rival] > 0.5
    assert [path["score"][k] for k in (chosen, rival)] == [path["criterion"][k] for k in (chosen, rival)]


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # the target is pure noise
@pytest.mark.thorough
def test_the_unit_of_the_weights_does_not_change_the_verdict():
    w = np.linspace(0.5, 2.0, 100)
    one, other = (_noise_fit(0, c * w) for c in (1.0, 1024.0))
    assert len(_held_out_rows(one)) == 2
    assert one.result_.message == other.result_.message
    for name in ("start", "criterion"):
        assert [one.path_[name][k] for k in _held_out_rows(one)] == [
            other.path_[name][k] for k in _held_out_rows(other)
        ]


@pytest.mark.parametrize("kernel", ["gaussian", pytest.param("auto", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("holds", [True, False])
def test_the_verdict_decides_and_its_errors_are_in_the_path(monkeypatch, kernel, holds):
    """Test that the verdict decides whether the map is kept, and that its errors are in ``path_``.

    The check is forced, although the signal is clear.
    """
    monkeypatch.setattr(search_stages, "needs_check", lambda chosen, rival: isinstance(chosen.shape, Full))
    monkeypatch.setattr(HeldOutCheck, "compare", lambda self, chosen, rival: Verdict(holds, 0.25, 0.75))
    X, y = _data(_wave, m=80, D=3)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    model = HyperKernelRidgeCV(kernel=kernel, n_init=1, random_state=0).fit(X @ rotation, y)
    assert (model.map_shape_ == "full") == holds
    assert (model.result_.message == FAILED_CHECK) == (not holds)
    assert [model.path_["criterion"][k] for k in _held_out_rows(model)] == [0.25, 0.75]


def test_a_clear_lead_is_not_checked(monkeypatch):
    def fail(*arguments):
        raise AssertionError("compared")

    monkeypatch.setattr(HeldOutCheck, "compare", fail)
    X, y = _data(_wave, m=120, D=4)
    model = HyperKernelRidgeCV(n_init=1, random_state=0).fit(X, y)
    assert model.map_shape_ == "full"
    assert _held_out_rows(model) == []


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # no signal is found, which is reported
@pytest.mark.thorough
def test_a_spiky_function_of_one_direction_is_not_selected():
    """Test that R2 is not far below zero if y is a sine whose wavelength is too short to be learned from the data.

    Without the held-out check, a map was selected that had a lower score than plain kernel ridge regression, by 2.1
    nats per parameter. Its R2 was -0.4.
    """
    data = make_mim_sines(400, n_features=10, n_components=1, random_state=1)
    model = HyperKernelRidgeCV(random_state=0).fit(data.X[:300], data.y[:300])
    assert model.score(data.X[300:], data.y[300:]) > -0.05
