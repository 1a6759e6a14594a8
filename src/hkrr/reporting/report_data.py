"""All that a report says, as plain numbers and texts: the page computes nothing."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy
import scipy
import sklearn

from hkrr._version import __version__
from hkrr.reporting.comparison import Comparison, describe_comparison
from hkrr.reporting.directions import Directions, describe_directions
from hkrr.reporting.errors import Errors, describe_errors
from hkrr.reporting.link import Link, describe_link
from hkrr.reporting.subject import Subject, subject_of
from hkrr.reporting.training import Training, describe_training

_LONGEST = 60  # characters of a parameter's value


@dataclass(frozen=True)
class Finding:
    """What deserves attention: the kind of warning, and what it says with its remedy."""

    kind: str
    message: str


@dataclass(frozen=True)
class Health:
    """The diagnostics of a fit: its findings, and its figures with what they mean."""

    findings: list[Finding]
    figures: list[tuple[str, str, str]]  # name, value, meaning


@dataclass(frozen=True)
class Making:
    """How the model was made."""

    estimator: str
    given: dict[str, str]  # parameters that are not at their defaults
    chosen: list[tuple[str, str]]
    versions: dict[str, str]
    date: str


@dataclass(frozen=True)
class Facts:
    """What a report says, section by section."""

    title: str
    target: str
    other_targets: int
    n_rows: int
    directions: Directions
    link: Link
    errors: Errors
    comparison: Comparison | None
    training: Training
    health: Health | None
    making: Making


def gather(
    model: Any,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    target: int = 0,
    held_out: bool | None = None,
    compare: bool = True,
    coverage: float = 0.9,
) -> Facts:
    """Find all that a report says of a model; see `write_report` for the parameters.

    Returns
    -------
    Facts

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.reporting import gather
    >>> data = make_mim_sines(300, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelRidge(1, random_state=0).fit(data.X[:200], data.y[:200])
    >>> facts = gather(model, data.X[200:], data.y[200:], compare=False)
    >>> facts.errors.held_out, facts.directions.n_components
    (True, 1)
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be above 0 and below 1, got {coverage!r}")
    subject = subject_of(model, X, y, target)
    directions = describe_directions(subject)
    return Facts(
        title=title if title is not None else f"What {subject.target} depends on",
        target=subject.target,
        other_targets=subject.other_targets,
        n_rows=len(subject.y),
        directions=directions,
        link=describe_link(subject, directions),
        errors=describe_errors(subject, directions, held_out, coverage),
        comparison=describe_comparison(subject, compare),
        training=describe_training(subject.model),
        health=_health(subject.model),
        making=_making(subject),
    )


def _health(model: Any) -> Health | None:
    found = getattr(model, "diagnostics_", None)
    if found is None:  # a fit that was broken off
        return None

    def share(value: float | None) -> str:
        return "does not apply" if value is None else f"{100.0 * value:.3g}%"

    starts = f"{found.starts_tried} tried, {found.starts_dropped} given up early, {found.starts_failed} failed"
    adjusted = []
    if found.adjusted_share is not None:
        meaning = "The same, with all parameters that were learned counted: what may be left of it on other rows."
        adjusted = [("Adjusted for the parameters", share(found.adjusted_share), meaning)]
    figures = [
        ("Sure digits", f"{found.digits:.1f}", "Decimal digits of a prediction that rounding is sure to leave."),
        ("Condition number", f"{found.condition:.2g}", "How far the solve can magnify rounding; 1e12 is much."),
        ("Added to a diagonal", f"{found.jitter:.2g}", "What was added so that the solve could be done, as a share."),
        (
            "Effective dimension",
            f"{found.effective_dimension:.1f}",
            "How many free numbers the fitted function is worth; near the number of rows, it could follow noise.",
        ),
        (
            "Variation explained",
            share(found.explained_share),
            "Of the rows that the model was fitted on, which flatter it.",
        ),
        *adjusted,
        ("Predictions cut", share(found.truncated_share), "Rows whose prediction goes beyond the bound, and is cut."),
        ("Starts", starts, "The search begins from several maps, as a single one can end in a poor place."),
        ("At an edge", ", ".join(found.at_edge) or "nothing", "What ended at an end of the values that it may take."),
    ]
    return Health([Finding(kind.__name__, message) for kind, message in found.findings()], figures)


def _making(subject: Subject) -> Making:
    model = subject.model
    defaults = type(model)().get_params(deep=False)
    settings = model.get_params(deep=False)
    given = {
        name: _shortened(value)
        for name, value in settings.items()
        if not (
            value is defaults[name] or (type(value) is type(defaults[name]) and repr(value) == repr(defaults[name]))
        )
    }
    chosen = [
        ("Directions", str(len(model.components_))),
        ("Regularisation (lambda)", f"{model.reg_lambda_:.3g}"),
        ("Kernel", f"{type(model.kernel_).__name__}, gamma {model.kernel_.scale:.3g}"),
        ("Centers", f"{len(model.centers_):,}"),
        ("Columns", f"{model.components_.shape[1]:,}"),
    ]
    versions = {
        "hkrr": __version__,
        "Python": platform.python_version(),
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    return Making(type(model).__name__, given, chosen, versions, f"{datetime.now(UTC):%d %B %Y}")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
