"""Tests of the diagnostics and of the warnings they cause."""

import contextlib
import dataclasses
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import hkrr
from hkrr import (
    EdgeWarning,
    FailedStartsWarning,
    FitError,
    HKRRWarning,
    HyperKernelRidge,
    HyperKernelRidgeCV,
    IllConditionedWarning,
    NotConvergedWarning,
    OverfitWarning,
    PoorFitWarning,
)
from hkrr.estimators.fitted.diagnostics import (
    Starts,
    condition_and_dimension,
    diagnose,
    fit_warnings_silenced,
    issue_warnings,
    repeat_solve,
)
from hkrr.kernels import Gaussian, Laplace
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from support.handmade_models import NO_FINDINGS


def _data(m=120, D=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=m)


def _hat_trace(K, K_cc, w, reg_lambda):
    """Return the trace of the hat matrix K (K' diag(w) K + lambda sum(w) K_cc)^-1 K' diag(w).

    K is the kernel matrix of rows and centers, K_cc that of the centers, and w are the weights of the rows.
    """
    A = K.T @ (w[:, None] * K) + reg_lambda * np.sum(w) * K_cc
    return np.trace(K @ np.linalg.solve(A, K.T * w))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reg_lambda", [1e-2, 1e-6])
@pytest.mark.parametrize("n_centers", [None, 20])
def test_effective_dimension_and_condition(n_centers, reg_lambda, weighted):
    """Test that the effective dimension is the trace of the hat matrix, and that the condition number equals NumPy's.

    The parameters cover all three linear systems: the system with all rows as centers, the normal equations, and the
    whitened normal equations.
    """
    X, y = _data()
    w = np.arange(1.0, 121.0) if weighted else None
    rows = InMemoryRows(X, y, w)
    B, kernel = np.eye(2, 4), Laplace(gamma=0.5)
    objective = Objective(rows, None if n_centers is None else X[:n_centers], kernel, reg_lambda)
    alpha, info = objective.solve(B)
    assert_allclose(alpha, objective.solve_alpha(B), rtol=1e-10)
    condition, effective = condition_and_dimension(info, rows)
    P = X @ B.T
    C = P if n_centers is None else P[:n_centers]
    weights = np.ones(120) if w is None else w
    assert effective == pytest.approx(_hat_trace(kernel(P, C), kernel(C, C), weights, reg_lambda), rel=1e-5)
    lower = np.tril(info.factor)
    exact = np.linalg.cond(lower @ lower.T, 1)
    # LAPACK's estimate of the condition number is a lower bound.
    assert exact / 10 < condition < exact * 1.01


def test_estimated_trace_for_many_centers():
    X, y = _data(700)
    objective = Objective(InMemoryRows(X, y), None, Laplace(gamma=0.5), 1e-3)
    _, info = objective.solve(np.eye(2, 4))
    P = X[:, :2]
    K = Laplace(gamma=0.5)(P, P)
    exact = np.trace(np.linalg.solve(K + 0.7 * np.eye(700), K))
    found = condition_and_dimension(info, objective.rows)[1]
    # The tolerance is five standard deviations of the estimate.
    assert abs(found - exact) < 5 * np.sqrt(exact / 32)
    assert found != pytest.approx(exact, rel=1e-9)


def test_diagnostics_of_a_fit():
    X, y = _data()
    model = HyperKernelRidge(1, n_init=3, random_state=0).fit(X, y)
    found = model.diagnostics_
    assert found.explained_share == pytest.approx(model.score(X, y), abs=1e-9)
    assert (found.starts_tried, found.starts_dropped, found.starts_failed) == (3, 2, 0)
    assert (found.truncated_share, found.at_edge, found.stopped) == (None, (), model.result_.reason)
    assert found.findings() == []
    assert (found.n_rows, found.n_centers) == (120, 120)
    assert all(
        isinstance(value, float | int | str | bool | tuple | None) for value in dataclasses.asdict(found).values()
    )


def test_diagnostics_of_a_search_and_of_a_grid():
    X, y = _data()
    model = HyperKernelRidgeCV(n_init=1, random_state=0).fit(X, y)
    assert model.diagnostics_.starts_tried == len(model.path_["start"])
    assert model.diagnostics_.truncated_share == 0.0
    with pytest.warns(EdgeWarning, match="reg_lambdas") as caught:
        model = HyperKernelRidgeCV(
            1, cv=2, criterion="training", reg_lambdas=[10.0, 1.0], n_init=1, random_state=0
        ).fit(X, y)
    assert model.diagnostics_.at_edge == ("reg_lambdas",)
    # Only the final fit issues a warning, not the fits of the grid.
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_rows_of_weight_zero_do_not_count_as_truncated_after_a_grid_search():
    X, _ = _data()
    y, w = X[:, 0], np.arange(120) % 2
    X = np.where(w[:, None] == 0, 10.0 * X, X)
    options = {"cv": 2, "criterion": "training", "reg_lambdas": [1e-6], "n_init": 1, "random_state": 0}
    model = HyperKernelRidgeCV(1, kernel="linear", **options).fit(X, y, sample_weight=w)
    assert model.diagnostics_.overshooting_share == 0.0


def test_n_components_at_an_edge():
    X, _ = _data(150)
    y = X[:, 0] * X[:, 1]
    options = {"cv": 2, "criterion": "training", "reg_lambdas": [1e-2], "n_init": 2, "random_state": 0}
    with pytest.warns(EdgeWarning, match="n_components"):
        HyperKernelRidgeCV([1, 2], **options).fit(X, y)
    with pytest.warns(PoorFitWarning) as caught:
        HyperKernelRidgeCV([1], **{**options, "reg_lambdas": [1e6]}).fit(X, y)
    assert [warning.category for warning in caught] == [PoorFitWarning]


@pytest.mark.parametrize(
    ("change", "category", "says"),
    [
        ({"digits": 1.0, "condition": 1e15}, IllConditionedWarning, "raise reg_lambda"),
        ({"digits": float("nan")}, IllConditionedWarning, "raise reg_lambda"),
        ({"jitter": 1e-6}, IllConditionedWarning, "not positive definite"),
        ({"at_edge": ("gamma",)}, EdgeWarning, "gamma_"),
        ({"truncated_share": 0.6, "overshooting_share": 0.4}, PoorFitWarning, "40% of the training rows"),
        ({"explained_share": 1e-5}, PoorFitWarning, "explains almost none"),
        ({"adjusted_share": 0.05}, OverfitWarning, "explains 90% .* effective dimension of 5.*raise reg_lambda"),
        ({"starts_failed": 8}, FailedStartsWarning, "8 of 10 starting maps"),
        ({"still_falling": True}, NotConvergedWarning, "raise max_iter"),
    ],
)
def test_warnings(change, category, says):
    found = dataclasses.replace(NO_FINDINGS, **change)
    with pytest.warns(category, match=says) as caught:
        issue_warnings(found)
    assert len(caught) == 1
    assert issubclass(category, HKRRWarning)
    assert says.split()[-1] in str(found)


@pytest.mark.parametrize(
    "change", [{}, {"at_edge": ("reg_lambda",)}, {"explained_share": None}, {"jitter": 1e-13}, {"truncated_share": 0.4}]
)
def test_no_warnings(change):
    issue_warnings(dataclasses.replace(NO_FINDINGS, **change))
    assert "!" not in str(dataclasses.replace(NO_FINDINGS, **change))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "effective dimension      5.0"),
        ({"n_rows": 3000, "n_centers": 40}, "rows                     3,000, with 40 centers"),
        ({"n_rows": 40, "n_centers": 40}, "rows                     40 distinct, with 40 centers"),
        ({"n_rows": 3000, "n_centers": 40}, "effective dimension      5.0, at most 40 (the number of centers)"),
        ({}, "variance explained       90% on the training rows"),
        ({"explained_share": None}, "variance explained       undefined, because y is constant"),
        ({}, "clipped predictions      not used"),
        (
            {"truncated_share": 0.02, "overshooting_share": 0.0},
            "clipped predictions      2% of the training rows; far outside the range: 0%",
        ),
        (
            {"stopped": "stalled"},
            "stopped                  stalled: no step lowers the objective further, which is the usual end of a run",
        ),
        ({"stopped": "bored"}, "stopped                  bored: see result_.message"),
    ],
)
def test_text(change, line):
    assert line in str(dataclasses.replace(NO_FINDINGS, **change)).splitlines()


def test_silenced_warnings():
    with fit_warnings_silenced():
        issue_warnings(dataclasses.replace(NO_FINDINGS, still_falling=True))


@pytest.mark.parametrize("gamma", [1e-12, 1e12])
def test_extreme_gamma(gamma):
    X, y = _data()
    with pytest.warns(HKRRWarning) as caught:
        model = HyperKernelRidge(1, gamma=gamma, max_iter=0, n_init=1, random_state=0).fit(X, y)
    assert model.diagnostics_.at_edge == ("gamma",)
    assert {warning.category for warning in caught} <= {EdgeWarning, PoorFitWarning}


def test_not_converged():
    X, y = _data(200)
    fit = HyperKernelRidge(2, solver="varpro", reg_lambda=1e-4, n_centers=10, n_init=1, max_iter=50, random_state=0).fit
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fit(X, y).diagnostics_
    assert found.still_falling == any(warning.category is NotConvergedWarning for warning in caught)
    assert found.stopped == "max_iter"


@pytest.mark.parametrize(("constant", "refused"), [(0.0, False), (0.1, True), (np.nan, True)])
def test_a_fit_worse_than_the_mean_is_an_error(constant, refused):
    X, y = _data()
    model = HyperKernelRidge(1, n_init=1, random_state=0).fit(X, y)
    rows = InMemoryRows(X, y).with_coordinates(None, None, np.array([y.mean()]))
    objective = Objective(rows, None, Gaussian(gamma=1.0), 0.1)

    def predict(sample):
        return np.full(sample.n_rows, y.mean() + constant)

    solve = repeat_solve(rows, objective, model.result_)[0]
    expected = pytest.raises(FitError, match="worse than the mean of y") if refused else contextlib.nullcontext()
    with expected:
        diagnose(rows, objective, model.result_, predict, Starts(), solve=solve)


@pytest.mark.parametrize("far", [0, 12, 30])
def test_overshooting_of_a_bounded_target(far):
    """For targets -1 and 1, `far` predictions are 2 or -2 and the other predictions are 1.2 or -1.2.

    Only 2 and -2 count as overshooting. There is a warning if more than a tenth of the predictions overshoot.
    """
    X, y = _data()
    y = np.sign(y)
    model = HyperKernelRidge(1, n_init=1, random_state=0).fit(X, y)
    rows = InMemoryRows(X, y)
    objective = Objective(rows, None, Gaussian(gamma=1.0), 0.1)
    predicted = y * np.where(np.arange(120) < far, 2.0, 1.2)
    solve = repeat_solve(rows, objective, model.result_)[0]
    found = diagnose(rows, objective, model.result_, lambda sample: predicted, Starts(), truncation=1.0, solve=solve)
    assert (found.truncated_share, found.overshooting_share) == (1.0, far / 120)
    assert [category for category, _ in found.findings()] == [PoorFitWarning] * (far == 30)


def test_diagnostics_are_saved(tmp_path):
    X, y = _data(40)
    model = HyperKernelRidge(1, n_init=1, random_state=0).fit(X, y)
    hkrr.save(model, tmp_path / "model")
    assert hkrr.load(tmp_path / "model").diagnostics_ == model.diagnostics_


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_overfit_warning(seed):
    """If X and y are independent, the model overfits, and a warning is issued."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(120, 10)), rng.normal(size=120)
    with pytest.warns(OverfitWarning, match=r"explains \d\d% .* use criterion='evidence', reg_lambda='auto'"):
        found = HyperKernelRidge(n_init=2, max_iter=50, random_state=0).fit(X, y).diagnostics_
    assert found.explained_share > 0.9
    assert found.adjusted_share < 0.1


def test_adjusted_share():
    """The adjusted share matches its formula, which contains the number of parameters of the learned map.

    A map that was given, and not learned, has no parameters in this formula.
    """
    X, y = _data()
    learned = HyperKernelRidge(2, n_init=2, random_state=0).fit(X, y)
    given = HyperKernelRidge(2, init=learned.components_, gamma=learned.gamma_, max_iter=0).fit(X, y)
    for model, parameters in ((learned, 2 * 4 - 1), (given, 0)):
        found = model.diagnostics_
        free = 1.0 - (found.effective_dimension + parameters) / len(X)
        assert found.adjusted_share == pytest.approx(1.0 - (1.0 - found.explained_share) / free**2)
        assert found.adjusted_share > 0.5
