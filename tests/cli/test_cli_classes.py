"""What the commands do with a classifier, which `hkrr.save` has written."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr.tables import describe, predict_frame
from made_models import made_classifier, made_labels
from test_cli_tables import refused, run

NAMES = ["cement", "slag", "water", "age"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier with the names of its columns, one without, and rows with their labels and without."""
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
    for says in (
        "a HyperKernelClassifier, saved by hkrr",
        "Classes, 3: 'c' 40 rows (44.4%), 'b' 30 rows (33.3%), 'a' 20 rows (22.2%)",
        "Loss: logistic; nu 0.1",
        "Accuracy, held out: 0.8500",
        "2 directions of 4 columns",
        "The regression on codes that the map began from: rows 300",
    ):
        assert says in text
    found = json.loads(run("info", folder / "named.hkrr", "--json").stdout)
    assert (found["classes"], found["class_count"]) == (["a", "b", "c"], [20, 30, 40])
    assert (found["nu"], found["softness"], found["held_out_accuracy"]) == (0.1, None, 0.85)
    assert "classes" not in describe(made_classifier().regressor_)


def test_predict_writes_labels_and_probabilities(folder):
    """By the names of the columns, in any order, with no word of intervals."""
    result = run("predict", folder / "named.hkrr", folder / "labelled.csv", "--keep", "kind", "-o", folder / "out.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    model, found = hkrr.load(folder / "named.hkrr"), pd.read_csv(folder / "out.csv")
    assert list(found.columns) == ["kind", "prediction", *(f"probability of {label}" for label in "abc")]
    X = pd.read_csv(folder / "new.csv")
    assert_array_equal(found["prediction"], model.predict(X))
    assert_allclose(found.iloc[:, 2:], model.predict_proba(X), rtol=1e-12)
    nameless = run("predict", folder / "nameless.hkrr", folder / "new.csv")
    assert nameless.stdout.splitlines()[0] == "prediction,probability of a,probability of b"


def test_what_it_refuses_in_a_line(folder):
    named, nameless, new, labelled = (
        folder / name for name in ("named.hkrr", "nameless.hkrr", "new.csv", "labelled.csv")
    )
    for says, *arguments in (
        ("4 columns without names, and these are 5: give those alone, in", "predict", nameless, labelled),
        ("no intervals; its probabilities say how sure it is", "predict", named, new, "--coverage", "0.8"),
        ("a HyperKernelClassifier has no standard deviations", "predict", named, new, "--std"),
        (".summary()) and hkrr.plotting.LinkDisplay show it in Python", "report", named, labelled, "-t", "kind"),
        ("for classes there is hkrr.HyperKernelClassifier", "fit", labelled, "-t", "kind", "-o", folder / "x.hkrr"),
    ):
        assert says in refused(*arguments)


def test_a_column_to_keep_that_is_called_like_a_probability():
    model = made_classifier(1, 2, names=["x", "probability of a"])
    X, _ = made_labels(model, 5)
    with pytest.raises(hkrr.TableError, match="'probability of a', as one of the predictions is: rename it"):
        predict_frame(model, X, keep=["probability of a"])


def test_labels_that_are_numbers_stay_numbers():
    model = made_classifier(1, 2)
    model.classes_ = np.array([3, 7])
    X, _ = made_labels(model, 5)
    found = predict_frame(model, pd.DataFrame(X))
    assert found["prediction"].dtype == model.classes_.dtype
    assert list(found.columns) == ["prediction", "probability of 3", "probability of 7"]
