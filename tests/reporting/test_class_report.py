"""Test reports on classifiers: the contents are compared with scikit-learn's metrics and with the model."""

import copy
import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

import hkrr
from hkrr import HyperKernelClassifier
from hkrr.reporting import ClassFacts, gather, render, write_report
from hkrr.reporting.class_input import check_class_input
from hkrr.reporting.contour_image import CLASS_COLOURS
from hkrr.reporting.page import _read
from hkrr.tables import HeldOutClassScores, TableClassifier
from hkrr.tables.encoding import Column, Encoder
from support.handmade_models import made_classifier, made_labels
from support.report_pages import UNSAFE, parse

NAMES = ["length", "width", "height", "depth"]
SECTIONS = [
    "directions",
    "regions",
    "confusion",
    "roc",
    "calibration",
    "compare",
    "wrong",
    "training",
    "health",
    "made",
]


def made(n_components=2, n_classes=3, **options):
    """Return a classifier, rows and labels. Every ninth label is replaced, so that some predictions are wrong."""
    model = made_classifier(n_components, 4, n_classes, names=NAMES, **options)
    X, y = made_labels(model)
    return model, X, pd.Series(y, name="kind")


def text_of(page):
    """Return the text of the sections of a page, without tags and surplus spaces."""
    body = page[page.index("<main") : page.index("</main>")]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def held_out(log_loss=(0.4, 0.5, 1.1)):
    scores = {"accuracy": (0.8, 0.75, 0.4), "log_loss": log_loss}
    ends = {f"{name}_{end}": (0.1, 0.2, 0.3) for name in scores for end in ("low", "high")}
    methods, confusion = ("hkrr", "logistic regression", "class frequencies"), ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    return HeldOutClassScores(
        "kind",
        methods,
        **scores,
        **ends,
        classes=tuple("abc"),
        confusion=confusion,
        n_train=90,
        n_test=30,
        seed=0,
        level=0.95,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_equal_those_of_scikit_learn(n_classes):
    model, X, y = made(n_classes=n_classes)
    facts = gather(model, X, y)
    assert isinstance(facts, ClassFacts)
    found, p, predicted = facts.errors, model.predict_proba(X), model.predict(X)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(y, predicted)) == model.score(X, y)
    assert found.log_loss == pytest.approx(metrics.log_loss(y, p), rel=1e-6)
    assert found.confusion == metrics.confusion_matrix(y, predicted).tolist()
    scores = p[:, 1] if n_classes == 2 else p
    assert found.mean_area == pytest.approx(metrics.roc_auc_score(y, scores, multi_class="ovr"))
    for k, each in enumerate(found.roc):
        assert each.area == pytest.approx(metrics.roc_auc_score(y == model.classes_[k], p[:, k]))
        assert metrics.auc(each.false_positive, each.true_positive) == pytest.approx(each.area, abs=1e-3)
    shares = y.value_counts(normalize=True)
    assert found.baseline_accuracy == pytest.approx(shares.max())
    assert found.baseline_log_loss == pytest.approx(-np.sum(shares * np.log(shares)))


def test_calibration_equals_means_over_the_bins():
    model, X, y = made()
    found, p = gather(model, X, y).errors.calibration, model.predict_proba(X)
    largest, right = p.max(axis=1), model.predict(X) == y
    expected = 0.0
    bins = iter(found.bins)
    for low in np.arange(10) / 10:
        inside = (largest >= low) & (largest < low + 0.1)
        if np.any(inside):
            each = next(bins)
            assert each.n_rows == np.sum(inside)
            assert each.predicted == pytest.approx(largest[inside].mean())
            assert each.observed == pytest.approx(right[inside].mean())
            assert 0 <= each.low <= each.observed <= each.high <= 1
            expected += np.sum(inside) / len(X) * abs(each.predicted - each.observed)
    assert found.error == pytest.approx(expected)
    assert next(bins, None) is None


def test_rows_with_the_largest_log_loss():
    model, X, y = made()
    X.index = [f"row {i}" for i in range(len(X))]
    facts, p = gather(model, X, y.set_axis(X.index)), model.predict_proba(X)
    own = p[np.arange(len(X)), np.searchsorted(model.classes_, y)]
    order = np.argsort(own, kind="stable")[:20]
    for i, each in zip(order, facts.errors.worst, strict=True):
        assert each.name == f"row {i}"
        assert (facts.classes.labels[each.actual], facts.classes.labels[each.predicted]) == (y[i], model.predict(X)[i])
        assert each.log_loss == pytest.approx(-np.log(own[i]))
        assert each.probability == pytest.approx(own[i])
        assert [q for _, q in each.most_probable] == pytest.approx(sorted(p[i], reverse=True))
        assert each.cells == X.iloc[i].tolist()
    page = render(facts)
    assert f"<td>row {order[0]}</td>" in page
    first = facts.errors.worst[0].most_probable
    assert "".join(f"<td>{facts.classes.labels[k]}: {q:.2f}</td>" for k, q in first) in page


@pytest.mark.parametrize(("n_components", "n_classes"), [(1, 2), (1, 3), (2, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("n_members", [1, 2])
def test_pages_have_all_sections(n_components, n_classes, n_members, tmp_path):
    model, X, y = made(n_components, n_classes, n_members=n_members, refined=n_members == 1)
    page = write_report(model, X, y, tmp_path / "page.html", title="A & B").read_text(encoding="utf-8")
    parsed = parse(page)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in parsed.links)
    assert parsed.handlers == []
    assert re.findall(r'class="part" id="(\w+)"', page) == SECTIONS
    assert "<h1>A &amp; B</h1>" in page
    assert not re.search(r"https?://|url\(|fetch\(|\bnan\b", re.sub(r"base64,[^\"]*", "", page))
    text = text_of(page)
    depends = "is predicted from 4 columns by weighted sums of the scores of 2 models"
    depends = depends if n_members == 2 else "depends on 4 columns through"
    directions = "the direction of the" if n_components == 1 else "direction 1 and direction 2 of the"
    regression = "a regression on the indicators of the classes. No problems were found"
    for expected in (f"Kind {depends}", directions, regression, f"with 4 columns and {n_classes} classes"):
        assert expected in text
    assert ("with the weights of all models" in text) == (n_members == 2)
    assert ("The other directions are fixed at their medians" in text) == (n_components == 3)
    assert ("The map was then refined by the log loss" in text) == (n_members == 1)
    assert ("The curve of the other class has the same area" in text) == (n_classes == 2)
    assert "model = HyperKernelClassifier().fit(X, y)" in page


@pytest.mark.parametrize("n_members", [1, 2])
def test_regions_are_those_of_the_first_member(n_members):
    model, X, y = made(n_members=n_members, refined=n_members == 1)
    found = gather(model, X, y).regions
    Z = model.transform(X)
    first = copy.copy(model)
    first.scores_ = copy.copy(model.scores_)
    first.scores_.members_, first.scores_.weights_ = model.members_[:1], np.array([model.weights_.sum()])
    for i, j in ((0, 0), (30, 70), (100, 100)):
        z = Z.mean(axis=0) + Z.std(axis=0) * [found.across[i], found.along[j]]
        x = pd.DataFrame([np.linalg.pinv(model.components_) @ z], columns=NAMES)
        p = first.predict_proba(x)[0]
        assert found.most_probable[i][j] == np.argmax(p)
        assert found.probability[i][j] == pytest.approx(p.max(), abs=1e-3)
    np.testing.assert_allclose(
        [dot[:2] for dot in found.dots], (Z - Z.mean(axis=0)) / Z.std(axis=0), rtol=1e-3, atol=1e-3
    )
    assert [dot[2] for dot in found.dots] == np.searchsorted(model.classes_, y).tolist()
    assert {near for line in found.is_near for near in line} == {True, False}
    assert found.n_held == 0


def test_curves_are_the_probabilities_along_the_direction():
    model, X, y = made(n_components=1)
    found = gather(model, X, y).regions
    Z = model.transform(X)
    x = np.linalg.pinv(model.components_) @ (Z.mean(axis=0) + Z.std(axis=0) * [found.at[50]])
    p = model.predict_proba(pd.DataFrame([x], columns=NAMES))[0]
    assert [line[50] for line in found.probability] == pytest.approx(p, abs=1e-3)
    assert len(found.probability) == 3


@pytest.mark.parametrize(
    ("shape", "text"),
    [("diagonal", "uses all columns, each with its own weight"), ("identity", "uses all columns with equal weights")],
)
def test_maps_without_directions_have_no_picture(shape, text):
    model, X, y = made(4, 3)
    member = model.members_[0]
    member.map_, member.map_shape_ = np.full(4, 0.5), shape
    facts = gather(model, X, y)
    assert facts.regions is None
    assert f"There is no picture of the classes, because the model {text}, not a few directions." in text_of(
        render(facts)
    )


def test_labels_and_names_are_escaped():
    model, X, y = made(2, 5)
    index = np.searchsorted(model.classes_, y)
    model.classes_ = np.array(sorted(UNSAFE))
    y = pd.Series(model.classes_[index], name=UNSAFE[0]).where(np.arange(len(y)) > 2, "<i>new</i>")
    X.index = y.index = [f"<u>{i}</u>" for i in range(len(X))]
    X.columns = model.feature_names_in_ = np.array(UNSAFE[:4], dtype=object)
    page = render(gather(model, X, y, title=UNSAFE[0]))
    assert parse(page).handlers == []
    assert page.count("<script") == 2
    assert not any(tag in page for tag in ("<b>", "<u>", "<i>", "alert(1)", 'alert("'))


def test_many_classes():
    """Test that the most frequent classes have colours and curves, and that the confusion table adds up the others."""
    model, X, y = made(2, 12)
    assert "The 10 most frequent classes have their own colours" in text_of(render(gather(model, X, y)))
    model = made_classifier(2, 4, 40, names=NAMES)
    model.classes_ = np.arange(40)
    X, y = made_labels(model, 500)
    facts = gather(model, X, pd.Series(y, name="kind"))
    page = render(facts)
    parse(page)
    text = text_of(page)
    counts = np.bincount(y, minlength=40)
    assert set(counts[facts.classes.coloured]) == set(np.sort(counts)[-10:])
    assert len(facts.errors.roc) == 10
    assert "The 30 most frequent classes are listed; the others are added up." in text
    assert "10 other classes" in text
    table = re.search(r'<table class="counts">.*?</table>', page).group(0)
    numbers = [int(n) for n in re.findall(r'<td class="number[^"]*">(\d+)</td>', table)]
    assert sum(numbers) == 500
    assert "row class log loss probability most probable second third" in text
    assert len(page) < 250_000


@pytest.mark.parametrize(
    ("classes", "given"),
    [
        ([False, True], [False, True]),
        ([False, True], ["False", "True"]),
        (["False", "True"], [False, True]),
        ([3, 7], ["3", "7"]),
        (["3", "7"], [3.0, 7.0]),
        (["3", "7"], pd.array([3, 7], dtype="Int64")),
        (["no", "yes"], pd.Categorical(["no", "yes"])),
    ],
)
def test_labels_are_compared_as_text(classes, given):
    model, X, y = made(2, 2)
    index = np.searchsorted(model.classes_, y)
    model.classes_ = np.array(classes)
    labels = pd.Series(given).take(index).reset_index(drop=True)
    found = check_class_input(model, X, labels)
    assert found.index.tolist() == index.tolist()
    assert found.classes.labels == [str(label) for label in classes]
    assert gather(model, X, labels).errors.accuracy == np.mean(np.argmax(model.predict_proba(X), axis=1) == index)


def test_classes_that_the_model_does_not_know():
    model, X, y = made()
    y[:4], y[4:6] = "tower", "<b>"
    facts = gather(model, X, y)
    assert facts.classes.labels == ["a", "b", "c", "<b>", "tower"]
    assert facts.errors.accuracy == pytest.approx(metrics.accuracy_score(y, model.predict(X)))
    assert facts.errors.worst[0].log_loss == pytest.approx(-np.log(1e-9))
    assert facts.errors.worst[0].probability == 0
    assert [sum(row) for row in facts.errors.confusion] == y.value_counts()[facts.classes.labels].tolist()
    assert facts.errors.mean_area == pytest.approx(
        np.mean(
            [metrics.roc_auc_score(y == label, p) for label, p in zip("abc", model.predict_proba(X).T, strict=True)]
        )
    )
    text = text_of(render(facts))
    assert "6 rows of this report belong to classes that were not among the training rows: &lt;b&gt; and tower." in text
    assert "other classes" in text  # the legend of the regions


def test_rows_of_one_class_have_no_roc_curves():
    model, X, y = made()
    text = text_of(render(gather(model, X[y == "b"], y[y == "b"])))
    assert "There are no ROC curves" in text
    assert "On these rows, the probabilities are no better than the frequencies of the classes." in text


def test_training_rows_are_recognized():
    model, *_ = made()
    X = pd.DataFrame(model.members_[0].centers_, columns=NAMES)
    facts = gather(model, X, model.predict(X))
    assert (facts.errors.seen, facts.errors.held_out) == (1.0, False)
    text = text_of(render(facts))
    assert "These rows were used to fit the model. Errors on such rows are smaller than on new rows." in text
    assert "on these rows, which the model was fitted to" in text
    given = gather(model, X, model.predict(X), held_out=True)
    assert (given.errors.seen, given.errors.held_out) == (None, True)
    assert "on these rows, which are new to the model" in text_of(render(given))
    new = gather(*made())
    assert (new.errors.seen, new.errors.held_out) == (0.0, True)


class TableStandIn(TableClassifier):
    """A `TableClassifier` with a handmade model. Its last column is a text that may be missing."""

    def __init__(self, model, scores):
        super().__init__()
        self.model_, self.held_out_, self.target_ = model, scores, "kind"
        numbers = [Column(name, "number", fill=0.5) for name in NAMES[:3]]
        self.encoder_ = Encoder((*numbers, Column("colour", "text", values=("red",))))
        self.feature_names_in_ = np.array([*NAMES[:3], "colour"], dtype=object)

    def transform(self, frame):
        numbers = frame[NAMES[:3]].fillna(0.5).to_numpy()
        return np.column_stack([numbers, frame["colour"] == "red"]).astype(float)

    _encode = transform


def test_table_classifier_with_missing_values():
    model = made_classifier(2, 4, 3)
    X, y = made(2, 3)[1:]
    frame = X.drop(columns="depth").assign(colour=np.where(X["depth"] > 0, "red", None))
    frame.loc[:5, "length"] = np.nan
    table = TableStandIn(model, held_out())
    facts = gather(table, frame, y.to_numpy())
    assert facts.target == "kind"
    assert facts.errors.columns == [*NAMES[:3], "colour"]
    assert facts.errors.accuracy == pytest.approx(metrics.accuracy_score(y, table.predict(frame)))
    text = text_of(render(facts))
    for expected in (
        "accuracy on 30 held-out rows 0.800 fraction of the rows whose class is predicted correctly; logistic",
        "log loss on 30 held-out rows 0.400 0 is perfect; logistic regression 0.500, class frequencies 1.100",
        "All methods were fitted to the same 90 rows and tested on 30 others.",
        "hkrr, this model 0.800 (0.100 to 0.100) 0.400 (0.100 to 0.100) logistic regression 0.750",
    ):
        assert expected in text
    assert "is smaller than that of this model" not in text
    worse = render(gather(TableStandIn(model, held_out((0.6, 0.5, 1.1))), frame, y))
    assert "the log loss of logistic regression is smaller than that of this model. See “Comparison" in text_of(worse)


def test_columns_that_the_model_does_not_use_may_be_missing():
    model, X, y = made_classifier(2, 4, 3), *made()[1:]
    frame = X.drop(columns="depth").assign(colour="red")
    table = TableStandIn(model, None)
    table.feature_names_in_ = np.array([*NAMES[:3], "unused", "colour"], dtype=object)
    assert gather(table, frame, y).errors.columns == [*NAMES[:3], "colour"]
    table.transform = super(TableStandIn, table).transform
    with pytest.raises(hkrr.TableError, match="there is no column 'width'"):
        gather(table, frame.drop(columns="width"), y)


def test_models_without_held_out_scores():
    model, X, y = made()
    page = render(gather(model, X, y))
    assert "had the accuracy 0.850 and the log loss 0.400. These values can be too good." in page
    del model.held_out_log_loss_, model.held_out_accuracy_
    assert "had the accuracy" not in render(gather(model, X, y))


def test_findings_of_the_checks_are_shown():
    model, X, y = made()
    model.scores_.diagnostics_ = dataclasses.replace(model.diagnostics_, digits=1.0)
    page = render(gather(model, X, y))
    assert "Numerically unstable" in page
    assert "The checks of the fit found 1 problem." in page


def test_fitted_classifier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = X[:, 0] + 0.2 * rng.normal(size=120) > 0
    model = HyperKernelClassifier(n_init=1, time_limit=1, random_state=0).fit(X[:80], y[:80])
    facts = gather(model, X[80:], y[80:])
    assert facts.errors.accuracy == model.score(X[80:], y[80:])
    assert (facts.target, facts.errors.held_out, facts.classes.labels) == ("y", True, ["False", "True"])
    assert facts.left_out == (model.held_out_accuracy_, model.held_out_log_loss_)
    parse(render(facts))


def test_colours_of_the_style_sheet():
    style = _read("report.css")
    found = dict(re.findall(r"\.of-(\w+) { --of: (#\w+); }", style))
    assert found == {**{str(k): colour for k, colour in enumerate(CLASS_COLOURS[:-1])}, "rest": CLASS_COLOURS[-1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": ["a", "b"]}, "X has 120 rows, but y has 2 entries"),
        ({"y": [["a", "b"]] * 120}, "y must contain one label for each row"),
        ({"y": [None, "a", *"ab" * 59]}, "y is missing in 1 of the 120 rows; remove these rows from X and y"),
        ({"y": pd.Series([pd.NA, np.nan, *"ab" * 59])}, "y is missing in 2 of the 120 rows"),
        ({"target": 1}, "target must be 0 for a classifier"),
        ({"X": "rows.csv"}, "X must be an array or a data frame in memory"),
        ({"model": LogisticRegression()}, "model must be a fitted .* got LogisticRegression"),
        ({"model": HyperKernelClassifier()}, "HyperKernelClassifier instance is not fitted"),
    ],
)
def test_bad_arguments(change, message):
    model, X, y = made()
    given = {"model": model, "X": X, "y": y, **change}
    with pytest.raises(ValueError, match=message):
        gather(given.pop("model"), given.pop("X"), given.pop("y"), **given)


def test_a_table_classifier_with_another_model_is_refused():
    frame = pd.DataFrame({"area": range(60), "colour": ["red", "blue", "green"] * 20})
    model = TableClassifier(LogisticRegression()).fit(frame, frame["colour"])
    with pytest.raises(ValueError, match="got TableClassifier around a LogisticRegression"):
        gather(model, frame, frame["colour"])
