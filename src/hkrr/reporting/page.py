"""The page: sections, style, script and data in one file that loads nothing."""

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

from hkrr.disk import replace_file
from hkrr.reporting.contours import RAMP
from hkrr.reporting.facts import Facts, gather
from hkrr.reporting.learned import direction_name
from hkrr.reporting.opening import opening
from hkrr.reporting.pictures import value_range
from hkrr.reporting.sections import sections


def write_report(
    model: Any,
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
    """Write a report of a fitted model: one HTML file, which loads nothing and opens anywhere.

    It says what the target depends on (the directions and the columns they are made of), how (the function g of the
    directions, as curves, as maps, and as a surface that can be turned), how sure that is, how it compares, which rows
    it gets wrong, how it was found, and whether the fit is healthy.

    Parameters
    ----------
    model : fitted HyperKernelRidge or HyperKernelRidgeCV, or a regressor of tables with one of them in ``model_``
    X, y : array or data frame
        Rows to report on, better new ones than those of the fit. The names of their columns, and of y, are used.
    path : str or path
        The file to write; one that is there is replaced.
    title : str or None, default=None
        Heading of the page.
    target : int, default=0
        Which target to report on, where the model has several.
    held_out : bool or None, default=None
        Whether these rows are new to the model, which the page says; None looks whether they are among its centers.
    compare : bool, default=True
        Whether to fit the same settings, kernel ridge regression and a linear model to three quarters of the rows (of
        2,000 at most), and to test them on the last quarter. A model with ``held_out_`` knows such scores already.
    coverage : float, default=0.9
        Of the intervals, where the model has them.

    Returns
    -------
    Path
        The file.

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
    """Return the page that says these facts."""
    parts = sections(facts)
    style, script = _file("report.css"), _file("surface.js") + _file("report.js")
    return Template(_file("page.html")).substitute(
        # Nothing may be fetched, and no script but ours can run, should a text ever get through as markup.
        policy=(
            f"default-src 'none'; img-src data:; style-src '{_fingerprint(style)}'; "
            f"script-src '{_fingerprint(script)}'; base-uri 'none'; form-action 'none'"
        ),
        version=escape(facts.making.versions["hkrr"]),
        title=escape(facts.title),
        style=style,
        contents="".join(f'<li><a href="#{part.anchor}">{escape(part.title)}</a></li>' for part in parts),
        opening=opening(facts),
        sections="".join(
            f'<section class="part" id="{part.anchor}"><h2>{escape(part.title)}</h2>{part.html}</section>'
            for part in parts
        ),
        data=as_data(_turning(facts)),
        script=script,
    )


def as_data(value: Any) -> str:
    """Return JSON that can stand in a script element: no text of it can end the element, or begin another."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _turning(facts: Facts) -> dict[str, Any]:
    """Return what the script draws surfaces from."""
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
            for each in facts.link.surfaces
        ],
    }


def _file(name: str) -> str:
    return files("hkrr.reporting").joinpath(name).read_text(encoding="utf-8")


def _fingerprint(text: str) -> str:
    """Return the hash by which a browser knows an element of the page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
