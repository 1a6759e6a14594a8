"""Test the commands with a classifier: one that was saved by `hkrr.save`, and one that `hkrr fit` fits to a table."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console
from sklearn.metrics import log_loss

import hkrr
from hkrr._storage.checkpoint import FitInterrupted
from hkrr.cli._model_summary import show_scores
from hkrr.tables import HeldOutClassScores, describe, hold_out, predict_frame, read_table
from support.command_line import refused, run
from support.handmade_models import made_classifier, made_labels
from support.house_table import KIND, TARGET, kinds, table

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
        "Loss: logistic; the map of the best regression on the classes was refined",
        "Log loss, held out: 0.4000",
        "Accuracy, held out: 0.8500",
        "Columns: 4",
        "Classification by 1 model: weight kernel map directions columns centers 1.000 gaussian full 2 values 40",
        "Diagnostics of the first model, a regression on the indicators of the classes: rows 300",
    ):
        assert expected in text
    found = json.loads(run("info", folder / "named.hkrr", "--json").stdout)
    assert (found["classes"], found["class_count"]) == (["a", "b", "c"], [20, 30, 40])
    assert (found["refined"], found["held_out_log_loss"], found["held_out_accuracy"]) == (True, 0.4, 0.85)
    assert len(found["members"]) == 1
    assert "classes" not in describe(made_classifier().members_[0])


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
        ("does not contain the name of the target column; give the name with --target", "report", named, labelled),
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


QUICK = ["--time-limit", "1"]


def columns(n=80):
    """Return a small table with a number, a text column and a date, without a target."""
    return kinds(n)[["area (m2)", "town", "sold"]]


def write(folder, **targets):
    """Write the small table with these targets to a file, and return the path of the file."""
    columns(len(next(iter(targets.values())))).assign(**targets).to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


@pytest.fixture
def unfitted(monkeypatch):
    """Let every fit of `hkrr fit` fail after the input has been checked, and return the list of the models."""
    models = []

    def fails(self, X, y, *more):
        models.append(self)
        raise hkrr.FitError("no fit in this test")

    for cls in (hkrr.HyperKernelClassifier, hkrr.HyperKernelEnsemble, hkrr.HyperKernelRidgeCV):
        monkeypatch.setattr(cls, "fit", fails)
    return models


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit a table whose target is text. Return the result of ``hkrr fit``, the table, and the file of the model."""
    made = tmp_path_factory.mktemp("fitted")
    data = write(made, kind=[*kinds(80)[KIND][:-2], None, "NA"])
    result = run("fit", data, "-o", made / "kinds.hkrr", *QUICK)
    assert result.exit_code == 0, result.output
    return result, data, made / "kinds.hkrr"


def test_fit_to_a_column_of_text(fitted):
    result, data, file = fitted
    model, text = hkrr.load(file), result.stdout
    assert text.startswith(
        "table.csv: predicting 'kind' (the last column; use --target for another) from 3 columns\n"
        "'kind' contains text, so its values are 3 classes\n"
        "62 training rows, 16 held-out rows; dropped 2 rows without a target\n"
    )
    assert str(model.held_out_) in text
    assert re.search(r"\n  hkrr  +\d\.\d{3} \(\d\.\d{3} to \d\.\d{3}\)   \d\.\d{3} \(\d\.\d{3} to \d\.\d{3}\)\n", text)
    assert "\n  logistic regression  " in text
    assert "\n  class frequencies    " in text
    assert "Number of held-out rows of each class (one line each), by predicted class:\n" in text
    assert "\n  Classes, 3:  " in text
    assert "\nClassification by " in text
    assert "\n  town  " in text
    assert f"  hkrr report {file} {data} -o report.html\n" in text
    assert f"  hkrr predict {file} NEW.csv -o predictions.csv\n" in text
    assert all(len(line) <= 80 or str(file) in line for line in text.splitlines()[1:])
    assert "baselines for the comparison: logistic regression" in result.stderr
    assert re.search(r"\(best held-out accuracy so far \d\.\d{3}", result.stderr)
    split = hold_out(read_table(data), "kind", task="auto")
    assert model.held_out_.accuracy[0] == pytest.approx(np.mean(model.predict(split.test) == split.y_test))
    assert (type(model).__name__, type(model.model_).__name__) == ("TableClassifier", "HyperKernelClassifier")
    assert model.model_.time_limit == 1.0  # not the time that was left for the fit


def test_predict_after_fit(fitted, tmp_path):
    _, data, file = fitted
    model, frame = hkrr.load(file), read_table(data)
    result = run("predict", file, data, "-o", tmp_path / "out.csv", "--keep", "kind")
    assert (result.exit_code, result.stderr) == (0, "")
    names = [f"probability of {label}" for label in ("flat", "house", "villa")]
    assert result.stdout == f"Wrote 80 rows to {tmp_path / 'out.csv'}: kind, prediction, {', '.join(names)}\n"
    found = pd.read_csv(tmp_path / "out.csv")
    assert_array_equal(found["prediction"], model.predict(frame))
    assert_allclose(found[names], model.predict_proba(frame), rtol=1e-12)
    assert_allclose(found[names].sum(axis=1), 1.0)
    line = refused("predict", file, data, "--coverage", "0.9")
    assert line == "a HyperKernelClassifier has no prediction intervals; use its class probabilities instead"


def test_info_after_fit(fitted):
    _, _, file = fitted
    model, result = hkrr.load(file), run("info", file)
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert text.startswith(
        f"{file}: a TableClassifier with a HyperKernelClassifier, saved by hkrr {hkrr.__version__}\n"
    )
    assert "\nParameters: random_state=0, time_limit=1.0\nTarget: 'kind'\n" in text
    assert str(model.held_out_) in text
    assert "by predicted class:" in text
    assert "\nDiagnostics of the first model, a regression on the indicators of the classes:\n" in text
    assert "  area (m2)  number" in text
    found = json.loads(run("info", file, "--json").stdout)
    assert found["target"] == "kind"
    assert found["classes"] == found["held_out"]["classes"] == ["flat", "house", "villa"]
    assert found["held_out"]["confusion"] == [list(row) for row in model.held_out_.confusion]


def test_report_after_fit(fitted, tmp_path):
    """Test that the report is about the rows that have a class, and that its scores are those of the model."""
    _, data, file = fitted
    model, frame = hkrr.load(file), read_table(data)
    result = run("report", file, data, "-o", tmp_path / "page.html")
    known = frame[frame["kind"].isin(model.classes_)]
    accuracy = np.mean(model.predict(known) == known["kind"])
    loss = log_loss(known["kind"], model.predict_proba(known))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"Wrote {tmp_path / 'page.html'}: 78 rows, accuracy {accuracy:.3f}, log loss {loss:.3f} (includes training "
        "rows, so the scores are optimistic). Open it in a browser.\n"
    )
    page = (tmp_path / "page.html").read_text()
    assert "<h1>What kind depends on</h1>" in page
    assert f"accuracy on {model.held_out_.n_test} held-out rows" in page
    found = json.loads(run("report", file, data, "-o", tmp_path / "page.html", "--json").stdout)
    assert (found["task"], found["rows"], found["held_out"]) == ("classification", 78, False)
    assert (found["accuracy"], found["log_loss"]) == pytest.approx((accuracy, loss))
    frame.drop(columns="kind").to_csv(tmp_path / "new.csv", index=False)
    line = refused("report", file, tmp_path / "new.csv", "-o", tmp_path / "none.html")
    assert line.endswith("has no column 'kind', the target of the model; a report needs rows with the target")
    frame.assign(kind=None).to_csv(tmp_path / "none.csv", index=False)
    assert "is missing in every row" in refused("report", file, tmp_path / "none.csv", "-o", tmp_path / "none.html")
    frame.drop(columns="town").to_csv(tmp_path / "less.csv", index=False)
    line = refused("report", file, tmp_path / "less.csv", "-o", tmp_path / "none.html")
    assert line.startswith("there is no column 'town'")
    assert not (tmp_path / "none.html").exists()


def test_report_on_few_rows_of_a_classifier_without_table(folder):
    """Test a model that was fitted to numbers, with fewer rows per class than a fit needs, and an unknown class."""
    table = pd.read_csv(folder / "labelled.csv").head(4)
    table.assign(kind=["a", "b", "c", "d"]).to_csv(folder / "few.csv", index=False)
    result = run("report", folder / "named.hkrr", folder / "few.csv", "-t", "kind", "-o", folder / "few.html")
    assert result.exit_code == 0, result.output
    assert "4 rows, accuracy " in result.stdout
    note = "1 row of this report belongs to classes that were not among the training rows: d."
    assert note in (folder / "few.html").read_text()


def test_fit_to_a_target_of_zeros_and_ones_as_json(tmp_path):
    data = write(tmp_path, sold_again=(kinds(60)[KIND] == "flat").astype(int))
    result = run("fit", data, "-o", tmp_path / "m", "--json", *QUICK)
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["class"], found["classifier"], found["task"]) == (
        "TableClassifier",
        "HyperKernelClassifier",
        "classification",
    )
    assert found["classes"] == ["0", "1"]
    assert (found["target"], found["out"], found["warnings"]) == ("sold_again", str(tmp_path / "m"), found["warnings"])
    assert found["held_out"]["methods"] == ["hkrr", "logistic regression", "class frequencies"]
    assert np.sum(found["held_out"]["confusion"]) == found["held_out"]["n_test"] == 12
    header, first, *_ = run("predict", tmp_path / "m", data).stdout.splitlines()
    assert header == "prediction,probability of 0,probability of 1"
    assert first.split(",")[0] in ("0", "1")


def test_quiet_fit_without_held_out_rows(tmp_path):
    data = write(tmp_path, kind=kinds(60)[KIND])
    result = run("fit", data, "-o", tmp_path / "m", "--quiet", "--test-share", "0", *QUICK)
    assert (result.exit_code, result.output) == (0, "")
    model = hkrr.load(tmp_path / "m")
    assert not hasattr(model, "held_out_")
    assert model.model_.class_count_.sum() == 60
    text = run("info", tmp_path / "m").stdout
    assert "held-out rows" not in text


def test_few_whole_numbers_are_classes_or_numbers(tmp_path, unfitted):
    data = write(tmp_path, rooms=np.arange(80) % 4 + 1.0)
    advice = "(use --task regression to predict numbers)"
    for options, text, model in (
        ([], f"'rooms' has 4 distinct whole numbers, so its values are 4 classes {advice}", "HyperKernelClassifier"),
        (["--task", "classification"], f"The values of the target are 4 classes {advice}", "HyperKernelClassifier"),
        (["--task", "regression"], "64 training rows, 16 held-out rows", "HyperKernelEnsemble"),
        (["--task", "regression", "--kernel", "gaussian"], "64 training rows", "HyperKernelRidgeCV"),
    ):
        result = run("fit", data, "-o", tmp_path / "m", *options)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "no fit in this test")
        assert result.stdout.splitlines()[1].startswith(text)
        assert type(unfitted[-1]).__name__ == model
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("options", [["--kernel", "gaussian"], ["--n-components", "2"]])
def test_options_for_regression_are_refused_for_classes(tmp_path, unfitted, options):
    start = "--kernel and --n-components are for regression, but the values of the target are classes"
    data = write(tmp_path, rooms=np.arange(80) % 4, kind=kinds(80)[KIND])
    line = refused("fit", data, "-o", tmp_path / "m", *options)
    assert line == f"{start} ('kind' contains text); leave these options out"
    line = refused("fit", data, "-o", tmp_path / "m", "-t", "rooms", *options)
    assert line == f"{start} ('rooms' has 4 distinct whole numbers); leave these options out, or use --task regression"
    line = refused("fit", data, "-o", tmp_path / "m", "-t", "rooms", "--task", "classification", *options)
    assert line == f"{start}; leave these options out, or use --task regression"
    assert unfitted == []


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (
            table(80)[TARGET].tolist(),
            ["--task", "classification"],
            "different values in 80 rows, too many for classes; predict numbers (--task regression)",
        ),
        (
            [f"name {k}" for k in range(80)],
            [],
            "the target 'y' has 80 different values in 80 rows, too many for classes; choose another target column",
        ),
        (
            ["a", "b"] * 40,
            ["--task", "regression"],
            "the target 'y' must contain finite numbers, but row 0 (counting from 0) is 'a'; choose another target "
            "column, or predict classes: --task classification, or hkrr.TableClassifier in Python",
        ),
        (["a"] * 80, [], "the target 'y' is 'a' in every row; there is nothing to learn"),
        ([1] * 80, ["--task", "classification"], "the target 'y' is '1' in every row; there is nothing to learn"),
        (["a", "b", *[None] * 78], [], "too few rows to hold out a fraction of 0.2: 0 of the 2 rows with a target"),
        ([None] * 80, ["--task", "classification"], "the target 'y' is missing in every row"),
        (["a", "b"] * 40, ["--task", "clustering"], "Invalid value for '--task'"),
    ],
)
def test_unusable_targets_are_refused_in_one_line(tmp_path, unfitted, target, options, message):
    data = write(tmp_path, y=target)
    assert message in refused("fit", data, "-o", tmp_path / "m", *options)
    as_json = run("fit", data, "-o", tmp_path / "m", *options, "--json")
    assert (as_json.exit_code, as_json.stderr) == (2, "")
    assert message in json.loads(as_json.stdout)["error"]
    assert unfitted == []


def test_a_class_with_one_row(tmp_path):
    """Test that the only row of a class is used for training, and that the model knows the class."""
    labels = kinds(60)[KIND].tolist()
    labels[7] = "castle"
    result = run("fit", write(tmp_path, kind=labels), "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.output
    assert "so its values are 4 classes\n" in result.stdout
    assert "'castle' 1 row" in " ".join(result.stdout.split())
    model = hkrr.load(tmp_path / "m")
    assert model.classes_.tolist() == ["castle", "flat", "house", "villa"]
    assert sum(model.held_out_.confusion[0]) == 0


def test_a_classifier_is_saved_if_the_baselines_fail(tmp_path, monkeypatch):
    def fails(X, y, X_test):
        raise FloatingPointError("no probability is finite")

    def fit(self, X, y):
        return made

    made = made_classifier(1, 4, 2, names=None)
    monkeypatch.setattr("hkrr.tables.held_out_comparison.class_baselines", fails)
    monkeypatch.setattr(hkrr.HyperKernelClassifier, "fit", fit)
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 4)), columns=NAMES).assign(y=["a", "b"] * 20)
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", "-o", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "! The model could not be evaluated: no probability is finite" in result.stdout
    assert hkrr.load(tmp_path / "m").predict(frame).shape == (40,)


def test_a_baseline_with_a_smaller_log_loss_is_recommended():
    def shown(*log_loss):
        scores = HeldOutClassScores("y", names, each, each, each, log_loss, each, each, ("a",), ((9,),), 30, 9, 0, 0.95)
        console = Console(width=79, record=True, file=io.StringIO())
        show_scores(console, scores)
        return " ".join(console.export_text().split())

    names, each = ("hkrr", "logistic regression", "class frequencies"), (0.9, 0.8, 0.7)
    assert "The baseline" not in shown(0.2, 0.195, 0.5)  # the difference is too small
    assert "The baseline" not in shown(0.2, 0.3, 0.5)
    assert shown(0.2, 0.1, 0.5).endswith(
        "The baseline 'logistic regression' has a smaller log loss on these rows. Consider using it instead "
        "(sklearn.linear_model.LogisticRegression in Python)."
    )
    assert shown(0.2, 0.3, 0.1).endswith(
        "'class frequencies' has a smaller log loss on these rows. Consider using it instead."
    )


def test_ctrl_c_saves_the_best_classifier_so_far(tmp_path, monkeypatch):
    def stopped(self, X, y):
        raise FitInterrupted(made_classifier(1, 4, 2))

    monkeypatch.setattr(hkrr.HyperKernelClassifier, "fit", stopped)
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 4)), columns=NAMES).assign(y=["a", "b"] * 20)
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", tmp_path / "t.csv", "-q", "-o", tmp_path / "m", "--checkpoint", tmp_path / "c"]
    line = refused(*command, status=130)
    assert line.startswith(f"Stopped. The best model so far was saved to {tmp_path / 'm'}. Run the same command again")
    assert hkrr.load(tmp_path / "m").predict_proba(frame).shape == (40, 2)
