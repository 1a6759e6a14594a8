"""Diagnostics of a fitted model: the numbers in `hkrr.Diagnostics`, how they are computed, and the warnings they cause.

The linear solve. Let K be the kernel matrix between the rows and the c centers, K_cc the kernel matrix of the centers,
and kappa the largest value of k(x, x) at the centers. Let w be the sample weights, D = diag(w), and W their sum. The
coefficients are the solution of a linear system with a positive definite matrix A. R is the part of A that comes from
lambda:

    all rows are centers                     A = sqrt(D) K sqrt(D) + lambda W I,    R = lambda W I
    otherwise, if lambda >= 1e-4 kappa       A = K'DK / W + lambda K_cc,            R = lambda K_cc
    otherwise, if lambda < 1e-4 kappa        A = T^-1 K'DK T^-T / W + lambda I,     R = lambda I    (T T' = K_cc)

The effective dimension, or degrees of freedom of the function, is the trace of the hat matrix. With L the Cholesky
factor of A, it is ``d_eff = tr A^-1 (A - R) = c - tr L^-1 R L^-T``. For more than 512 centers the last trace is
estimated by Hutchinson's method, as the average of ``z' L^-1 R L^-T z`` over 64 random sign vectors z. The eigenvalues
of the hat matrix lie between 0 and 1, so the standard deviation of this estimate is at most ``sqrt(d_eff / 32)``. The
condition number of A is estimated by LAPACK in the 1-norm.

Overfitting. The leave-one-out error at a fixed map does not reveal overfitting, because the map was learned from the
row that is left out. Generalized cross-validation is used instead. It counts the parameters of the map together with
the effective dimension; see `adjusted_share`.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpocon

from hkrr._base.linear_algebra import EPS, Array, SolveInfo, project
from hkrr._base.resume_journal import step
from hkrr._base.threads import blas_for
from hkrr._maps import Full, Shape
from hkrr._storage.json_codec import storable
from hkrr.criteria import Criterion
from hkrr.estimators.fitted.conformal import Uncertainty, estimate_uncertainty
from hkrr.exceptions import (
    EdgeWarning,
    FailedStartsWarning,
    FitError,
    HKRRWarning,
    IllConditionedWarning,
    NotConvergedWarning,
    OverfitWarning,
    PoorFitWarning,
)
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.rows import Rows
from hkrr.rows.base import targets, weights
from hkrr.solvers import Result, at_bound
from hkrr.solvers.driver import StopReason

# Thresholds of the warnings.
# Smallest value of `Diagnostics.digits` that causes no warning.
_MIN_DIGITS = 3.0
# Largest value of `Diagnostics.jitter` that causes no warning.
_MAX_JITTER = 1e-8
# A prediction overshoots if its absolute value exceeds 1.5 `truncation_`. If more than a tenth of the rows overshoot, a
# warning is issued.
_OVERSHOOT, _MAX_OVERSHOOTING_SHARE = 1.5, 0.1
# Smallest value of `Diagnostics.explained_share` that causes no warning.
_MIN_EXPLAINED = 1e-3
# A model overfits if `explained_share` is above the first value and `adjusted_share` is below the second value.
_OVERFIT_EXPLAINED, _OVERFIT_ADJUSTED = 0.4, 0.1

# Explanation of each value of ``result_.reason``.
STOP_REASONS: dict[str, str] = {
    StopReason.CONVERGED: "the gradient is close to zero",
    StopReason.STALLED: "no step lowers the objective further, which is the usual end of a run",
    StopReason.MAX_ITER: "the maximum number of iterations was reached",
    StopReason.TIME_LIMIT: "the time limit was reached",
    StopReason.CALLBACK: "a callback requested the stop",
    StopReason.INTERRUPTED: "the user pressed Ctrl-C",
}


@storable
@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of a fitted model. Printing the object shows them as a report.

    Attributes
    ----------
    condition : float
        Condition number of the linear system that gave the coefficients, estimated by LAPACK in the 1-norm.
    digits : float
        Number of decimal digits of the fitted function that rounding errors cannot affect: ``-log10(eps condition)``,
        where eps is the machine epsilon. A large condition number can be harmless. If all rows are centers, `digits` is
        therefore at least ``-log10(eps |A| |a| / |y|)``. Here A is the matrix of the linear system, ``|A|`` its 1-norm,
        a its solution, y its right-hand side (the targets), and ``|a|`` and ``|y|`` are Euclidean norms. With fewer
        centers than rows (Nystrom) and lambda >= 1e-4, `digits` is at least about ``-log10(eps / lambda^2)``, even if
        centers are nearly identical. This holds for kernels with k(x, x) = 1.
    jitter : float
        Amount that was added to the diagonal of a matrix, in addition to lambda, to make the matrix positive definite.
        The amount is relative to the largest entry of that diagonal. With fewer centers than rows (Nystrom), it is at
        least 2e-16 times the number of centers, or 2e-15 times this number if lambda is below 1e-4 times the largest
        value of k(x, x).
    effective_dimension : float
        Trace of the hat matrix: the degrees of freedom of the function. It is at most the number of centers.
    explained_share : float or None
        Fraction of the variance of y that the model explains on the training rows. With more than 20,000 training rows,
        a sample of 20,000 rows is used. None if y is constant.
    truncated_share : float or None
        Among the rows used for `explained_share`, the fraction whose prediction is truncated at ``truncation_``. None
        if predictions are not truncated.
    overshooting_share : float or None
        Among the rows used for `explained_share`, the fraction whose prediction before truncation exceeds 1.5
        ``truncation_`` in absolute value. A smaller excess is common if the target is bounded. None if predictions are
        not truncated.
    starts_tried, starts_dropped, starts_failed : int
        Numbers of starting maps: all maps that were tried, maps that were dropped early because other maps were better,
        and maps at which the objective could not be evaluated. Dropped maps are not a problem. For a search with a time
        limit, `starts_dropped` includes the failed maps.
    stopped : str
        Why the solver stopped; the same as ``result_.reason``.
    still_falling : bool
        Whether the run stopped at `max_iter`, after at least 50 iterations, while the objective was still falling. The
        objective is still falling if the last fifth of the iterations lowered it by more than 1% of the loss of
        predicting the mean.
    at_edge : tuple of str
        Names of the quantities that ended at an edge of their range. Empty if y is constant.

        - "reg_lambda": the learned lambda is at its bound, 1e-12 or 1e3.
        - "reg_lambdas": the chosen lambda is the smallest or the largest value of the grid.
        - "n_components": the chosen number of directions is the smallest or the largest number that was tried, and a
          smaller or larger number is possible.
        - "gamma": the kernel does not distinguish rows. The correlations ``k(x, z) / sqrt(k(x, x) k(z, z))`` between
          different points are all 1 or all 0.
    adjusted_share : float or None
        Estimate of the fraction of the variance of y that the model explains on new rows, by generalized
        cross-validation that also counts the parameters of the map. For n rows and a map with p parameters, it is ``1 -
        (1 - explained_share) / f^2``, but at least -1, where ``f = (n - effective_dimension - p) / n``. A full map from
        D linearly independent columns to d directions has ``p = d D - d (d - 1) / 2`` parameters if the kernel is
        rotation invariant, and ``p = d D`` otherwise. If p exceeds half of ``n - effective_dimension``, this half is
        used as p. None if `explained_share` is None, if there are fewer than 100 rows, or if the function interpolates
        all rows.
    remedies : tuple of str
        Names of the parameters of the estimator that could improve the fit. Warnings suggest changes of these
        parameters only.
    outliers : tuple of int
        Indices of at most 100 training rows whose targets are outliers, the largest residual first.
        `HyperKernelRidgeCV` gives outliers a small weight, by a heavy-tailed (Student-t) noise model.
    n_outliers : int
        Number of outliers.
    n_rows, n_centers : int or None
        Number of training rows with positive weight, and number of centers. If all rows are centers, identical rows
        are counted once. None if the model was loaded from a file that does not contain these numbers.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(200, n_features=5, n_components=2, random_state=0)
    >>> found = HyperKernelRidge(2, random_state=0).fit(data.X, data.y).diagnostics_
    >>> found.explained_share > 0.9, found.starts_failed, found.findings()
    (True, 0, [])
    """

    condition: float
    digits: float
    jitter: float
    effective_dimension: float
    explained_share: float | None
    truncated_share: float | None
    overshooting_share: float | None
    starts_tried: int
    starts_dropped: int
    starts_failed: int
    stopped: str
    still_falling: bool
    at_edge: tuple[str, ...]
    remedies: tuple[str, ...] = ()
    n_rows: int | None = None
    n_centers: int | None = None
    adjusted_share: float | None = None
    outliers: tuple[int, ...] = ()
    n_outliers: int = 0

    @property
    def named_outliers(self) -> str:
        """Text with the number of outliers and the indices of the rows with the largest residuals."""
        rows = ", ".join(str(k) for k in self.outliers[:_NAMED_OUTLIERS])
        more = ", ..." if self.n_outliers > _NAMED_OUTLIERS else ""
        return f"{self.n_outliers:,} ({'row' if self.n_outliers == 1 else 'rows'} {rows}{more}), with small weights"

    def findings(self) -> list[tuple[type[HKRRWarning], str]]:
        """Return the problems found: the category and the message of every warning that `fit` issued."""
        return [(category, message) for applies, category, message in _possible_findings(self) if applies]

    def figures(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name, the value and the meaning of each diagnostic, as text."""

        def percent(value: float) -> str:
            return f"{100.0 * value:.3g}%"

        dimension = f"{self.effective_dimension:.1f}"
        if self.n_rows is not None and self.n_centers is not None:
            # If all rows are centers, identical rows are merged. Then n_rows can be smaller than the length of X.
            distinct = " distinct" if self.n_rows == self.n_centers else ""
            rows = f"{self.n_rows:,}{distinct}, with {self.n_centers:,} centers"
            yield "rows", rows, "Rows of the fit, and centers of the fitted function."
            dimension += f", at most {self.n_centers:,} (the number of centers)"
        yield "reliable digits", f"{self.digits:.1f}", "Decimal digits of a prediction that rounding does not affect."
        yield (
            "condition number",
            f"{self.condition:.2g}",
            "How much solving the equations can magnify rounding errors. Above 1e12 is large.",
        )
        yield (
            "jitter",
            f"{self.jitter:.2g}",
            "Relative amount added to the diagonal of a matrix so that the equations could be solved.",
        )
        yield (
            "effective dimension",
            dimension,
            "Degrees of freedom of the fitted function. If they are close to the number of rows, it can fit noise.",
        )
        explained = "undefined, because y is constant"
        if self.explained_share is not None:
            explained = f"{percent(self.explained_share)} on the training rows"
            if self.outliers:
                explained += ", where outliers have small weights"
        yield (
            "variance explained",
            explained,
            "Fraction of the target's variance explained on the rows of the fit. On new rows, it is smaller.",
        )
        if self.explained_share is not None and self.adjusted_share is not None:
            yield (
                "adjusted for parameters",
                percent(self.adjusted_share),
                "Estimate of the fraction explained on new rows, corrected for the number of fitted parameters.",
            )
        truncated = "not used"
        if self.truncated_share is not None:
            far = percent(self.overshooting_share or 0.0)
            truncated = f"{percent(self.truncated_share)} of the training rows; far outside the range: {far}"
        yield (
            "clipped predictions",
            truncated,
            "Fraction of the rows of the fit whose prediction was outside the allowed range and was clipped.",
        )
        yield (
            "starting maps",
            f"{self.starts_tried} tried, {self.starts_dropped} dropped early, {self.starts_failed} failed",
            "The optimization is run from several maps, because a single run can end in a poor local minimum.",
        )
        yield (
            "stopped",
            f"{self.stopped}: {STOP_REASONS.get(self.stopped, 'see result_.message')}",
            "Why the optimization ended.",
        )
        yield (
            "at the edge of a range",
            ", ".join(self.at_edge) or "no parameter",
            "Quantities whose chosen value is the smallest or the largest that was allowed.",
        )
        if self.n_outliers:
            yield "outliers in y", self.named_outliers, "Rows whose targets are outliers, counted from 0."

    def __str__(self) -> str:
        lines = [f"{name:<25}{value}" for name, value, _ in self.figures()]
        return "\n".join([*lines, *(f"! {message}" for _, message in self.findings())])


# Advice given in warnings. Each key is the name of the parameter to change.
_SCALE_FEATURES = {"scale_features": "use scale_features=True"}
_MORE_PENALTY = {"reg_lambda": "raise reg_lambda", "reg_lambdas": "use larger reg_lambdas"}
_LESS_PENALTY = {"reg_lambda": "lower reg_lambda", "reg_lambdas": "use smaller reg_lambdas"}
_FEWER_PARAMETERS = {
    **_MORE_PENALTY,
    "criterion": "use criterion='evidence', reg_lambda='auto'",
    "n_components": "lower n_components",
}

# For each name in `Diagnostics.at_edge`: the message, the advice by parameter, and the advice if no parameter can help.
# A learned lambda at its bound has no message. Lambda reaches its lower bound whenever y has no noise. This is not a
# problem. Lambda reaches its upper bound if the model explains nothing. A separate warning reports this case.
_EDGES: dict[str, tuple[str, dict[str, str], str]] = {
    "reg_lambda": ("", {}, ""),
    "reg_lambdas": (
        "reg_lambda_ is the smallest or the largest value of its grid, so a better value may lie outside the grid: ",
        {"reg_lambdas": "extend reg_lambdas"},
        "",
    ),
    "n_components": (
        "n_components_ is the smallest or the largest number of directions that was tried, so a number outside that "
        "range may be better: ",
        {"n_components": "extend the range of n_components", "time_limit": "raise time_limit"},
        "",
    ),
    "gamma": (
        "the kernel scale gamma_ is either so small that the kernel treats all rows as identical, or so large that the "
        "kernel treats no two rows as similar. Predictions for new rows are the mean of y. Check that y depends on X, "
        "or ",
        {
            "gamma": "use a different gamma",
            **_SCALE_FEATURES,
            **_MORE_PENALTY,
            "criterion": "use criterion='evidence'",
        },
        "use a different kernel",
    ),
}


def _possible_findings(found: Diagnostics) -> Iterator[tuple[bool, type[HKRRWarning], str]]:
    """Yield every possible finding: whether it applies to this fit, the category of its warning, and its message."""

    def advice(by_parameter: dict[str, str], otherwise: str = "") -> str:
        """Return the advice on all parameters that can still improve this fit, or `otherwise` if there are none."""
        return ", or ".join([by_parameter[name] for name in by_parameter if name in found.remedies]) or otherwise

    yield (
        not found.digits >= _MIN_DIGITS,
        IllConditionedWarning,
        f"the linear system for the coefficients has condition number {found.condition:.1g} (reliable digits of the "
        f"predictions: {max(found.digits, 0.0):.0f}), so the model may differ between machines; "
        + advice(_MORE_PENALTY, "use a less smooth kernel"),
    )
    yield (
        found.jitter > _MAX_JITTER,
        IllConditionedWarning,
        f"a kernel matrix was not positive definite, so {found.jitter:.1g} times its largest diagonal entry was added "
        "to its diagonal. The model is therefore smoother than reg_lambda_ implies; "
        + advice({**_SCALE_FEATURES, **_MORE_PENALTY}, "use a less smooth kernel"),
    )
    poor = found.explained_share is not None and found.explained_share < _MIN_EXPLAINED
    for name in found.at_edge:
        message, remedies, otherwise = _EDGES[name]
        yield not poor and message != "", EdgeWarning, message + advice(remedies, otherwise)
    yield (
        (found.overshooting_share or 0.0) > _MAX_OVERSHOOTING_SHARE,
        PoorFitWarning,
        f"before truncation, the predictions exceed {_OVERSHOOT} times truncation_ on "
        f"{100.0 * (found.overshooting_share or 0.0):.0f}% of the training rows, far outside the range of y: check the "
        "targets for outliers, or " + advice(_MORE_PENALTY, "use a smoother kernel"),
    )
    yield (
        poor,
        PoorFitWarning,
        "the model explains almost none of the variance of y on its training rows: check that y depends on X, "
        "and that no single target dominates all other targets, or " + advice(_LESS_PENALTY, "use a different kernel"),
    )
    explained, adjusted = found.explained_share, found.adjusted_share
    yield (
        explained is not None
        and adjusted is not None
        and explained > _OVERFIT_EXPLAINED
        and adjusted < _OVERFIT_ADJUSTED
        # If gamma is at an edge, only the warning about gamma is issued, which is more specific.
        and "gamma" not in found.at_edge,
        OverfitWarning,
        f"the model explains {100.0 * (explained or 0.0):.0f}% of the variance of y on its training rows, but it has "
        f"so many parameters (an effective dimension of {found.effective_dimension:.0f}, plus the parameters of the "
        "map) that it may explain almost nothing on new rows: check the score on held-out rows, or "
        + advice(_FEWER_PARAMETERS, "use more rows, or fewer columns"),
    )
    yield (
        found.starts_failed > found.starts_tried / 2,
        FailedStartsWarning,
        f"the objective could not be evaluated at {found.starts_failed} of {found.starts_tried} starting maps: check "
        "the scale of X and y, or " + advice({**_SCALE_FEATURES, "n_init": "raise n_init"}),
    )
    yield (
        found.still_falling,
        NotConvergedWarning,
        "the maximum number of iterations was reached while the objective was still falling: "
        + advice(
            {"max_iter": "raise max_iter", "solver": "use solver='lbfgs'"},
            "raise n_init to try more starting maps",
        ),
    )


_warnings_enabled: ContextVar[bool] = ContextVar("warnings_enabled", default=True)


@contextmanager
def fit_warnings_silenced() -> Iterator[None]:
    """Suppress the warnings of the fits inside this context, such as the intermediate fits of a search."""
    token = _warnings_enabled.set(False)
    try:
        yield
    finally:
        _warnings_enabled.reset(token)


def issue_warnings(found: Diagnostics) -> None:
    """Issue a warning for every finding. The warning points to the line of the user's code that called `fit`."""
    if not _warnings_enabled.get():
        return
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("hkrr."):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]  # f_back of the outermost frame is None
    for category, message in found.findings():
        warnings.warn(message, category, stacklevel=level)


# Maximum number of centers for which the effective dimension is computed exactly.
_EXACT_TRACE_CENTERS = 512
# Number of random vectors with which the effective dimension is estimated for a larger number of centers.
_TRACE_PROBES = 64


@storable
class SolveDiagnostics(NamedTuple):
    """Diagnostics of a linear solve. They are plain numbers, so that a checkpoint can store them.

    The first three fields are explained in `Diagnostics`, and `condition_bound` in
    `hkrr._base.linear_algebra.SolveInfo`.
    """

    condition: float
    effective_dimension: float
    jitter: float
    condition_bound: float


def repeat_solve(
    rows: Rows, objective: Objective | Criterion, result: Result
) -> tuple[SolveDiagnostics, Uncertainty | None]:
    """Solve for the coefficients of a finished run once more, and return the diagnostics and the uncertainty.

    The time is about half the time of one evaluation of the objective. If the system cannot be solved again, the
    condition number is infinite and the uncertainty is None.
    """

    def compute() -> tuple[SolveDiagnostics, Uncertainty | None]:
        info, uncertainty = SolveInfo(), None
        last = Objective(rows, None if objective.exact else objective.centers, objective.kernel, result.reg_lambda)
        with np.errstate(all="ignore"), blas_for(len(objective.centers)):
            try:
                solution, info = last.solve(result.B)
                uncertainty = estimate_uncertainty(last, result.B, result.alpha, solution, info, Full())
            except (ArithmeticError, np.linalg.LinAlgError):
                info = SolveInfo()
            return solve_diagnostics(info, rows), uncertainty

    return step(("repeated solve", objective.content, result.B, result.reg_lambda), compute)


def solve_diagnostics(info: SolveInfo, rows: Rows) -> SolveDiagnostics:
    """Return the diagnostics of a linear solve. `rows` copies the arrays of `info` from the device if necessary."""
    with np.errstate(all="ignore"):
        condition, dimension = condition_and_dimension(info, rows)
        return SolveDiagnostics(condition, dimension, float(info.jitter), float(info.condition_bound))


def condition_and_dimension(info: SolveInfo, rows: Rows) -> tuple[float, float]:
    """Return the condition number of a linear system, and the effective dimension of the function."""
    if info.factor is None:
        return math.inf, math.nan
    # The computation runs on the CPU, because it needs only one transfer of a c x c matrix, and O(c^2) operations for
    # each of the random vectors.
    factor = rows.fetch(info.factor)[0]
    # LAPACK accepts the memory order of the transpose without a copy.
    upper = factor.T
    reciprocal, _ = dpocon(upper, info.norm, uplo="U")
    c = len(factor)
    estimated = c > _EXACT_TRACE_CENTERS
    Z = _fixed_rng().choice([-1.0, 1.0], (c, _TRACE_PROBES)) if estimated else np.eye(c)
    half = solve_triangular(upper, Z, check_finite=False)  # L^-T Z
    trace = np.vdot(half, info.penalize(half)) / (_TRACE_PROBES if estimated else 1)
    return 1.0 / reciprocal if reciprocal > 0 else math.inf, float(np.clip(c - trace, 0.0, c))


def _fixed_rng() -> np.random.RandomState:
    """Return a generator with a fixed seed, so that diagnostics do not advance the random state of the user."""
    return np.random.RandomState(0)


# Maximum numbers of outliers in `Diagnostics.outliers`, and in the printed report.
_LISTED_OUTLIERS, _NAMED_OUTLIERS = 100, 5
# Maximum number of training rows on which predictions are checked.
_SAMPLE_ROWS = 20_000
# Maximum number of rows used to count the linearly independent columns.
_RANK_ROWS = 2_000
# Minimum number of rows for `adjusted_share`. With fewer rows, the estimate of the error is too rough.
_MIN_ROWS_FOR_OVERFITTING = 100
# Minimum of ``(n - effective_dimension) / n`` for `adjusted_share`. If this fraction is smaller, the residuals consist
# of rounding errors, and `adjusted_share` is None.
_MIN_FREEDOM = 1e-3
# The check of gamma compares at most 200 rows with at most 200 centers, and needs at least 10 distinct rows.
_COMPARED_POINTS, _MIN_DISTINCT_POINTS = 200, 10
# Gamma is at an edge if all correlations are close to 1, or all are close to 0, up to this tolerance.
_CORRELATION_TOL = 1e-6
# Parameters of `still_falling`: the minimum number of iterations, the fraction of the iterations that is examined at
# the end of the run, and the minimum decrease of the objective during these last iterations, relative to the loss of
# predicting the mean.
_MIN_ITERATIONS, _LAST_PART, _MIN_FALL = 50, 0.2, 0.01
# Relative amounts by which the training error may exceed the error of zero coefficients: the first is for the error on
# all rows, and the second for the error on a sample.
_ERROR_TOL, _ERROR_TOL_SAMPLE = 1e-7, 1e-2

_ROUNDING_MESSAGE = (
    "The coefficients consist of rounding errors: on the training rows, the predictions are worse than the mean of y. "
    "Raise reg_lambda, use scale_features=True, or use a bounded kernel such as 'gaussian'."
)

# The type of a function that returns the predictions of a fitted model for rows.
Predict = Callable[[Rows], Array]


@storable
class Starts(NamedTuple):
    """Numbers of starting maps that were tried, dropped and failed, as in `Diagnostics`."""

    tried: int = 1
    dropped: int = 0
    failed: int = 0


def diagnose(
    rows: Rows,
    objective: Objective | Criterion,
    result: Result,
    predict: Predict,
    starts: Starts,
    *,
    edges: tuple[str, ...] = (),
    truncation: float | Array | None = None,
    solve: SolveDiagnostics,
    map_parameters: float | None = None,
) -> Diagnostics:
    """Return the diagnostics of a fitted model.

    `predict` returns the predictions before truncation. `truncation` is None if predictions are not truncated. `edges`
    are entries of `Diagnostics.at_edge` that the caller has found; further entries can be added. `map_parameters` is
    the number of parameters of the map. None means the number for a full map (any d x D matrix), or 0 if the solver
    made no iteration.

    If the error on the training rows is larger than with zero coefficients, the coefficients consist of rounding
    errors, and a FitError is raised.
    """
    if objective.learn_lambda and at_bound(result.reg_lambda):
        edges = (*edges, "reg_lambda")
    kernel, B = objective.kernel, result.B
    if map_parameters is None:
        map_parameters = _count_parameters(rows, B, kernel) if result.n_iter > 0 else 0.0
    all_rows = rows.n_rows <= _SAMPLE_ROWS
    with np.errstate(all="ignore"), blas_for(len(objective.centers)):
        sample: Rows = rows if all_rows else rows.sample(_SAMPLE_ROWS, _fixed_rng())
        tol = _ERROR_TOL if all_rows else _ERROR_TOL_SAMPLE
        explained, truncated, overshooting = _sample_shares(sample, predict, truncation, tol)
        if not _kernel_discriminates(sample, kernel, B, project(objective.centers, B)):
            edges = (*edges, "gamma")
    if explained is None:
        # Every parameter value fits a constant target equally well, so values at an edge are not a problem.
        edges = ()
    return Diagnostics(
        condition=solve.condition,
        digits=-math.log10(EPS * min(solve.condition, solve.condition_bound)),
        jitter=solve.jitter,
        effective_dimension=solve.effective_dimension,
        explained_share=explained,
        truncated_share=truncated,
        overshooting_share=overshooting,
        starts_tried=starts.tried,
        starts_dropped=starts.dropped,
        starts_failed=starts.failed,
        stopped=result.reason,
        still_falling=_is_still_falling(result, objective.loss_at_zero),
        at_edge=edges,
        n_rows=rows.n_counted,
        n_centers=len(objective.centers),
        adjusted_share=adjusted_share(explained, solve.effective_dimension, map_parameters, rows.n_counted),
    )


def _count_parameters(rows: Rows, B: Array, kernel: Kernel) -> float:
    """Return the number of identifiable parameters of a full map with as many directions as B.

    Only linearly independent columns that are not constant count.
    """
    sample = rows.sample(_RANK_ROWS, _fixed_rng()).count_free_columns()
    return Full().degrees_of_freedom(len(B), sample.n_free_columns, kernel.rotation_invariant)


class SearchCandidate(Protocol):
    """The attributes of a candidate (one of the models that a search compares) that `diagnose_search` uses."""

    @property
    def dropped(self) -> bool: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def value(self) -> float: ...
    @property
    def n_components(self) -> int: ...
    @property
    def degrees_of_freedom(self) -> float: ...
    @property
    def lambda_at_bound(self) -> bool: ...


def diagnose_search(
    rows: Rows,
    objective: Objective | Criterion,
    result: Result,
    predict: Predict,
    winner: SearchCandidate,
    candidates: Sequence[SearchCandidate],
    *,
    given: Sequence[int] | None,
    time_limited: bool,
    truncation: float | Array | None,
    solve: SolveDiagnostics,
    outliers: Sequence[int] = (),
) -> Diagnostics:
    """Return the diagnostics of the model that a search has chosen from several candidates. See `diagnose`.

    `given` holds the values from which the search had to choose the number of directions. None means any number. If the
    search had a time limit, candidates without a value are reported as dropped instead of failed, because there may
    have been no time to evaluate them. The outliers are row indices, the largest residual first.
    """
    failed = sum(not math.isfinite(candidate.value) for candidate in candidates)
    dropped = sum(candidate.dropped and math.isfinite(candidate.value) for candidate in candidates)
    starts = Starts(len(candidates), dropped + failed, 0) if time_limited else Starts(len(candidates), dropped, failed)
    edges: tuple[str, ...] = ()
    if given is not None and isinstance(winner.shape, Full):
        edges = _range_edge("n_components", winner.n_components, set(given), 1, rows.n_features)
    if winner.lambda_at_bound:
        edges = (*edges, "reg_lambda")
    found = diagnose(
        rows,
        objective,
        result,
        predict,
        starts,
        edges=edges,
        truncation=truncation,
        solve=solve,
        map_parameters=winner.degrees_of_freedom,
    )
    return replace(found, outliers=tuple(outliers[:_LISTED_OUTLIERS]), n_outliers=len(outliers))


def diagnose_grid(
    found: Diagnostics,
    grid: dict[str, Any],
    n_components: int,
    reg_lambda: float,
    X: Array,
    predict: Callable[[Array], Array],
    truncation: float | Array | None,
) -> Diagnostics:
    """Return the diagnostics of a model whose number of directions and lambda were chosen from a grid. See `diagnose`.

    `found` and `predict` belong to the final fit, on all rows. The columns "n_components" and "reg_lambda" of `grid`
    hold the values that were tried. X contains the rows of positive weight.
    """
    lambdas, dimensions = (set(grid[name].tolist()) for name in ("reg_lambda", "n_components"))
    edges = _range_edge("n_components", n_components, dimensions, 1, X.shape[1])
    if len(lambdas) > 1:
        edges += _range_edge("reg_lambdas", reg_lambda, lambdas, 0.0, math.inf)
    truncated = overshooting = None
    if truncation is not None:
        sample = X if len(X) <= _SAMPLE_ROWS else X[_fixed_rng().permutation(len(X))[:_SAMPLE_ROWS]]
        predicted = predict(sample).reshape(len(sample), -1)
        truncated, overshooting = _truncated_shares(predicted, truncation)
    edges = (*edges, *found.at_edge)
    return replace(found, at_edge=edges, truncated_share=truncated, overshooting_share=overshooting)


def _range_edge(name: str, value: float, tried: set[Any], smallest: float, largest: float) -> tuple[str, ...]:
    """Return ``(name,)`` if the value is the smallest or the largest value in `tried`, and ``()`` otherwise.

    ``()`` is also returned if no smaller or larger value is possible: all values are between `smallest` and `largest`.
    """
    if len(tried) < 2:
        return ()
    return (name,) if smallest < value == min(tried) or largest > value == max(tried) else ()


def adjusted_share(explained: float | None, effective_dimension: float, map_parameters: float, n: int) -> float | None:
    """Return ``1 - (1 - explained) / f^2``, but at least -1, where f is the fraction of unused degrees of freedom.

    The fraction f is ``(n - effective_dimension - map_parameters) / n``, where `map_parameters` is limited to half of
    ``n - effective_dimension``. The limit matters for functions that nearly interpolate the rows: the error and the
    unused degrees of freedom then both approach zero, and only their ratio is informative. The result is None if even
    the ratio consists of rounding errors, if there are fewer than 100 rows, or if `explained` is None.
    """
    left = n - effective_dimension
    if explained is None or n < _MIN_ROWS_FOR_OVERFITTING or not left > _MIN_FREEDOM * n:
        return None
    free = max(left - map_parameters, 0.5 * left) / n
    return max(1.0 - (1.0 - explained) / free**2, -1.0)


def _truncated_shares(predicted: Array, truncation: float | Array) -> tuple[float, float]:
    """Return the fractions of the rows whose absolute predictions exceed `truncation`, and 1.5 times `truncation`."""
    sizes = np.abs(predicted)
    beyond, far_beyond = (np.any(sizes > factor * truncation, axis=1) for factor in (1.0, _OVERSHOOT))
    return float(np.mean(beyond)), float(np.mean(far_beyond))


def _sample_shares(
    sample: Rows, predict: Predict, truncation: float | Array | None, tol: float
) -> tuple[float | None, float | None, float | None]:
    """Return `explained_share`, `truncated_share` and `overshooting_share` of `Diagnostics`.

    The coefficients minimize an objective whose value at zero coefficients is ``sum w y^2``. If the squared error
    exceeds this value by more than the relative tolerance `tol`, the coefficients consist of rounding errors, and
    FitError is raised.
    """
    # The rows stay on their device or in their files. Only the targets and the predictions are fetched.
    centered, Y = sample.map(targets), sample.with_coordinates(None, None, None).map(targets)
    w = sample.map(weights)[:, 0]
    predicted = predict(sample).reshape(Y.shape)
    truncated = overshooting = None
    if truncation is not None:
        truncated, overshooting = _truncated_shares(predicted[w > 0], truncation)
        predicted = np.clip(predicted, -truncation, truncation)
    # Dividing by the largest target avoids overflow and underflow of the squares.
    unit = float(np.max(np.abs(Y))) or 1.0

    def squared(residual: Array) -> float:
        return float(np.sum(w[:, None] * (residual / unit) ** 2))

    of_model, of_mean, of_zero = (
        squared(residual) for residual in (Y - predicted, Y - np.average(Y, axis=0, weights=w), centered)
    )
    rounding, negligible = (float(np.sum(w)) * Y.shape[1] * (ulps * EPS) ** 2 for ulps in (8.0, 64.0))
    if not of_model <= (1.0 + tol) * of_zero + rounding:
        raise FitError(_ROUNDING_MESSAGE)
    return (1.0 - of_model / of_mean if of_mean > negligible else None), truncated, overshooting


def _kernel_discriminates(sample: Rows, kernel: Kernel, B: Array, C: Array) -> bool:
    """Return whether the kernel distinguishes rows: its correlations with the centers are neither all 1 nor all 0.

    The correlations are ``k(p, c) / sqrt(k(p, p) k(c, c))``. Pairs of identical points are left out.
    """
    rng = _fixed_rng()
    P = project(sample.take(sample.draw(_COMPARED_POINTS, rng)), B)
    C = C[rng.permutation(len(C))[:_COMPARED_POINTS]]
    differ = np.array([np.any(p != C, axis=1) for p in P])
    if np.count_nonzero(np.any(differ, axis=1)) < _MIN_DISTINCT_POINTS:
        # Fewer than 10 distinct points may all be close together, or all be far apart, for any reasonable gamma.
        return True
    correlations = kernel(P, C) / np.sqrt(kernel.diagonal(P)[:, None] * kernel.diagonal(C))
    largest, smallest = float(np.max(correlations[differ])), float(np.min(correlations[differ]))
    return not (smallest > 1.0 - _CORRELATION_TOL or largest < _CORRELATION_TOL)


def _is_still_falling(result: Result, loss_at_zero: float) -> bool:
    """Return whether the solver was stopped too early, as defined by `Diagnostics.still_falling`."""
    values = result.history["objective"]
    if result.reason != StopReason.MAX_ITER or result.n_iter < _MIN_ITERATIONS:
        return False
    before = values[-1 - math.ceil(_LAST_PART * result.n_iter)]
    return bool(before - values[-1] > _MIN_FALL * loss_at_zero)
