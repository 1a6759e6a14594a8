"""The facts of a report against NumPy and the model itself, and the page: whole, closed to the network, and safe."""

import base64
import copy
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.baselines import KernelRidgeCV
from hkrr.cli import app
from hkrr.diagnostics import unannounced
from hkrr.reporting import Facts, gather, render, write_report
from hkrr.reporting.charts import tick_labels, ticks
from hkrr.reporting.directions import latent_gradients
from hkrr.reporting.errors import share_seen
from hkrr.reporting.link import link_values
from hkrr.reporting.page import as_data
from hkrr.reporting.subject import subject_of
from hkrr.reporting.words import formula, headline, number, percent, score

NASTY = ['</script><script>alert("1")</script>', "<b>bold</b>", '" onload="alert(2)', "${version} & $title", "plain"]


def planted(n_rows=160, columns=("area", "age", "floor", "rooms", "noise"), seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n_rows, len(columns))) * [10, 1, 1, 1, 1], columns=list(columns))
    A = X.to_numpy()
    y = np.sin(A[:, 0] / 10 + A[:, 1]) + 0.5 * A[:, 2] ** 2 + 0.05 * rng.normal(size=n_rows)
    return X, pd.Series(y, name="price")


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return HyperKernelRidge(2, random_state=0).fit(X[:120], y[:120]), X, y


@pytest.fixture(scope="module")
def searched():
    X, y = planted(80)
    return HyperKernelRidgeCV(n_components=[1, 2, 3], n_init=1, random_state=0).fit(X, y), X, y


class TableStandIn:
    """A regressor of tables: a column of text beside the numbers, intervals, and scores on rows that were held out."""

    @dataclasses.dataclass
    class Scores:
        target: str = "price"
        methods: tuple = ("hkrr", "kernel ridge", "linear")
        r2: tuple = (0.5, 0.7, 0.2)
        low: tuple = (0.4, 0.6, 0.1)
        high: tuple = (0.6, 0.8, 0.3)
        n_train: int = 120
        n_test: int = 40
        level: float = 0.95

    def __init__(self, model, names):
        self.model_, self.feature_names_out_ = model, names
        self.feature_names_in_ = np.array(["area", "age", "floor", "rooms", "colour"], dtype=object)
        self.held_out_ = self.Scores()

    def transform(self, frame):
        return np.column_stack([frame.iloc[:, :4].to_numpy(), frame["colour"] == "red"]).astype(float)

    def predict(self, frame):
        return self.model_.predict(self.transform(frame))

    def predict_interval(self, frame, coverage=0.9):
        f = self.predict(frame)
        return f - coverage, f + coverage


@pytest.fixture(scope="module")
def table():
    X, y = planted()
    frame = X.drop(columns="noise").assign(colour=np.where(X["noise"] > 0, "red", "<i>blue</i>"))
    numbers = TableStandIn(None, None).transform(frame)
    names = ["area", "age", "floor", "rooms", "colour=red"]
    return TableStandIn(HyperKernelRidge(2, random_state=0).fit(numbers[:120], y[:120]), names), frame, y


def test_link_values_are_the_predictions(fitted):
    model, X, y = fitted
    found = link_values(subject_of(model, X, y), model.transform(X))
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9, atol=1e-9)


def test_link_values_are_cut_as_predictions_are(searched):
    model, X, y = searched
    far = model.transform(X)[:3] * 1e3
    assert np.all(np.abs(link_values(subject_of(model, X, y), far)) <= model.truncation_)


def test_latent_gradients_are_those_of_the_link(fitted):
    model, X, y = fitted
    subject = subject_of(model, X[:20], y[:20])
    Z, step = model.transform(X[:20]), 1e-6
    for k in range(2):
        move = step * np.eye(2)[k]
        slope = (link_values(subject, Z + move) - link_values(subject, Z - move)) / (2 * step)
        np.testing.assert_allclose(latent_gradients(subject, subject.X)[:, k], slope, rtol=1e-4, atol=1e-6)


def test_directions_are_the_rows_of_the_map_in_standard_deviations(fitted):
    model, X, y = fitted
    found = gather(model, X, y, compare=False).directions
    assert (found.n_components, found.n_columns, found.shape) == (2, 5, "full")
    for k, direction in enumerate(found.directions):
        weights = model.components_[k] * X.std(ddof=0)
        weights /= np.linalg.norm(weights)
        assert direction.number == k + 1
        assert {each.column: each.weight for each in direction.loadings} == pytest.approx(weights.to_dict())
        sizes = [abs(each.weight) for each in direction.loadings]
        assert sizes == sorted(sizes, reverse=True)
    assert sum(each.share for each in found.directions) == pytest.approx(1)
    assert {each.column for each in found.importances[:3]} == {"area", "age", "floor"}
    assert sum(each.weight for each in found.importances) == pytest.approx(1)


def test_surface_and_dots(fitted):
    model, X, y = fitted
    (surface,) = gather(model, X, y, compare=False).link.surfaces
    Z = model.transform(X)
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    # Any x that the map takes to a node has the node's value.
    for i, j in ((0, 0), (5, 20), (32, 32)):
        z = mean + spread * [surface.across[i], surface.along[j]]
        x = pd.DataFrame([np.linalg.pinv(model.components_) @ z], columns=X.columns)
        assert surface.value[i][j] == pytest.approx(model.predict(x)[0], abs=1e-3)
    # Of two directions the dots are the rows.
    np.testing.assert_allclose([dot[2] for dot in surface.dots], y, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([dot[:2] for dot in surface.dots], (Z - mean) / spread, rtol=1e-3, atol=1e-3)
    near = np.array(surface.near)
    assert near.min() == 0
    assert near.max() == 1


def test_three_directions_have_three_pairs_and_several_medians():
    X, y = planted(100)
    model = HyperKernelRidge(3, random_state=0).fit(X, y)
    facts = gather(model, X, y, compare=False)
    assert sorted(each.directions for each in facts.link.surfaces) == [(1, 2), (1, 3), (2, 3)]
    assert facts.link.n_held == 1
    assert "held at their medians" in render(facts)


def test_errors_are_numpys(fitted):
    model, X, y = fitted
    found = gather(model, X, y, compare=False).errors
    errors = (y - model.predict(X)).to_numpy()
    assert found.r2 == pytest.approx(r2_score(y, model.predict(X)))
    assert found.rms == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found.median_size == pytest.approx(np.median(np.abs(errors)))
    assert sum(found.bin_counts) == len(y)
    assert [each.error for each in found.worst] == pytest.approx(sorted(errors, key=abs, reverse=True)[:20])
    first = found.worst[0]
    assert X.loc[int(first.name)].tolist() == pytest.approx(first.cells)
    assert y[int(first.name)] == first.actual
    assert found.interval is None
    assert found.no_interval


def test_rows_of_the_fit_are_told_from_new_ones(fitted):
    model, X, y = fitted
    assert share_seen(subject_of(model, X[:120], y[:120])) == 1.0
    assert share_seen(subject_of(model, X[120:], y[120:])) == 0.0
    assert share_seen(subject_of(model, X, y)) == 0.75
    few = HyperKernelRidge(1, n_centers=10, max_iter=2, random_state=0).fit(X[:120], y[:120])
    assert 0.05 < share_seen(subject_of(few, X[:120], y[:120])) < 0.1
    assert gather(model, X[120:], y[120:], compare=False).errors.held_out
    assert not gather(model, X, y, compare=False).errors.held_out
    told = gather(model, X[120:], y[120:], compare=False, held_out=False).errors
    assert (told.held_out, told.seen) == (False, None)


def test_comparison_is_of_fits_to_the_same_rows(fitted):
    model, X, y = fitted
    found = gather(model, X, y).comparison
    train, test = train_test_split(np.arange(160), test_size=0.25, random_state=0)
    A, b = X.to_numpy(), y.to_numpy()
    rivals = [
        HyperKernelRidge(2, random_state=0),
        KernelRidgeCV(random_state=0),
        make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 11))),
    ]
    with unannounced():
        expected = [r2_score(b[test], each.fit(A[train], b[train]).predict(A[test])) for each in rivals]
    assert found.r2 == pytest.approx(expected)
    assert all(low < r2 < high for low, r2, high in zip(found.low, found.r2, found.high, strict=True))
    assert (found.n_train, found.n_test, found.anew) == (120, 40, True)


def test_comparison_without_what_belongs_to_another_fit():
    X, y = planted(60)
    start = np.eye(5)[:1]
    model = HyperKernelRidge(1, init=start, centers=X.to_numpy()[:30], max_iter=3, verbose=0).fit(X, y)
    assert len(gather(model, X, y).comparison.r2) == 3


def test_a_regressor_of_tables_is_reported_in_its_own_columns(table):
    model, frame, y = table
    facts = gather(model, frame, y, coverage=0.5)
    assert [each.column for each in facts.directions.importances if "=" in each.column] == ["colour=red"]
    assert {each.column for each in facts.directions.named} == set(facts.errors.columns)
    assert facts.errors.columns == ["area", "age", "floor", "rooms", "colour"]
    assert facts.errors.worst[0].cells[-1] in ("red", "<i>blue</i>")
    inside = np.abs(y - model.predict(frame)) <= 0.5
    assert facts.errors.interval.covered == pytest.approx(inside.mean())
    assert facts.errors.interval.median_width == pytest.approx(1.0)
    assert (facts.comparison.anew, facts.comparison.r2) == (False, [0.5, 0.7, 0.2])
    page = render(facts)
    assert "<i>" not in page
    assert "kernel ridge regression does better than this model" in page


def test_intervals_that_a_model_cannot_give(table):
    model, frame, y = table

    class Without(TableStandIn):
        def predict_interval(self, frame, coverage=0.9):
            raise ValueError("no rows were kept\nfor this")

    class Endless(TableStandIn):
        def predict_interval(self, frame, coverage=0.9):
            return np.full((len(frame), 2), np.inf)

    for cls, reason in ((Without, "no rows were kept for this"), (Endless, "too few rows")):
        found = gather(cls(model.model_, model.feature_names_out_), frame, y).errors
        assert found.interval is None
        assert reason in found.no_interval


def test_training_is_the_models_own_story(fitted, searched):
    model, X, y = fitted
    found = gather(model, X, y, compare=False).training
    assert found.objective == model.history_["objective"]
    assert found.path is None
    model, X, y = searched
    found = gather(model, X, y, compare=False).training
    assert found.n_runs == len(model.path_["score"])
    assert set(found.path.n_components) == {1, 2, 3}
    assert found.path.chosen == model.n_components_
    lowest = min(found.path.score)
    assert lowest in model.path_["score"]


def test_a_grid_has_a_path_too():
    X, y = planted(50)
    model = HyperKernelRidgeCV(
        n_components=[1, 2], cv="holdout", criterion="training", reg_lambdas=[1e-2, 1e-3], random_state=0
    )
    with unannounced():  # both are at an edge of so small a grid
        model.fit(X, y)
    found = gather(model, X, y, compare=False).training
    assert found.path.n_components == [1, 1, 2, 2]
    assert found.path.score == pytest.approx(model.cv_results_["mean_error"])


def test_findings_are_on_the_page(fitted):
    model, X, y = copy.copy(fitted[0]), *fitted[1:]
    assert "Nothing here needs attention" in render(gather(model, X, y, compare=False))
    model.diagnostics_ = dataclasses.replace(model.diagnostics_, digits=1.0)
    page = render(gather(model, X, y, compare=False))
    ((_, said),) = model.diagnostics_.findings()
    assert said[1:] in page
    assert "Numerically delicate" in page
    assert "1 finding on the health" in page


def test_several_targets_are_reported_one_at_a_time(fitted):
    _, X, y = fitted
    Y = pd.DataFrame({"price": y, "rent": 2 * y**2})
    model = HyperKernelRidge(2, random_state=0, max_iter=20).fit(X, Y)
    for k, name in enumerate(Y):
        facts = gather(model, X, Y, target=k, compare=False)
        assert facts.target == name
        assert facts.errors.r2 == pytest.approx(r2_score(Y[name], model.predict(X)[:, k]))
        np.testing.assert_allclose([dot[2] for dot in facts.link.surfaces[0].dots], Y[name], rtol=1e-3, atol=1e-3)
        assert "The model has 2 targets" in render(facts)


def test_nothing_learned_is_said(fitted):
    _, X, y = fitted
    with unannounced():
        model = HyperKernelRidge(1, reg_lambda=1e6, max_iter=1, random_state=0).fit(X, y)
    assert headline(gather(model, X, y, compare=False)).startswith("The model found nothing that price depends on")
    model, X, y = fitted
    facts = gather(model, X, y * 0 + 1, compare=True)
    assert facts.errors.r2 is None
    assert facts.comparison is None
    assert "R² is not defined" in render(facts)


def test_sentences(fitted):
    model, X, y = fitted
    facts = gather(model, X, y, compare=False)
    text = headline(facts)
    assert text.startswith("Price depends on 2 directions of 5 columns; mostly through ")
    assert facts.directions.importances[0].column in text
    assert "noise" not in text
    assert formula(facts.directions.directions[0], most=2).endswith("+ 3 smaller terms")
    diagonal = dataclasses.replace(facts, directions=dataclasses.replace(facts.directions, shape="diagonal"))
    assert "5 columns, each with a weight of its own" in headline(diagonal)
    assert [score(0.9996), score(-0.5), score(1.0)] == ["above 0.999", "−0.500", "1.000"]
    assert [percent(0.001), percent(0.999), percent(0.25), percent(0.0)] == ["below 1%", "over 99%", "25%", "0%"]
    assert number(-12345.6) == "−12,300"


def test_ticks_are_round_and_their_labels_differ():
    assert ticks(-0.31, 0.3) == pytest.approx([-0.2, 0, 0.2])
    assert tick_labels([0.0, 0.5, 1.0]) == ["0", "0.5", "1"]
    labels = tick_labels(ticks(1000.001, 1000.004))
    assert len(set(labels)) == len(labels)
    assert tick_labels([1e6, 1.5e6]) == ["1M", "1.5M"]


class Balance(HTMLParser):
    """Whether every element ends where it should, and what was met on the way."""

    EMPTY = frozenset(["meta", "input", "line", "rect", "path", "circle", "image"])

    def __init__(self):
        super().__init__()
        self.open, self.links, self.names, self.handlers = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "action", "srcset", "data"):
                self.links.append(value)
            if name == "id":
                self.names.append(value)
            if name.startswith("on") or name == "style":
                self.handlers.append((tag, name))

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def examined(page):
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def pages(fitted, searched, table):
    return [render(gather(*each, compare=False, title="A & B")) for each in (fitted, searched, table)]


def test_pages_are_whole_and_load_nothing(pages):
    for page in pages:
        found = examined(page)
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in found.links)
        assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.names)
        assert len(found.names) == len(set(found.names))
        assert found.handlers == []
        assert not re.search(r"https?://|//\w+\.\w|@import|url\(|localStorage|fetch\(", page)
        assert "<h1>A &amp; B</h1>" in page
        assert "nan" not in re.sub(r"base64,[^\"]*", "", page).replace("isNaN", "").lower().split()


def test_the_policy_knows_style_and_script_by_their_hashes(pages):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', pages[0]).group(1)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", pages[0], flags=re.DOTALL).group(1)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy


def test_names_cannot_become_markup(fitted):
    _, X, y = fitted
    X, y = X.set_axis(NASTY, axis=1).set_axis([f"<u>{i}</u>" for i in range(len(X))]), y.rename(NASTY[0])
    y.index = X.index
    model = HyperKernelRidge(2, random_state=0, max_iter=10).fit(X, y)
    page = render(gather(model, X, y, compare=False, title=NASTY[0]))
    found = examined(page)
    assert found.handlers == []
    assert page.count("<script") == 2
    assert "<b>" not in page
    assert "<u>" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL).group(1))
    assert data["target"] == NASTY[0]
    assert json.loads(as_data(NASTY)) == NASTY
    assert not set("<>&") & set(as_data(NASTY))


def test_the_surface_in_the_page_is_that_of_the_facts(fitted, pages):
    data = json.loads(re.search(r'id="data">(.*?)</script>', pages[0], flags=re.DOTALL).group(1))
    surface = gather(*fitted, compare=False).link.surfaces[0]
    assert data["surfaces"][0]["value"] == surface.value
    assert data["surfaces"][0]["names"] == ["direction 1", "direction 2"]
    assert pages[0].count('class="flat"') == 1


def test_many_rows_and_columns_make_a_small_page():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 100))
    model = HyperKernelRidge(4, n_centers=100, max_iter=5, random_state=0).fit(X[:300], np.sin(X[:300, 0]))
    facts = gather(model, X, np.sin(X[:, 0]), compare=False)
    page = render(facts)
    assert len(page.encode()) < 600_000
    assert "500 of 10,000 rows, drawn at random" in page
    assert "The 60 columns that are not here matter less" in page
    assert facts.errors.columns[0] == "x0"
    examined(page)


def test_written_pages_are_the_same_each_time(fitted, tmp_path):
    model, X, y = fitted
    first = write_report(model, X, y, tmp_path / "a.html", compare=False)
    second = write_report(model, X, y, str(tmp_path / "b.html"), compare=False)
    assert first.read_bytes() == second.read_bytes()
    assert isinstance(gather(model, X, y, compare=False), Facts)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_arrays_have_numbered_columns_and_the_models_own_names(fitted):
    model, X, y = fitted
    facts = gather(model, X.to_numpy(), y.to_numpy(), compare=False)
    assert facts.target == "y"
    assert facts.directions.importances[0].column in X.columns
    plain = HyperKernelRidge(1, max_iter=2, random_state=0).fit(X.to_numpy(), y)
    assert gather(plain, X.to_numpy(), y, compare=False).directions.importances[0].column in ("x0", "x1", "x2")


def test_the_docs_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "docs" / "reports.md"
    exec("\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)), {"__name__": "__main__"})
    assert "<h1>Two directions of six</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": RidgeCV()}, "model must be a fitted HyperKernelRidge"),
        ({"X": "rows.csv"}, "X must be an array or a data frame in memory"),
        ({"y": [1.0, 2.0]}, "X has 160 rows and y 2"),
        ({"y": ["a"] * 160}, "y must be an array of numbers"),
        ({"y": np.full(160, np.nan)}, "y holds NaN"),
        ({"y": np.ones((160, 2))}, "y has shape"),
        ({"target": 1}, "target=1, and the model has 1"),
        ({"coverage": 1.0}, "coverage must be above 0 and below 1"),
    ],
)
def test_bad_arguments_are_named(fitted, change, message):
    model, X, y = fitted
    given = {"model": model, "X": X, "y": y, **change}
    with pytest.raises(ValueError, match=message):
        gather(given.pop("model"), given.pop("X"), given.pop("y"), **given)


def test_the_command(fitted, tmp_path):
    model, X, y = fitted
    hkrr.save(model, tmp_path / "m.hkrr")
    X.assign(extra=1, price=y)[120:].to_csv(tmp_path / "rows.csv", index=False)
    X.assign(price=y)[120:].drop(columns="age").to_csv(tmp_path / "less.csv", index=False)

    def run(*words):
        return CliRunner().invoke(app, ["report", str(tmp_path / "m.hkrr"), *map(str, words), "--no-compare"])

    page = tmp_path / "page.html"
    done = run(tmp_path / "rows.csv", "-o", page, "--target", "price", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["held_out"] is True
    assert said["r2"] == pytest.approx(r2_score(y[120:], model.predict(X[120:])))
    examined(page.read_text())
    done = run(tmp_path / "rows.csv", "-o", page, "--target", "price", "--title", "Prices")
    assert "40 rows, R2 " in done.stdout
    assert "<h1>Prices</h1>" in page.read_text()
    for words, message in (
        (["rows.csv"], "--target: the model does not know"),
        (["rows.csv", "--target", "rent"], "--target rent: "),
        (["less.csv", "--target", "price"], "lacks the column 'age'"),
        (["none.csv", "--target", "price"], "No such file"),
    ):
        done = run(tmp_path / words[0], "-o", page, *words[1:])
        assert done.exit_code == 2
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
