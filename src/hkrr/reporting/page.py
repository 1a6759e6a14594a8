"""The HTML page: sections, style sheet, scripts and data in one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hkrr._storage.atomic_write import replace_file
from hkrr.reporting.class_sections import class_header, class_sections
from hkrr.reporting.contour_image import RAMP
from hkrr.reporting.report_data import ClassFacts, Facts, RegressionFacts, gather
from hkrr.reporting.section_charts import value_range
from hkrr.reporting.sections import header, sections
from hkrr.reporting.shared_sections import Section, direction_name
from hkrr.tables.inner_models import AnyClassifier, AnyRegressor


def write_report(
    model: AnyRegressor | AnyClassifier,
    X: Any,
    y: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    target: int = 0,
    held_out: bool | None = None,
    compare: bool = True,
    coverage: float = 0.9,
) -> Path:
    """Write a report on a fitted model as one self-contained HTML file.

    The report on a regressor shows the directions and the columns that the target depends on, and the learned function
    as curves, maps and a rotating surface. It also shows the accuracy, a comparison with other methods, the rows with
    the largest errors, the training history, and the diagnostics of the fit.

    The report on a classifier shows the directions and the columns, the classes over the directions, the confusion
    table, ROC curves, the calibration curve, the rows with the largest log loss, the training history, and the
    diagnostics.

    Parameters
    ----------
    model : fitted HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier
        The model to report on, or a fitted `TableRegressor` or `TableClassifier` that contains such a model. For an
        ensemble or a classifier, the directions and the learned function are those of its first member, and everything
        else is that of the whole model.
    X, y : array or data frame
        Rows and their targets or classes, preferably rows that the model was not fitted to. The report uses the column
        names of X and the name of y. No target may be missing.
    path : str or path
        File to write. An existing file is replaced.
    title : str or None, default=None
        Heading of the page. If None, the heading is "What NAME depends on", where NAME is the name of the target.
    target : int, default=0
        Index of the target to report on if the model has several targets.
    held_out : bool or None, default=None
        Whether the model was fitted without these rows. The report states whether they are new to the model. If None,
        this is estimated by comparing the rows with the centers of the model.
    compare : bool, default=True
        Whether to compare the model with other methods. A new estimator with the model's settings, kernel ridge
        regression and a linear model are fitted to a random three quarters of the rows and tested on the remaining
        quarter. At most 2,000 rows are used. If the model has an attribute ``held_out_`` with scores on held-out rows,
        these scores are reported and nothing is fitted. For a classifier, nothing is ever fitted.
    coverage : float, default=0.9
        Coverage of the prediction intervals in the report, if the model has prediction intervals. Classifiers have
        none.

    Returns
    -------
    Path
        Path of the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.reporting import write_report
    >>> data = make_mim_sines(300, n_features=5, n_components=2, random_state=0)
    >>> model = HyperKernelRidge(2, random_state=0).fit(data.X[:200], data.y[:200])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(model, data.X[200:], data.y[200:], pathlib.Path(folder, "report.html"), compare=False)
    ...     path.read_text(encoding="utf-8")[:15]
    '<!DOCTYPE html>'
    """
    facts = gather(model, X, y, title=title, target=target, held_out=held_out, compare=compare, coverage=coverage)
    path = Path(path)
    replace_file(path, render(facts).encode())
    return path


def render(facts: Facts) -> str:
    """Return the HTML page of a report with the given contents."""
    top, parts = _content(facts)
    style, script = _read("report.css"), _read("surface.js") + _read("report.js")
    return Template(_read("page.html")).substitute(
        # The content security policy forbids all requests, and all scripts except `script`. Even if a column name
        # contained a script and were not escaped properly, the script would not run.
        policy=(
            f"default-src 'none'; img-src data:; style-src '{_csp_hash(style)}'; "
            f"script-src '{_csp_hash(script)}'; base-uri 'none'; form-action 'none'"
        ),
        version=escape(facts.making.versions["hkrr"]),
        title=escape(facts.title),
        style=style,
        contents="".join(f'<li><a href="#{part.anchor}">{escape(part.title)}</a></li>' for part in parts),
        header=top,
        sections="".join(
            f'<section class="part" id="{part.anchor}"><h2>{escape(part.title)}</h2>{part.html}</section>'
            for part in parts
        ),
        data=script_json(_surface_data(facts)),
        script=script,
    )


def _content(facts: Facts) -> tuple[str, list[Section]]:
    """Return the HTML of the header, and the sections."""
    if isinstance(facts, ClassFacts):
        return class_header(facts), class_sections(facts)
    if isinstance(facts, RegressionFacts):
        return header(facts), sections(facts)
    raise TypeError(f"facts must be the result of gather, got {type(facts).__name__}")


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: it contains no "<", ">" or "&"."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _surface_data(facts: Facts) -> dict[str, Any]:
    """Return the data from which the script of the page draws the surfaces."""
    return {
        "target": facts.target,
        "ramp": RAMP,
        "surfaces": [
            {
                "names": [direction_name(facts, k) for k in each.directions],
                "across": each.across,
                "along": each.along,
                "value": each.value,
                "near": each.near,
                "range": value_range(each),
                "dots": each.dots,
            }
            for each in (facts.link.surfaces if isinstance(facts, RegressionFacts) else [])
        ],
    }


def _read(name: str) -> str:
    return files("hkrr.reporting").joinpath(name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the hash of a script or a style sheet, in the form that the content security policy needs to allow it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
