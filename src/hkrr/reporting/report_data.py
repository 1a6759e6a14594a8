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
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.reporting.baseline_comparison import Comparison, describe_comparison
from hkrr.reporting.directions import Directions, describe_directions
from hkrr.reporting.link_function import Link, describe_link
from hkrr.reporting.prediction_errors import Errors, describe_errors
from hkrr.reporting.report_input import ReportInput, check_report_input
from hkrr.reporting.training_history import Training, describe_training
from hkrr.tables.inner_models import AnyRegressor

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

    estimator: str
    parameters: dict[str, str]  # parameters that differ from their defaults
    results: list[tuple[str, str]]  # name and value of each quantity that the fit chose
    versions: dict[str, str]
    date: str


@dataclass(frozen=True)
class Facts:
    """The contents of a report, section by section."""

    title: str
    target: str
    other_targets: int  # number of targets of the model that the report is not about
    n_rows: int
    directions: Directions
    link: Link
    errors: Errors
    comparison: Comparison | None
    training: Training
    health: Health | None
    making: Provenance


def gather(
    model: AnyRegressor,
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
    data = check_report_input(model, X, y, target)
    directions = describe_directions(data)
    return Facts(
        title=title if title is not None else f"What {data.target} depends on",
        target=data.target,
        other_targets=data.n_other_targets,
        n_rows=len(data.y),
        directions=directions,
        link=describe_link(data, directions),
        errors=describe_errors(data, directions, held_out, coverage),
        comparison=describe_comparison(data, compare),
        training=describe_training(data),
        health=_health(data),
        making=_provenance(data),
    )


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
    if isinstance(whole, HyperKernelEnsemble) and len(whole.members_) > 1:
        results = [("Models", str(len(whole.members_))), *results]
    else:
        results = [
            ("Directions", str(len(model.map_))),
            ("Regularization (lambda)", f"{model.reg_lambda_:.3g}"),
            ("Kernel", f"{type(model.kernel_).__name__}, gamma {model.kernel_.scale:.3g}"),
            *results,
        ]
    versions = {
        "hkrr": __version__,
        "Python": platform.python_version(),
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    return Provenance(type(whole).__name__, parameters, results, versions, f"{datetime.now(UTC):%d %B %Y}")
