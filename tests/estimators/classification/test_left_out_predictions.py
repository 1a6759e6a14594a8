"""Tests of the left-out predictions of class indicators, from which the weights of the models are computed.

Leave-one-out predictions are compared with naive refits. The predictions of maps with many parameters are replaced by
cross-fitted predictions, which are replaced by known numbers in most tests.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelClassifier
from hkrr._maps import Diagonal, Scaled
from hkrr.criteria import Evidence
from hkrr.estimators.classification.class_link import LOG_LOSS
from hkrr.estimators.classification.class_scores import ClassScores
from hkrr.estimators.search import search_and_refit
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.search_and_refit import (
    LeftOutPredictions,
    _cross_fit_flexible_maps,
    _leave_one_out,
    _weigh,
)
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.stacking import LEAST_SQUARES
from hkrr.kernels import Gaussian, get_kernel
from hkrr.rows import InMemoryRows
from support.quick_search import make_quick
from support.stopped_fits import breaking

N, D, K = 100, 4, 3
IDENTITY = Candidate(Origin.PLAIN, Gaussian(gamma=1.0), np.full(D, 0.7), 0.5, score=1.0, shape=Scaled(np.ones(D)))
DIAGONAL = Candidate(
    Origin.DIAGONAL, get_kernel("matern32").with_gamma(1.0), np.array([0.9, 0.5, 0.1, 0.3]), 0.2, shape=Diagonal()
)
PARAMETERS = np.array([1.0, 2.0, 2.5, 10.0])


def _indicators(n=N, weighted=False, seed=0):
    """Return X, the indicators of the classes, and the weights of the rows or None."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    Y = np.eye(K)[np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [-0.5, 0.5])]
    w = rng.uniform(0.5, 2.0, n) if weighted else None
    return X, Y, None if w is None else w / np.mean(w)


def _problem(n=N, weighted=False, stacking=LOG_LOSS, **options):
    X, Y, w = _indicators(n, weighted)
    rows = InMemoryRows(X, Y, w, y_offset=np.average(Y, axis=0, weights=w))
    options = {"choose_dimension": True, "n_starts": 1, "rng": np.random.RandomState(0)} | options
    return SearchProblem(rows, Evidence, range(1, D + 1), stacking=stacking, **options)


# ------------------------------------------------------------------------------- cross-fitting of flexible maps


class _Check:
    """A replacement of `HeldOutCheck`, whose predictions are the given numbers, or None where a number is None."""

    def __init__(self, monkeypatch, numbers):
        self.calls = []
        monkeypatch.setattr(search_and_refit, "HeldOutCheck", lambda problem: SimpleNamespace(out_of_fold=self._answer))
        self._numbers = numbers

    def _answer(self, candidates):
        self.calls.append(list(candidates))
        return [None if number is None else np.full((N, K), number) for number in self._numbers]


def _four():
    """Return four candidates with 1, 2, 2.5 and 10 parameters, and their left-out predictions: 0, 1, 2 and 3."""
    candidates = [replace(IDENTITY, nu=0.1 * (k + 1)) for k in range(4)]
    _, Y, _ = _indicators()
    return candidates, LeftOutPredictions([np.full((N, K), float(k)) for k in range(4)], Y, np.ones(N), PARAMETERS, 1.0)


def _firsts(left_out):
    return [one[0, 0] for one in left_out.predictions]


def test_only_flexible_maps_are_cross_fitted(monkeypatch):
    """Test that maps with more than 2 parameters for 100 rows get other predictions, which have no price."""
    check, (candidates, left_out) = _Check(monkeypatch, [20.0, 30.0]), _four()
    kept, found = _cross_fit_flexible_maps(_problem(), candidates, left_out)
    assert check.calls == [candidates[2:]]
    assert kept == candidates
    assert _firsts(found) == [0.0, 1.0, 20.0, 30.0]
    assert_array_equal(found.n_parameters, [1.0, 2.0, 0.0, 0.0])
    assert found.price == 1.0
    assert found.targets is left_out.targets
    # The given predictions are not changed.
    assert _firsts(left_out) == [0.0, 1.0, 2.0, 3.0]


def test_flexible_maps_for_which_there_is_no_time_are_left_out(monkeypatch):
    _Check(monkeypatch, [None, 30.0])
    candidates, left_out = _four()
    kept, found = _cross_fit_flexible_maps(_problem(), candidates, left_out)
    assert kept == [candidates[k] for k in (0, 1, 3)]
    assert _firsts(found) == [0.0, 1.0, 30.0]
    assert_array_equal(found.n_parameters, [1.0, 2.0, 0.0])
    _Check(monkeypatch, [None, None])
    kept, found = _cross_fit_flexible_maps(_problem(), candidates, left_out)
    assert kept == candidates[:2]
    assert_array_equal(found.n_parameters, [1.0, 2.0])


@pytest.mark.parametrize("far", [(), (3,), (2, 3)])
def test_in_a_regression_flexible_maps_with_a_high_score_are_left_out(monkeypatch, far):
    """Test that flexible maps far above the best score are left out, and that the others have the lower price."""
    close = [k for k in (2, 3) if k not in far]
    check, (candidates, left_out) = _Check(monkeypatch, [10.0 * k for k in close]), _four()
    candidates = [replace(one, score=1e6 if k in far else -1.0 * k) for k, one in enumerate(candidates)]
    problem = replace(_problem(), stacking=LEAST_SQUARES)
    kept, found = _cross_fit_flexible_maps(problem, candidates, left_out._replace(price=LEAST_SQUARES.price))
    assert check.calls == ([[candidates[k] for k in close]] if close else [])
    assert kept == [candidates[k] for k in (0, 1, *close)]
    assert _firsts(found) == [0.0, 1.0, *(10.0 * k for k in close)]
    share = LEAST_SQUARES.cross_fit_price / LEAST_SQUARES.price
    assert_allclose(found.n_parameters, [1.0, 2.0, *(share * PARAMETERS[k] for k in close)])


def test_if_no_candidate_would_remain_all_are_kept(monkeypatch):
    check, (candidates, left_out) = _Check(monkeypatch, [None] * 4), _four()
    left_out = left_out._replace(n_parameters=PARAMETERS + 2.0)
    kept, found = _cross_fit_flexible_maps(_problem(), candidates, left_out)
    assert check.calls == [candidates]
    assert kept == candidates
    assert found is left_out


def test_without_flexible_maps_or_without_time_nothing_is_cross_fitted(monkeypatch):
    check, (candidates, left_out) = _Check(monkeypatch, [1.0] * 4), _four()
    for problem, n_parameters in ((_problem(deadline=0.0), PARAMETERS), (_problem(), np.minimum(PARAMETERS, 2.0))):
        given = left_out._replace(n_parameters=n_parameters)
        kept, found = _cross_fit_flexible_maps(problem, candidates, given)
        assert kept is candidates
        assert found is given
    assert check.calls == []


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_fitted_predictions_do_not_use_the_own_target(monkeypatch, weighted):
    """Test that the predictions of a row do not change if the label of this row changes.

    All rows of the same fold are held out together, so only one label is changed.
    """
    make_quick(monkeypatch)
    monkeypatch.setattr(search_and_refit, "_FLEXIBLE_SHARE", 0.0)
    found = []
    for label in range(K):
        X, Y, w = _indicators(60, weighted)
        Y[7] = np.eye(K)[label]
        offset = np.average(Y, axis=0, weights=w)
        problem = replace(_problem(), rows=InMemoryRows(X, Y, w, y_offset=offset))
        _, left_out = _cross_fit_flexible_maps(problem, *_leave_one_out(problem, problem.rows, [IDENTITY, DIAGONAL]))
        assert_array_equal(left_out.n_parameters, [0.0, 0.0])
        found.append([one[7] + offset for one in left_out.predictions])
    assert_allclose(found[1], found[0], atol=1e-8)
    assert_allclose(found[2], found[0], atol=1e-8)


# ------------------------------------------------------------------------------- leave-one-out predictions


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_predictions_against_refits(weighted):
    """Test that the predictions of a row are those of kernel ridge regression on the other rows, with the same noise.

    The regression has an intercept without a penalty.
    """
    problem = _problem(40, weighted)
    candidates, found = _leave_one_out(problem, problem.rows, [IDENTITY, DIAGONAL])
    X, Y, w = _indicators(40, weighted)
    assert candidates == [IDENTITY, DIAGONAL]
    offset = np.average(Y, axis=0, weights=w)
    assert_allclose(found.targets, Y - offset, atol=1e-14)
    assert_array_equal(found.row_weight, np.ones(40) if w is None else w)
    assert_array_equal(found.n_parameters, [1.0, 4.0])
    assert found.price == 1.0
    weights = np.ones(40) if w is None else w
    for candidate, predicted in zip(candidates, found.predictions, strict=True):
        P = X * candidate.B
        gram = candidate.kernel(P, P)
        for i in range(0, 40, 7):
            others = np.arange(40) != i
            system = np.ones((40, 40))
            system[:-1, :-1] = gram[np.ix_(others, others)] + np.diag(candidate.nu / weights[others])
            system[-1, -1] = 0.0
            solution = np.linalg.solve(system, np.vstack([Y[others], np.zeros(K)]))
            assert_allclose(predicted[i] + offset, np.append(gram[i, others], 1.0) @ solution, rtol=1e-6, atol=1e-8)


def test_after_the_deadline_only_the_first_candidate_is_predicted():
    problem = _problem(40)
    late = replace(problem, deadline=0.0)
    candidates, found = _leave_one_out(late, late.rows, [DIAGONAL, IDENTITY])
    assert candidates == [DIAGONAL]
    assert_array_equal(found.n_parameters, [4.0])
    expected = _leave_one_out(problem, problem.rows, [DIAGONAL, IDENTITY])[1].predictions[0]
    assert_array_equal(found.predictions, [expected])


def test_candidates_whose_predictions_fail_are_left_out(monkeypatch):
    problem = _problem(40)
    failing = breaking(Evidence.leave_one_out, np.linalg.LinAlgError())
    monkeypatch.setattr(Evidence, "leave_one_out", failing)
    candidates, found = _leave_one_out(problem, problem.rows, [IDENTITY, DIAGONAL])
    assert candidates == [DIAGONAL]
    assert len(found.predictions) == 1
    monkeypatch.setattr(Evidence, "leave_one_out", breaking(failing, ArithmeticError()))
    assert _leave_one_out(problem, problem.rows, [IDENTITY]) == ([], None)


@pytest.mark.parametrize(("stacking", "nats"), [(LOG_LOSS, 1.0), (LEAST_SQUARES, 1.5)], ids=["classes", "regression"])
def test_the_choice_of_columns_counts_as_parameters(stacking, nats):
    """Test that two of four columns, which can be chosen in six ways, count as log(6) nats."""
    sparse = replace(DIAGONAL, B=np.array([0.9, 0.0, 0.1, 0.0]), shape=Diagonal(np.array([1.0, 0.0, 1.0, 0.0])))
    problem = _problem(40, stacking=stacking)
    _, found = _leave_one_out(problem, problem.rows, [DIAGONAL, sparse])
    assert_allclose(found.n_parameters, [4.0, sparse.degrees_of_freedom + math.log(6.0) / nats])
    assert found.price == stacking.price


@pytest.mark.parametrize(("n_used", "represented", "share"), [(40, None, 1.0), (10, None, 0.25), (10, 400.0, 0.025)])
def test_the_parameters_are_divided_among_the_rows(monkeypatch, n_used, represented, share):
    """Test that the numbers of parameters are multiplied by the fraction of the rows that is predicted."""
    monkeypatch.setattr(search_and_refit, "_WEIGHING_ROWS", n_used)
    problem = _problem(40, represented_weight=represented)
    _, found = _leave_one_out(problem, problem.rows, [IDENTITY, DIAGONAL])
    assert len(found.targets) == len(found.predictions[0]) == n_used
    assert_allclose(found.n_parameters, share * np.array([1.0, 4.0]))


# ------------------------------------------------------------------------------- all finalists


@pytest.mark.parametrize("deadline", [math.inf, 0.0])
@pytest.mark.parametrize("finalists", [(), (IDENTITY,), (DIAGONAL, IDENTITY)], ids=len)
def test_finalists_of_classes_always_have_left_out_predictions(finalists, deadline):
    """Test that predictions for a regression need several finalists and time, and that those for classes do not."""
    tuned = SimpleNamespace(finalists=finalists, winner=IDENTITY, omega=None)
    found = _weigh(_problem(40, deadline=deadline), tuned)
    n_expected = 1 if deadline == 0.0 else max(1, len(finalists))
    assert found.candidates == list(finalists or [IDENTITY])[:n_expected]
    assert len(found.left_out.predictions) == n_expected
    regression = _weigh(_problem(40, deadline=deadline, stacking=LEAST_SQUARES), tuned)
    assert (regression.left_out is None) == (n_expected == 1)


@pytest.mark.parametrize(("n_most", "n_crossed"), [(N, 2), (N - 1, 0)])
def test_flexible_maps_are_cross_fitted_only_if_there_are_few_rows(monkeypatch, n_most, n_crossed):
    monkeypatch.setattr(search_and_refit, "CROSS_FIT_ROWS", n_most)
    check = _Check(monkeypatch, [5.0] * n_crossed)
    monkeypatch.setattr(search_and_refit, "_FLEXIBLE_SHARE", 0.005)
    tuned = SimpleNamespace(finalists=(DIAGONAL, IDENTITY), winner=DIAGONAL, omega=None)
    found = _weigh(_problem(), tuned)
    assert [len(call) for call in check.calls] == [n_crossed] * (n_crossed > 0)
    assert_array_equal(found.left_out.n_parameters, [0.0, 0.0] if n_crossed else [4.0, 1.0])


def test_the_weights_of_some_finalists_are_those_without_the_others():
    tuned = SimpleNamespace(finalists=(DIAGONAL, IDENTITY, replace(IDENTITY, nu=5.0)), winner=DIAGONAL, omega=None)
    found = _weigh(_problem(40), tuned)
    some = found.among(np.array([2, 0]))
    assert_array_equal(some.predictions, [found.left_out.predictions[2], found.left_out.predictions[0]])
    assert_array_equal(some.n_parameters, found.left_out.n_parameters[[2, 0]])
    weights = found.weights(np.array([2, 0]))
    assert weights[1] == 0.0
    assert_array_equal(weights[[2, 0]], LOG_LOSS.weights(*some))


# ------------------------------------------------------------------------------- whole searches


@pytest.fixture
def quick(monkeypatch):
    """Reduce the numbers of iterations. The accuracy does not matter in tests with this fixture."""
    make_quick(monkeypatch)


def _fit(n=50, **options):
    X, Y, _ = _indicators(n)
    model = ClassScores(**{"n_init": 1, "n_jobs": 1, "random_state": 0} | options)
    try:
        return model.fit(X, Y)
    except KeyboardInterrupt as stop:
        return stop.model


def _stop_in(phase):
    return lambda state: state.phase is phase and state.n_components is not None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"time_limit": 1e-6},
        {"refit": 20},
        *({"callbacks": [_stop_in(phase)]} for phase in (Phase.KERNELS, Phase.WEIGHTS)),
    ],
    ids=["whole", "no time", "few centers", "in the kernels", "in the weights"],
)
def test_every_member_has_left_out_predictions(options):
    model = _fit(**options)
    _, Y, _ = _indicators(50)
    assert len(model.members_) == len(model.weights_) == len(model._left_out.predictions)
    assert len(model._left_out.n_parameters) == len(model.members_)
    # The rows are sorted, because copies of rows are merged.
    targets = model._left_out.targets + np.mean(Y, axis=0)
    assert_allclose(np.sort(targets, axis=0), np.sort(Y, axis=0), atol=1e-9)
    assert len(model.members_) == 1 if options.keys() & {"time_limit", "callbacks"} else len(model.members_) > 1
    assert all(np.all(np.isfinite(one)) for one in model._left_out.predictions)


@pytest.mark.usefixtures("quick")
def test_an_interrupted_search_has_left_out_predictions(monkeypatch, tmp_path):
    monkeypatch.setattr(search_and_refit, "final_fit", breaking(search_and_refit.final_fit, KeyboardInterrupt()))
    model = _fit(checkpoint=tmp_path / "fit")
    assert len(model.members_) == len(model._left_out.predictions) == 1
    truth = np.argmax(model._left_out.targets, axis=1)
    predicted = model._left_out.predictions[0] + np.mean(_indicators(50)[1], axis=0)
    assert np.mean(np.argmax(predicted, axis=1) == truth) > 0.6


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # a single row hardly depends on X
def test_a_rare_class_may_be_absent_from_the_rows_that_are_left_out(monkeypatch):
    """Test that a class without a row in the sample of left-out rows gets a small probability."""
    monkeypatch.setattr(search_and_refit, "_WEIGHING_ROWS", 40)
    X = np.random.default_rng(0).normal(size=(150, 2))
    y = np.zeros(150, dtype=int)
    y[3] = -1
    model = HyperKernelClassifier(n_init=1, n_jobs=1, random_state=0).fit(X, y)
    assert_array_equal(model.classes_, [-1, 0])
    # All rows that are left out belong to the other class.
    assert model.held_out_accuracy_ == 1.0
    assert model.held_out_log_loss_ < 0.1
    assert np.max(np.delete(model.predict_proba(X)[:, 0], 3)) < 0.2
