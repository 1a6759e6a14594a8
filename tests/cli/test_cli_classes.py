"""Test the commands with a classifier that was saved by `hkrr.save`."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr.tables import describe, predict_frame
from support.command_line import refused, run
from support.handmade_models import made_classifier, made_labels

NAMES = ["cement", "slag", "water", "age"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Create a folder with two classifiers (with and without column names) and two tables (with and without labels)."""
    made = tmp_path_factory.mktemp("classes")
    named = made_classifier(2, 4, 3, names=NAMES)
    X, y = made_labels(named)
    hkrr.save(named, made / "named.hkrr")
    hkrr.save(made_classifier(2, 4, 2), made / "nameless.hkrr")
    X.assign(kind=y)[["kind", "age", *NAMES[:3]]].to_csv(made / "labelled.csv", index=False)
    X.to_csv(made / "new.csv", index=False)
    return made


def test_info_shows_the_classes(folder):
    result = run("info", folder / "named.hkrr")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for expected in (
        "a HyperKernelClassifier, saved by hkrr",
        "Classes, 3: 'c' 40 rows (44.4%), 'b' 30 rows (33.3%), 'a' 20 rows (22.2%)",
        "Loss: logistic; nu 0.1",
        "Accuracy, held out: 0.8500",
        "Columns: 4",
        "Directions: 2",
        "Kernel: gaussian, gamma",
        "Diagnostics of the regression with the class codes as targets (regressor_): rows 300",
    ):
        assert expected in text
    found = json.loads(run("info", folder / "named.hkrr", "--json").stdout)
    assert (found["classes"], found["class_count"]) == (["a", "b", "c"], [20, 30, 40])
    assert (found["nu"], found["softness"], found["held_out_accuracy"]) == (0.1, None, 0.85)
    assert "classes" not in describe(made_classifier().regressor_)


def test_predict_writes_labels_and_probabilities(folder):
    """Test that hkrr predict writes the predicted label and the probability of each class.

    The columns of the table may be in any order. No message says that a classifier has no prediction intervals.
    """
    result = run("predict", folder / "named.hkrr", folder / "labelled.csv", "--keep", "kind", "-o", folder / "out.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    model, found = hkrr.load(folder / "named.hkrr"), pd.read_csv(folder / "out.csv")
    assert list(found.columns) == ["kind", "prediction", *(f"probability of {label}" for label in "abc")]
    X = pd.read_csv(folder / "new.csv")
    assert_array_equal(found["prediction"], model.predict(X))
    assert_allclose(found.iloc[:, 2:], model.predict_proba(X), rtol=1e-12)
    nameless = run("predict", folder / "nameless.hkrr", folder / "new.csv")
    assert nameless.stdout.splitlines()[0] == "prediction,probability of a,probability of b"


def test_unsupported_requests_are_refused_in_one_line(folder):
    named, nameless, new, labelled = (
        folder / name for name in ("named.hkrr", "nameless.hkrr", "new.csv", "labelled.csv")
    )
    for expected, *arguments in (
        ("4 columns without names, but the table has 5 columns; select the 4 columns", "predict", nameless, labelled),
        ("no prediction intervals; use its class probabilities instead", "predict", named, new, "--coverage", "0.8"),
        ("a HyperKernelClassifier has no predictive standard deviations", "predict", named, new, "--std"),
        (".summary() or hkrr.plotting.LinkDisplay in Python", "report", named, labelled, "-t", "kind"),
        (
            "use hkrr.HyperKernelClassifier in Python",
            "fit",
            labelled,
            "-t",
            "kind",
            "-o",
            folder / "x.hkrr",
        ),
    ):
        assert expected in refused(*arguments)


def test_a_kept_column_must_not_have_the_name_of_a_result_column():
    model = made_classifier(1, 2, names=["x", "probability of a"])
    X, _ = made_labels(model, 5)
    with pytest.raises(hkrr.TableError, match="'probability of a' because a result column has the same name"):
        predict_frame(model, X, keep=["probability of a"])


def test_numeric_labels_stay_numeric():
    model = made_classifier(1, 2)
    model.classes_ = np.array([3, 7])
    X, _ = made_labels(model, 5)
    found = predict_frame(model, pd.DataFrame(X))
    assert found["prediction"].dtype == model.classes_.dtype
    assert list(found.columns) == ["prediction", "probability of 3", "probability of 7"]
