"""What a fitted model says of its own health, and what of it a person should look at: a warning with a remedy.

How it is found out is in `hkrr.examination`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from hkrr.exceptions import (
    EdgeWarning,
    FailedStartsWarning,
    HKRRWarning,
    IllConditionedWarning,
    NotConvergedWarning,
    OverfitWarning,
    PoorFitWarning,
)

# What deserves a warning.
_LEAST_DIGITS = 3.0
_MOST_JITTER = 1e-8
OVERSHOOT, _MOST_OVERSHOOTING = 1.5, 0.1
_LEAST_EXPLAINED = 1e-3
_MUCH_EXPLAINED, _LEAST_ADJUSTED = 0.4, 0.1

# Why a solver stopped, in plain words.
ENDS = {
    "converged": "the gradient is as good as zero",
    "stalled": "no step lowers the objective any more, the usual end",
    "max_iter": "as many steps were made as are allowed",
    "time_limit": "the time was up",
    "callback": "a callback asked for it",
    "interrupted": "by Ctrl-C",
}


@dataclass(frozen=True)
class Starts:
    """How many starts there were, how many were given up as poorer than others, and how many could not be evaluated."""

    tried: int = 1
    dropped: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Diagnostics:
    """The health of a fitted model; `print` it.

    Attributes
    ----------
    condition : float
        Condition number of the system that gave the coefficients, as LAPACK estimates it in the 1-norm.
    digits : float
        Decimal digits of the fitted function that rounding is sure to leave: ``-log10(eps condition)``; but with
        centers and a lambda of at least 1e-4, where centers that are nearly alike make for any condition number and
        cost nothing, ``-log10(eps / lambda^2)`` at least (for a kernel of k(x, x) = 1).
    jitter : float
        What was added to a diagonal beyond lambda so that it could be factorised, as a share of its largest entry. With
        centers some 1e-13 are always added.
    effective_dimension : float
        Trace of the hat matrix: how many parameters the function has, at most the number of centers.
    explained_share : float or None
        Share of the variance of y explained on (at most 20,000 of) the training rows; None for a constant y.
    truncated_share : float or None
        Share of those rows whose prediction is cut at ``truncation_``; None where nothing is cut.
    overshooting_share : float or None
        Share of those rows whose prediction goes beyond 1.5 ``truncation_`` before it is cut: what only just overshoots
        a target that is bounded is no fault.
    starts_tried, starts_dropped, starts_failed : int
        Starts of the optimisation; those given up early as poorer than others, which is usual; and those that could not
        be evaluated.
    stopped : str
        Why the solver stopped, as ``result_.reason``.
    still_falling : bool
        Whether that was `max_iter`, while the last fifth of its iterations had lowered the objective by a hundredth of
        the loss of the mean or more (of runs of at least 50).
    at_edge : tuple of str
        What ended at an edge: "reg_lambda", learned, at a bound, 1e-12 or 1e3; "reg_lambdas", at an end of that grid;
        "n_components", at an end of the numbers of directions tried; "gamma", where the kernel no longer notices it,
        all rows being alike to it, or none.
    adjusted_share : float or None
        The explained share that is to be expected on other rows, by generalised cross-validation, the parameters of the
        map counted with the effective dimension: ``1 - (1 - explained_share) / f^2``, -1 at least, with
        ``f = (n - effective_dimension - p) / n`` and p = d D - d (d - 1) / 2 for a full map, but p at most half of
        ``n - effective_dimension``. None as above, for fewer than 100 rows, and where the function passes through all.
    remedies : tuple of str
        The parameters of the estimator that a finding may ask to change: those that it has, and that can still help.
    n_rows, n_centers : int or None
        Rows of positive weight that were fitted (where all rows are centers, copies of a row are one), and centers;
        None where the model is of a file that did not keep them.

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

    def findings(self) -> list[tuple[type[HKRRWarning], str]]:
        """Return what deserves attention: the warnings that `fit` gave, and what they said."""
        return [(category, message) for is_so, category, message in _findings(self) if is_so]

    def __str__(self) -> str:
        def share(value: float | None) -> str:
            return f"{100.0 * (value or 0.0):.3g}%"

        explained = "nothing to explain: y is constant"
        if self.explained_share is not None:
            explained = f"{share(self.explained_share)} on the training rows"
            if self.adjusted_share is not None:
                explained += f"; adjusted for the parameters: {share(self.adjusted_share)}"
        cut = "none: they are left as they are"
        if self.truncated_share is not None:
            cut = f"on {share(self.truncated_share)} of the training rows, by far: {share(self.overshooting_share)}"
        rows, most = "", ""
        if self.n_rows is not None and self.n_centers is not None:
            # Where all rows are centers, copies of a row are one: fewer than were given may be left.
            distinct = " distinct" if self.n_rows == self.n_centers else ""
            rows = f"rows                     {self.n_rows:,}{distinct}, with {self.n_centers:,} centers\n"
            most = f", of {self.n_centers:,} that the centers allow"
        starts = f"{self.starts_tried} tried, {self.starts_dropped} dropped, {self.starts_failed} failed"
        lines = [
            f"{rows}condition of the solve   {self.condition:.2g}, jitter {self.jitter:.2g}; "
            f"sure digits: {self.digits:.1f}",
            f"effective dimension      {self.effective_dimension:.1f} parameters{most}",
            f"variance explained       {explained}",
            f"predictions cut          {cut}",
            f"starts                   {starts}",
            f"ended                    {self.stopped}: {ENDS.get(self.stopped, 'see result_.message')}",
            f"at an edge               {', '.join(self.at_edge) or 'nothing'}",
        ]
        return "\n".join([*lines, *(f"! {message}" for _, message in self.findings())])


def _findings(found: Diagnostics) -> Iterator[tuple[bool, type[HKRRWarning], str]]:
    """Yield every finding there may be: whether it is one, its warning, and the message."""

    def remedy(by_parameter: dict[str, str], otherwise: str = "") -> str:
        """Return what can be done with the parameters of this estimator."""
        return ", or ".join([by_parameter[name] for name in by_parameter if name in found.remedies]) or otherwise

    yield (
        not found.digits >= _LEAST_DIGITS,
        IllConditionedWarning,
        f"the system for the coefficients has a condition number of {found.condition:.1g}: rounding may leave "
        f"{max(found.digits, 0.0):.0f} digits of them, and the model may change with the machine; "
        + remedy(_SMOOTHER, "take a rougher kernel"),
    )
    yield (
        found.jitter > _MOST_JITTER,
        IllConditionedWarning,
        f"a kernel matrix was not positive definite, and {found.jitter:.1g} of its diagonal was added to it: the model "
        "is smoother than reg_lambda_ says; " + remedy({**_SCALED, **_SMOOTHER}, "take a rougher kernel"),
    )
    poor = found.explained_share is not None and found.explained_share < _LEAST_EXPLAINED
    for name in found.at_edge:
        message, remedies, otherwise = _EDGES[name]
        yield not poor and message != "", EdgeWarning, message + remedy(remedies, otherwise)
    yield (
        (found.overshooting_share or 0.0) > _MOST_OVERSHOOTING,
        PoorFitWarning,
        f"predictions go beyond {OVERSHOOT} truncation_ for {100.0 * (found.overshooting_share or 0.0):.0f}% of the "
        "training rows, and are cut: the function goes far beyond y; check the targets for outliers, or "
        + remedy(_SMOOTHER, "take a smoother kernel"),
    )
    yield (
        poor,
        PoorFitWarning,
        "the model explains nothing of y on its own training rows, and predicts the mean: check that y depends on X, "
        "and that no single target outweighs all others, or " + remedy(_LESS_SMOOTH, "take another kernel"),
    )
    explained, adjusted = found.explained_share, found.adjusted_share
    yield (
        explained is not None
        and adjusted is not None
        and explained > _MUCH_EXPLAINED
        and adjusted < _LEAST_ADJUSTED
        and "gamma" not in found.at_edge,  # which says more
        OverfitWarning,
        f"the model explains {100.0 * (explained or 0.0):.0f}% of the variance of y on its training rows, with so many "
        f"parameters for these (an effective dimension of {found.effective_dimension:.0f}, and those of the map) that "
        "next to nothing may be left of it on others: check the score on rows held out, or "
        + remedy(_LESS_FREE, _MORE),
    )
    yield (
        found.starts_failed > found.starts_tried / 2,
        FailedStartsWarning,
        f"{found.starts_failed} of {found.starts_tried} starts could not be evaluated: check the scale of X and y, or "
        + remedy({**_SCALED, "n_init": "raise n_init"}),
    )
    yield (
        found.still_falling,
        NotConvergedWarning,
        "as many iterations were made as are allowed, and the objective was still falling: "
        + remedy(
            {"max_iter": "raise max_iter", "solver": "use solver='lbfgs'"},
            "raise n_init, for a start that gets further",
        ),
    )


# What to do, by the parameter that it is done with.
_SCALED = {"scale_features": "use scale_features=True"}
_SMOOTHER = {"reg_lambda": "raise reg_lambda", "reg_lambdas": "give larger reg_lambdas"}
_LESS_FREE = {
    **_SMOOTHER,
    "criterion": "use criterion='evidence', reg_lambda='auto'",
    "n_components": "lower n_components",
}
_MORE = "give more rows, or fewer columns"
_LESS_SMOOTH = {"reg_lambda": "lower reg_lambda", "reg_lambdas": "give smaller reg_lambdas"}

# What may end at an edge, what is to be done about it by parameter, and where there is none. A lambda that is learned
# ends at its lower bound wherever y has no noise, which is no fault, and at its upper one where nothing is explained,
# which has a warning of its own.
_EDGES: dict[str, tuple[str, dict[str, str], str]] = {
    "reg_lambda": ("", {}, ""),
    "reg_lambdas": (
        "reg_lambda_ is at an edge of the grid that it was chosen from: a better one may lie beyond; ",
        {"reg_lambdas": "give reg_lambdas that go on"},
        "",
    ),
    "n_components": (
        "n_components_ is at an edge of the numbers of directions that were tried: more of them, or fewer, may do "
        "better; ",
        {"n_components": "give n_components more to choose from", "time_limit": "raise time_limit"},
        "",
    ),
    "gamma": (
        "the kernel no longer notices its scale gamma_: to it all rows are alike, or no two of them are, and new rows "
        "have the mean predicted. Check that y depends on X, or ",
        {
            "gamma": "give another gamma",
            **_SCALED,
            **_SMOOTHER,
            "criterion": "use criterion='evidence'",
        },
        "take another kernel",
    ),
}

_announced: ContextVar[bool] = ContextVar("announced", default=True)


@contextmanager
def unannounced() -> Iterator[None]:
    """Keep the fits within from warning: they are parts of a search, of which only the end is a person's business."""
    token = _announced.set(False)
    try:
        yield
    finally:
        _announced.reset(token)


def announce(found: Diagnostics) -> None:
    """Warn of what deserves attention, at the line outside the library that asked for the fit."""
    if not _announced.get():
        return
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("hkrr."):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]  # the outermost frame has None behind it
    for category, message in found.findings():
        warnings.warn(message, category, stacklevel=level)
