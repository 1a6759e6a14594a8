"""Test that the HTML page is valid, self-contained and safe with any names, and that the command line writes it."""

import base64
import copy
import dataclasses
import errno
import hashlib
import html
import json
import os
import re
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import r2_score
from typer.testing import CliRunner

import hkrr
from hkrr import HyperKernelRidge, TableRegressor
from hkrr._storage import atomic_write
from hkrr.cli import app
from hkrr.reporting import Facts, gather, render, write_report
from hkrr.reporting.page import script_json
from hkrr.reporting.svg_chart import Chart, tick_labels, ticks
from support.models_to_report import house_data
from support.paths import DOCS
from support.report_pages import UNSAFE, parse


def test_ticks():
    assert ticks(-0.31, 0.3) == pytest.approx([-0.2, 0, 0.2])
    assert ticks(0.0, 9.7) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert tick_labels([0.0, 0.5, 1.0]) == ["0", "0.5", "1"]
    assert tick_labels([-1.9725, -1.97, -1.9675]) == ["−1.9725", "−1.97", "−1.9675"]
    labels = tick_labels(ticks(1000.001, 1000.004))
    assert len(set(labels)) == len(labels)
    assert tick_labels([1e6, 1.5e6]) == ["1M", "1.5M"]


@pytest.fixture(scope="module")
def pages(fitted, searched, table):
    return [render(gather(*each, compare=False, title="A & B")) for each in (fitted, searched, table)]


def test_pages_are_valid_and_self_contained(pages):
    for page in pages:
        found = parse(page)
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in found.links)
        assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
        assert len(found.ids) == len(set(found.ids))
        assert found.handlers == []
        assert not re.search(r"https?://|//\w+\.\w|@import|url\(|localStorage|fetch\(", page)
        assert "<h1>A &amp; B</h1>" in page
        assert "nan" not in re.sub(r"base64,[^\"]*", "", page).replace("isNaN", "").lower().split()


def test_policy_has_the_hashes_of_style_and_script(pages):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', pages[0]).group(1)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", pages[0], flags=re.DOTALL).group(1)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy


def test_names_are_escaped(fitted):
    _, X, y = fitted
    X, y = X.set_axis(UNSAFE, axis=1).set_axis([f"<u>{i}</u>" for i in range(len(X))]), y.rename(UNSAFE[0])
    y.index = X.index
    model = HyperKernelRidge(2, random_state=0, max_iter=10).fit(X, y)
    page = render(gather(model, X, y, compare=False, title=UNSAFE[0]))
    found = parse(page)
    assert found.handlers == []
    assert page.count("<script") == 2
    assert "<b>" not in page
    assert "<u>" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL).group(1))
    assert data["target"] == UNSAFE[0]
    assert json.loads(script_json(UNSAFE)) == UNSAFE
    assert not set("<>&") & set(script_json(UNSAFE))


def test_surface_data_in_the_page(fitted, pages):
    data = json.loads(re.search(r'id="data">(.*?)</script>', pages[0], flags=re.DOTALL).group(1))
    surface = gather(*fitted, compare=False).link.surfaces[0]
    assert data["surfaces"][0]["value"] == surface.value
    assert data["surfaces"][0]["names"] == ["direction 1", "direction 2"]
    assert pages[0].count('class="flat"') == 1


def test_page_of_many_rows_and_columns_is_small():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 100))
    model = HyperKernelRidge(4, n_centers=100, max_iter=5, random_state=0).fit(X[:300], np.sin(X[:300, 0]))
    facts = gather(model, X, np.sin(X[:, 0]), compare=False)
    page = render(facts)
    assert len(page.encode()) < 600_000
    assert "500 of 10,000 rows, drawn at random" in page
    assert "<summary>90 more</summary>" in page  # 30 collapsed bars and 60 columns without a bar
    assert "60 less important columns not shown." in page
    assert facts.errors.columns[0] == "x0"
    parse(page)


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # the fit has few rows and one iteration
def test_the_printed_code_makes_the_same_fit(tmp_path, monkeypatch):
    """Test that the Python code on the page runs with the table of the report, and makes the same model."""
    X, y = house_data(60)
    X = X.assign(kind=["small", "large"] * 30)
    regressor = HyperKernelRidge(1, max_iter=1, n_init=1, random_state=0)
    model = TableRegressor(regressor).fit(X, y)
    page = write_report(model, X, y, tmp_path / "page.html", compare=False).read_text(encoding="utf-8")
    (code,) = re.findall(r"<pre[^>]*><code>(from hkrr import.*?)</code></pre>", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {"X": X, "y": y, "X_new": X, "y_new": y}
    exec(html.unescape(code), names)
    np.testing.assert_array_equal(names["model"].predict(X), model.predict(X))
    assert (tmp_path / "report.html").exists()


def test_pages_are_deterministic(fitted, tmp_path):
    model, X, y = fitted
    first = write_report(model, X, y, tmp_path / "a.html", compare=False)
    second = write_report(model, X, y, str(tmp_path / "b.html"), compare=False)
    assert first.read_bytes() == second.read_bytes()
    assert isinstance(gather(model, X, y, compare=False), Facts)


def test_code_of_the_docs_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = DOCS / "reports.md"
    exec("\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)), {"__name__": "__main__"})
    assert "<h1>Two directions of six</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_command_line(fitted, tmp_path):
    model, X, y = fitted
    hkrr.save(model, tmp_path / "m.hkrr")
    X.assign(extra=1, price=y)[120:].to_csv(tmp_path / "rows.csv", index=False)
    X.assign(price=y)[120:].drop(columns="age").to_csv(tmp_path / "less.csv", index=False)

    def run(*arguments):
        return CliRunner().invoke(app, ["report", str(tmp_path / "m.hkrr"), *map(str, arguments), "--no-compare"])

    page = tmp_path / "page.html"
    done = run(tmp_path / "rows.csv", "-o", page, "--target", "price", "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["held_out"] is True
    assert printed["r2"] == pytest.approx(r2_score(y[120:], model.predict(X[120:])))
    parse(page.read_text())
    done = run(tmp_path / "rows.csv", "-o", page, "--target", "price", "--title", "Prices")
    assert "40 rows, R2 " in done.stdout
    assert "<h1>Prices</h1>" in page.read_text()
    for arguments, message in (
        (["rows.csv"], "give the name with --target"),
        (["rows.csv", "--target", "rent"], "there is no column 'rent'"),
        (["less.csv", "--target", "price"], "'age'"),
        (["none.csv", "--target", "price"], "No such file"),
    ):
        done = run(tmp_path / arguments[0], "-o", page, *arguments[1:])
        assert done.exit_code == 2
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("size", [1.0, 1e-7, 123_456_789.0])
@pytest.mark.parametrize("offset", [0.0, 1_234_567.8, -0.0012345])
def test_tick_labels_stay_within_the_chart_and_do_not_overlap(size, offset):
    ends = (offset, offset + size)
    svg = Chart("any", ends, ends, "x", "y").svg()
    found = re.findall(r'<text class="tick (end|middle)" x="([\d.]+)" y="[\d.]+">([^<]+)</text>', svg)
    places = {"end": [], "middle": []}
    for kind, at, text in found:
        width = 6.4 * len(text)
        left = float(at) - (width if kind == "end" else width / 2)
        assert left >= 0
        assert left + width <= 361
        places[kind].append((left, left + width))
    across = sorted(places["middle"])
    assert len(across) > 1
    assert all(one[1] < other[0] for one, other in pairwise(across))


def test_adjusted_share_is_among_the_figures(fitted):
    model, X, y = fitted
    adjusted = model.diagnostics_.adjusted_share
    assert adjusted is not None
    figures = {name: value for name, value, _ in gather(model, X, y, compare=False).health.figures}
    assert figures["Adjusted for parameters"] == f"{100 * adjusted:.3g}%"
    without = copy.copy(model)
    without.diagnostics_ = dataclasses.replace(model.diagnostics_, adjusted_share=None)
    figures = gather(without, X, y, compare=False).health.figures
    assert "Adjusted for parameters" not in [name for name, _, _ in figures]


def test_failed_write_keeps_the_old_page(fitted, tmp_path, monkeypatch):
    model, X, y = fitted
    path = tmp_path / "report.html"
    path.write_text("before")

    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_write.os, "replace", full)
    with pytest.raises(OSError, match="free some space, or choose another disk"):
        write_report(model, X, y, path, compare=False)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["report.html"]
