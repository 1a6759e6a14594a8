"""The contents of a report as plain numbers and strings, which `hkrr.reporting.page.render` converts to HTML."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy
import scipy
import sklearn

from hkrr._base.error_text import truncated
from hkrr._version import __version__
from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.reporting.baseline_comparison import Comparison, describe_comparison
from hkrr.reporting.class_errors import ClassErrors, describe_class_errors
from hkrr.reporting.class_input import Classes, check_class_input
from hkrr.reporting.class_regions import ClassCurves, ClassRegions, describe_regions
from hkrr.reporting.directions import Directions, describe_directions
from hkrr.reporting.link_function import Link, describe_link
from hkrr.reporting.prediction_errors import Errors, describe_errors
from hkrr.reporting.report_input import ReportInput, check_report_input
from hkrr.reporting.training_history import Training, describe_training
from hkrr.tables.classifier import TableClassifier
from hkrr.tables.encoding import HeldOutClassScores
from hkrr.tables.inner_models import AnyClassifier, AnyRegressor

# Maximum number of characters in the value of a parameter. Longer values are truncated.
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Finding:
    """A problem found by the diagnostics: the name of the warning class, and the message, which includes advice."""

    kind: str
    message: str


@dataclass(frozen=True)
class Health:
    """The diagnostics of a fit: the problems found, and all values with their explanations."""

    findings: list[Finding]
    figures: list[tuple[str, str, str]]  # name, value and explanation of each diagnostic


@dataclass(frozen=True)
class Provenance:
    """How the model was fitted: its class, parameters, results and the versions of the libraries."""

    table: str | None  # class of the model for data frames around the estimator
    estimator: str
    parameters: dict[str, str]  # parameters that differ from their defaults
    results: list[tuple[str, str]]  # name and value of each quantity that the fit chose
    versions: dict[str, str]
    date: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The contents of a report. The sections that depend on the task are in the subclasses."""

    title: str
    target: str
    n_rows: int
    directions: Directions
    training: Training
    health: Health | None
    making: Provenance


@dataclass(frozen=True, kw_only=True)
class RegressionFacts(Facts):
    """The contents of a report on a regressor."""

    other_targets: int  # number of targets of the model that the report is not about
    link: Link
    errors: Errors
    comparison: Comparison | None


@dataclass(frozen=True, kw_only=True)
class ClassFacts(Facts):
    """The contents of a report on a classifier."""

    classes: Classes
    regions: ClassCurves | ClassRegions | None  # None if the map of the first member has no few directions
    errors: ClassErrors
    comparison: HeldOutClassScores | None
    left_out: tuple[float, float] | None  # accuracy and log loss of the predictions of left-out rows in the fit
    refined: bool  # whether the map was refined by the log loss


def gather(
    model: AnyRegressor | AnyClassifier,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    target: int = 0,
    held_out: bool | None = None,
    compare: bool = True,
    coverage: float = 0.9,
) -> Facts:
    """Return the contents of a report; see `write_report` for the parameters.

    Returns
    -------
    Facts
        A `RegressionFacts` object for a regressor, and a `ClassFacts` object for a classifier.

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
    if isinstance(model, HyperKernelClassifier | TableClassifier):
        if target != 0:
            raise ValueError(f"target must be 0 for a classifier, which has a single target; got {target!r}")
        return _gather_classes(model, X, y, title, held_out)
    data = check_report_input(model, X, y, target)
    shared = _shared_facts(data, title)
    return RegressionFacts(
        **shared,
        other_targets=data.n_other_targets,
        link=describe_link(data, shared["directions"]),
        errors=describe_errors(data, shared["directions"], held_out, coverage),
        comparison=describe_comparison(data, compare),
    )


def _gather_classes(model: AnyClassifier, X: Any, y: Any, title: str | None, held_out: bool | None) -> ClassFacts:
    data = check_class_input(model, X, y)
    shared, whole = _shared_facts(data, title), data.whole
    known = hasattr(whole, "held_out_accuracy_")  # an interrupted fit and version 0.1 have no such scores
    return ClassFacts(
        **shared,
        classes=data.classes,
        regions=describe_regions(data, shared["directions"]),
        errors=describe_class_errors(data, shared["directions"], held_out),
        comparison=data.held_out,
        left_out=(whole.held_out_accuracy_, whole.held_out_log_loss_) if known else None,
        refined=whole.refined_,
    )


def _shared_facts(data: ReportInput, title: str | None) -> dict[str, Any]:
    """Return the fields of `Facts`."""
    return {
        "title": title if title is not None else f"What {data.target} depends on",
        "target": data.target,
        "n_rows": len(data.X),
        "directions": describe_directions(data),
        "training": describe_training(data),
        "health": _health(data),
        "making": _provenance(data),
    }


def _health(data: ReportInput) -> Health | None:
    found = getattr(data.whole, "diagnostics_", None)
    if found is None:  # an interrupted fit has no diagnostics
        return None

    figures = [(f"{name[0].upper()}{name[1:]}", value, meaning) for name, value, meaning in found.figures()]
    return Health([Finding(kind.__name__, message) for kind, message in found.findings()], figures)


def _provenance(data: ReportInput) -> Provenance:
    whole, model = data.whole, data.model
    defaults = type(whole)().get_params(deep=False)
    parameters = {
        name: truncated(repr(value), _LONGEST_VALUE, "…")
        for name, value in whole.get_params(deep=False).items()
        if not (
            value is defaults[name] or (type(value) is type(defaults[name]) and repr(value) == repr(defaults[name]))
        )
    }
    results = [("Centers", f"{len(model.centers_):,}"), ("Columns", f"{model.map_.shape[-1]:,}")]
    if data.ensemble is not None and len(data.ensemble.members_) > 1:
        results = [("Models", str(len(data.ensemble.members_))), *results]
    else:
        kernel = ("Kernel", f"{type(model.kernel_).__name__}, gamma {model.kernel_.scale:.3g}")
        penalty = ("Regularization (lambda)", f"{model.reg_lambda_:.3g}")
        # The lambda of a classifier that was refined by the log loss is that of the regression before the refinement.
        results = [
            ("Directions", str(len(model.map_))),
            *([] if getattr(whole, "refined_", False) else [penalty]),
            kernel,
            *results,
        ]
    members = [model] if data.ensemble is None else data.ensemble.members_
    if n_transformed := sum(member.column_transform_ is not None for member in members):
        results.append(("Models of columns transformed to normal scores", str(n_transformed)))
    versions = {
        "hkrr": __version__,
        "Python": platform.python_version(),
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    table = None if data.table is None else type(data.table).__name__
    return Provenance(table, type(whole).__name__, parameters, results, versions, f"{datetime.now(UTC):%d %B %Y}")
