"""Test the output, the files and the error messages of hkrr fit, predict, report and info."""

import copy
import dataclasses
import io
import json
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import hkrr
from hkrr import cli, tables
from hkrr.kernels import kernel_name
from hkrr.tables import TableRegressor, hold_out, predict_frame, read_table, reading, table_model
from support.command_line import refused, run
from support.house_table import TARGET, table, write
from support.models_to_save import with_two_members

QUICK = ["--kernel", "gaussian", "--n-components", "1"]


def without(model, name):
    """Return a copy of a model without an attribute."""
    found = copy.copy(model)
    delattr(found, name)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tables")
    write(made)
    write(made, "houses.parquet")
    table(30, seed=1).drop(columns=TARGET).to_csv(made / "new.csv", index=False)
    return made


@pytest.fixture(scope="module")
def fitted(folder):
    """Return the result of the command ``hkrr fit`` and the fitted model."""
    out = folder / "houses.hkrr"
    result = run("fit", folder / "houses.csv", "--target", TARGET, "-o", out, *QUICK)
    assert result.exit_code == 0, result.output
    return result, hkrr.load(out)


def test_fit_prints_a_summary(fitted, folder):
    result, model = fitted
    text = result.stdout
    assert "houses.csv: predicting 'price' from 10 columns\n96 training rows, 24 held-out rows\n" in text
    assert str(model.held_out_) in text
    assert re.search(r"\n  Columns: +\d+\n", text)
    assert "\n  Directions:           1\n" in text
    assert "\n  Kernel:               gaussian, gamma " in text
    assert "+1.00 " in text
    assert "  owner      left out  nearly all values differ, as in an identifier\n" in text
    assert f"  hkrr predict {folder / 'houses.hkrr'} NEW.csv -o predictions.csv\n" in text
    assert all(len(line) <= 80 or str(folder) in line for line in text.splitlines())
    assert "directions at the start, gaussian" in result.stderr
    assert "final fit on all rows  (best held-out R2 so far " in result.stderr
    assert model.held_out_.target == TARGET
    assert model.held_out_.n_test == 24


def test_fit_is_equivalent_to_the_python_interface(fitted, folder):
    """Test that hkrr fit gives the same predictions and the same R2 as TableRegressor in Python."""
    _, model = fitted
    split = hold_out(read_table(folder / "houses.csv"), TARGET)
    regressor = hkrr.HyperKernelRidgeCV(n_components=1, random_state=0)
    same = TableRegressor(regressor).fit(split.train, split.y_train)
    assert_allclose(same.predict(split.test), model.predict(split.test), rtol=1e-10)
    assert model.held_out_.r2[0] == pytest.approx(same.score(split.test, split.y_test), abs=1e-9)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    """Return the result of ``hkrr fit`` without options for the model, and the file of the model."""
    folder = tmp_path_factory.mktemp("ensemble")
    table(80)[["age", "garden", TARGET]].to_csv(folder / "t.csv", index=False)
    result = run("fit", folder / "t.csv", "-o", folder / "m", "--json")
    assert result.exit_code == 0, result.output
    return result, folder / "m"


def test_the_default_is_an_ensemble(ensemble, tmp_path):
    result, file = ensemble
    found, model = json.loads(result.stdout), hkrr.load(file)
    assert (found["class"], found["regressor"]) == ("TableRegressor", "HyperKernelEnsemble")
    assert found["parameters"] == {"random_state": 0}
    assert [each["weight"] for each in found["members"]] == model.model_.weights_.tolist()
    frame = table(80)
    with_two_members(model.model_, model.transform(frame), frame[TARGET])
    hkrr.save(model, tmp_path / "m")
    first = model.model_.members_[0]
    members = json.loads(run("info", tmp_path / "m", "--json").stdout)["members"]
    names = ("weight", "kernel", "shape", "n_components")
    assert members[0] == dict(
        zip(names, (0.7, kernel_name(first.kernel_), first.map_shape_, len(first.map_)), strict=True)
    )
    assert members[1] == dict(zip(names, (0.2, "laplace", "full", 1), strict=True))
    text = run("info", tmp_path / "m").stdout
    for row in (("weight", "kernel", "map", "directions", "columns", "centers"), *model.model_.summary().members):
        assert re.search("\n  " + " +".join(map(re.escape, row)) + "\n", text)
    assert "\nWeighted sum of 2 models:\n  weight " in text
    assert re.search(r"\n  0.200 +laplace +full +1 +values +\d+\n", text)
    assert "Most important columns:\n  " in text
    assert str(model.model_.diagnostics_) in text


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--kernel", "laplace"], {"kernel": "laplace", "n_components": "auto"}),
        (["--kernel", "auto"], {"kernel": "auto", "n_components": "auto"}),
        (["--n-components", "2"], {"kernel": "auto", "n_components": 2}),
    ],
)
def test_options_for_a_single_model(folder, monkeypatch, options, parameters):
    fitted = []

    def noted(self, X, y):
        fitted.append(self)
        raise hkrr.FitError("enough")

    monkeypatch.setattr(hkrr.HyperKernelRidgeCV, "fit", noted)
    refused("fit", folder / "houses.csv", "-q", "--seed", 3, *options, status=1)
    assert fitted[0].get_params().items() >= {**parameters, "random_state": 3}.items()


def test_outliers_are_shown_with_their_lines(tmp_path):
    frame = table(80)[["age", "area (m2)", TARGET]].dropna().reset_index(drop=True)
    rows = hold_out(frame, TARGET).train.index[[5, 30]]
    frame.loc[rows, TARGET] += [50.0, 60.0]
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = run("fit", tmp_path / "t.csv", "-o", tmp_path / "m", *QUICK).stdout
    numbers = (tmp_path / "t.csv").read_text().splitlines()
    lines = [
        1 + numbers.index(line) for row in rows[::-1] for line in numbers if line.endswith(f",{frame[TARGET][row]}")
    ]
    line = "\n2 rows were treated as outliers: lines {}, {} of the file (the header is line 1).\n".format(*lines)
    assert line in text
    info = run("info", tmp_path / "m").stdout
    assert line in info
    assert "outliers in y" not in info  # this line would number the training rows, not the lines of the file
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["outliers"] == rows[::-1].tolist()


def test_fit_as_json(folder, tmp_path):
    arguments = ["fit", folder / "houses.parquet", "-o", tmp_path / "m", *QUICK, "--json", "--drop", "id"]
    result = run(*arguments, "--drop", "owner", "--test-share", "0.5", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["target"] == TARGET  # the last column
    assert found["held_out"]["methods"] == ["hkrr", "kernel ridge", "linear"]
    assert found["held_out"]["n_test"] == 60
    assert "owner" not in [column["name"] for column in found["columns"]]
    assert found["directions"][0]["weight"] == 1.0
    assert found["out"] == str(tmp_path / "m")
    assert found["seconds"] > 0
    assert hkrr.load(tmp_path / "m").held_out_.seed == 3


def test_quiet_and_no_held_out_rows(folder, tmp_path):
    result = run("fit", folder / "houses.csv", "-o", tmp_path / "m", *QUICK, "--quiet", "--test-share", "0")
    assert (result.exit_code, result.output) == (0, "")
    assert not hasattr(hkrr.load(tmp_path / "m"), "held_out_")


def test_the_last_column_is_the_default_target(folder, tmp_path):
    result = run("fit", folder / "houses.csv", "-o", tmp_path / "m", *QUICK, "--test-share", "0")
    assert "predicting 'price' (the last column; use --target for another)" in result.stdout
    assert "96 training rows" not in result.stdout
    assert "120 training rows, no held-out rows" in result.stdout


def test_warnings_are_printed_once(folder, tmp_path, monkeypatch):
    fit = hkrr.HyperKernelRidgeCV.fit

    def fit_with_warnings(self, X, y):
        for _ in range(2):
            warnings.warn(
                "the solver did not converge, and this text is longer than one line,", hkrr.HKRRWarning, stacklevel=1
            )
        return fit(self, X, y)

    monkeypatch.setattr(hkrr.HyperKernelRidgeCV, "fit", fit_with_warnings)
    result = run("fit", folder / "houses.csv", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n! the solver did not converge, and this text is longer than one line,\n") == 1


def test_missing_values_are_refused_on_request(folder, tmp_path):
    line = refused("fit", folder / "houses.csv", "-q", "-o", tmp_path / "m", "--missing", "refuse")
    assert "column 'area (m2)' has " in line
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "none.csv: No such file or directory"),
        (["houses.csv", "-t", "prize"], "there is no column 'prize'; did you mean 'price'?"),
        (
            ["houses.csv", "-t", "town", "--task", "regression"],
            "the target 'town' must contain finite numbers, but row 0 (counting from 0) is 'Bari'",
        ),
        (["houses.csv", "--drop", "twon"], "there is no column 'twon' to drop; did you mean 'town'?"),
        (["houses.csv", "-o", "none/m"], "--out none/m: the folder none does not exist; create it first"),
        (["houses.csv", "-o", "."], "--out .: this is a folder"),
        (["houses.csv", "--checkpoint", "none/c"], "--checkpoint none/c: the folder none does not exist"),
        (["houses.csv", "--kernel", "odd"], "odd"),
        (["houses.csv", "--n-components", "99"], "n_components=99 exceeds the number of columns of X"),
        (["houses.csv", "--n-jobs", "0"], "n_jobs must be"),
        (["houses.csv", "--test-share", "0.001"], "too few rows to hold out"),
    ],
)
def test_fit_reports_invalid_input_in_one_line(folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        "hkrr.tables.held_out_comparison.baseline_predictions", lambda *a: pytest.fail("the baselines were fitted")
    )
    before = sorted(folder.iterdir())
    assert message in refused("fit", *arguments)
    as_json = run("fit", *arguments, "--json")
    assert (as_json.exit_code, as_json.stderr) == (2, "")
    assert message in json.loads(as_json.stdout)["error"]
    assert sorted(folder.iterdir()) == before


def test_outputs_are_checked_before_the_fit(folder, monkeypatch):
    monkeypatch.setattr(reading, "read_pieces", lambda source: pytest.fail("the file was read"))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "no permission to write" in refused("fit", folder / "houses.csv", "-o", folder / "m")


def test_a_failed_fit_exits_with_status_1(folder, monkeypatch):
    def fails(self, X, y):
        raise hkrr.FitError("No start has a finite\ncriterion.")

    monkeypatch.setattr(hkrr.HyperKernelEnsemble, "fit", fails)
    line = refused("fit", folder / "houses.csv", "-o", folder / "m", "-q", status=1)
    assert line == "No start has a finite criterion."


def test_invalid_held_out_rows_are_an_error_before_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(hkrr.HyperKernelEnsemble, "fit", lambda self, X, y: pytest.fail("the model was fitted"))
    frame = table(200)[["age", TARGET]].astype({"age": object})
    frame.loc[hold_out(frame, TARGET).test.index[0], "age"] = "old"
    frame.to_csv(tmp_path / "t.csv", index=False)
    message = refused("fit", tmp_path / "t.csv", "-o", tmp_path / "m")
    assert "'old' in column 'age'" in message
    assert "is not a number" in message


def test_a_model_that_cannot_be_evaluated_is_saved(tmp_path):
    frame = table(60)[["age", TARGET]]
    frame.loc[hold_out(frame, TARGET).test.index, TARGET] = 1.0
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.output
    assert "! The model could not be evaluated: R2 needs held-out rows with different" in result.stdout
    assert not hasattr(hkrr.load(tmp_path / "m"), "held_out_")


def test_a_model_is_saved_if_the_baselines_fail(folder, tmp_path, monkeypatch):
    def fails(X, y, X_test, seed):
        raise FloatingPointError("no kernel is finite")

    monkeypatch.setattr("hkrr.tables.held_out_comparison.baseline_predictions", fails)
    result = run("fit", folder / "houses.csv", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.output
    assert "! The model could not be evaluated: no kernel is finite" in result.stdout
    assert hkrr.load(tmp_path / "m").predict(table(5)).shape == (5,)


def test_ctrl_c_during_the_evaluation_keeps_the_model(folder, tmp_path, monkeypatch):
    def stopped(model, split, others):
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "compare", stopped)
    result = run("fit", folder / "houses.csv", "-q", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 130
    assert result.stderr == f"Stopped before the evaluation. The model was saved to {tmp_path / 'm'}.\n"
    assert hkrr.load(tmp_path / "m").predict(table(5)).shape == (5,)


def test_ctrl_c_without_a_checkpoint(folder, monkeypatch):
    def stopped(self, X, y):
        raise KeyboardInterrupt

    monkeypatch.setattr(hkrr.HyperKernelEnsemble, "fit", stopped)
    command = ["fit", folder / "houses.csv", "-o", folder / "m", "-q"]
    line = refused(*command, status=130)
    assert line.startswith("Stopped. Nothing was saved. With --checkpoint FILE, Ctrl-C saves the best model so far")
    line = refused(*command, "--checkpoint", folder / "c", status=130)
    assert line == f"Stopped before a model was found. Run the same command again to resume from {folder / 'c'}."
    assert not (folder / "m").exists()


def test_the_time_limit_applies_to_the_whole_command(folder, tmp_path, monkeypatch):
    """Test that the time of the baselines is subtracted from the time limit of the fit.

    The fit gets at least half of the limit. In this test, the baselines take 7 s, and the encoding of the columns takes
    no time.
    """
    given, fit = [], hkrr.HyperKernelRidgeCV.fit

    def noted(self, X, y):
        given.append(self.time_limit)
        return fit(self.set_params(time_limit=None), X, y)

    def slow(X, y, X_test, seed):
        clock[0] += 7.0
        return {"linear": np.zeros(len(X_test))}

    clock = [0.0]
    monkeypatch.setattr(hkrr.HyperKernelRidgeCV, "fit", noted)
    monkeypatch.setattr("hkrr.tables.held_out_comparison.baseline_predictions", slow)
    for module in (cli.fit, table_model):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    for limit in (20, 10):
        command = ["fit", folder / "houses.csv", "-o", tmp_path / "m", *QUICK, "-q", "--time-limit", limit]
        assert run(*command).exit_code == 0
    assert given == [13.0, 5.0]
    assert hkrr.load(tmp_path / "m").held_out_.methods == ("hkrr", "linear")
    assert "Parameters: n_components=1, random_state=0, time_limit=10.0" in run("info", tmp_path / "m").stdout


def test_predictions_in_files(fitted, folder, tmp_path, monkeypatch):
    _, model = fitted
    new = read_table(folder / "new.csv")
    expected = predict_frame(model, new, keep=["id", "town"])
    monkeypatch.setattr(reading, "_PIECE_BYTES", 600)  # read the file in several pieces
    for name in ("out.csv", "out.parquet"):
        out = tmp_path / name
        result = run("predict", folder / "houses.hkrr", folder / "new.csv", "-o", out, "--keep", "id, town")
        assert result.exit_code == 0, result.output
        assert f"Wrote 30 rows to {out}: id, town, prediction" in result.stdout
        found = read_table(out)
        assert list(found["town"].fillna("")) == list(expected["town"].fillna(""))
        assert_allclose(found["prediction"], expected["prediction"], rtol=1e-12)
        assert [each.name for each in tmp_path.iterdir() if each.suffix == ".tmp"] == []
    result = run("predict", folder / "houses.hkrr", folder / "new.csv", "-o", tmp_path / "out.csv", "--json")
    found = json.loads(result.stdout)
    assert (found["rows"], found["out"]) == (30, str(tmp_path / "out.csv"))


def test_predictions_from_and_to_pipes(fitted, folder):
    text = (folder / "new.csv").read_text()
    result = run("predict", folder / "houses.hkrr", "-", "--no-intervals", input=text)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "prediction"
    assert_allclose([float(line) for line in lines[1:]], fitted[1].predict(read_table(folder / "new.csv")), rtol=1e-12)


class _WithIntervals:
    """A stand-in for a fitted model with prediction intervals."""

    n_features_in_ = 1

    def predict(self, X, return_std=False):
        return (X[:, 0], 0 * X[:, 0] + 2) if return_std else X[:, 0]

    def predict_interval(self, X, coverage=0.9):
        return X[:, 0] - 2 * coverage, X[:, 0] + 2 * coverage


class _FailingIntervals(_WithIntervals):
    def predict_interval(self, X, coverage=0.9):
        raise ValueError("this model has no\nresiduals")


def test_intervals_are_written_by_default(monkeypatch):
    monkeypatch.setattr(hkrr, "load", lambda path: _WithIntervals())
    assert run("predict", "m", "-", input="a\n1\n").stdout == "prediction,lower,upper\n1.0,-0.8,2.8\n"
    result = run("predict", "m", "-", "--coverage", "0.5", "--std", input="a\n1\n")
    assert result.stdout == "prediction,lower,upper,std\n1.0,0.0,2.0,2.0\n"
    monkeypatch.setattr(hkrr, "load", lambda path: _FailingIntervals())
    result = run("predict", "m", "-", input="a\n1\n")
    assert (result.exit_code, result.stdout) == (0, "prediction\n1.0\n")
    assert result.stderr == "No intervals: this model has no residuals\n"
    result = run("predict", "m", "-", "--coverage", "0.9", input="a\n1\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "this model has no residuals\n"


def test_coverage_that_needs_more_rows(fitted, folder):
    """Test that a coverage that is too large for the number of residuals is refused, and a smaller one is suggested.

    The suggested coverage works. A coverage that is larger by 0.001 is refused.
    """
    command = ["predict", folder / "houses.hkrr", folder / "new.csv", "--coverage"]
    line = refused(*command, 0.999)
    # The 96 training rows count as fewer than 96 residuals, because rows with missing values have smaller weights.
    assert re.match(
        r"--coverage 0.999 needs the residuals of at least 999 rows, but this model has 9\d residuals; use ", line
    )
    assert f"hkrr.load({str(folder / 'houses.hkrr')!r}).calibrate(X, y)" in line
    largest = float(re.search(r"use --coverage (0\.\d+) or less", line)[1])
    assert run(*command, largest).exit_code == 0
    assert f"--coverage {largest:g} or less" in refused(*command, largest + 0.001)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.hkrr", "new.csv"], "none.hkrr: No such file or directory"),
        (["new.csv", "new.csv"], "new.csv is a table, not a model; to fit a model, run: hkrr fit new.csv"),
        (["no.hkrr", "new.csv"], "no.hkrr cannot be loaded"),
        (["houses.hkrr", "none.csv"], "none.csv: No such file or directory"),
        (["houses.hkrr", "new.csv", "-o", "out.xlsx"], "--out out.xlsx: the file name must end with .csv, .parquet"),
        (["houses.hkrr", "new.csv", "-o", "none/out.csv"], "the folder none does not exist"),
        (["houses.hkrr", "new.csv", "--keep", "twon"], "did you mean 'town'?"),
        (["houses.hkrr", "new.csv", "--json"], "--json requires --out"),
        (
            ["houses.hkrr", "new.csv", "--no-intervals", "--coverage", "0.5"],
            "--coverage and --no-intervals are mutually exclusive",
        ),
        (["houses.hkrr", "short.csv"], "there is no column 'area (m2)'"),
        (
            ["houses.hkrr", "words.csv", "-o", "out.csv"],
            "'old' in column 'age', row 15 (counting from 0), is not a number",
        ),
    ],
)
def test_predict_reports_invalid_input_in_one_line(fitted, folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    (folder / "short.csv").write_text("age\n3\n")
    (folder / "no.hkrr").write_text("age\n3\n")
    words = table(20).astype({"age": object})
    words.loc[15, "age"] = "old"
    words.to_csv("words.csv", index=False)
    before = sorted(folder.iterdir())
    result = run("predict", *arguments)
    assert result.exit_code == 2
    if "--json" not in arguments:
        (line,) = result.stderr.splitlines()
        assert message in line
        assert result.stdout == ""
    else:
        assert message in json.loads(result.stdout)["error"]
    assert sorted(folder.iterdir()) == before


def test_info(fitted, folder, tmp_path):
    _, model = fitted
    result = run("info", folder / "houses.hkrr")
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert f"a TableRegressor with a HyperKernelRidgeCV, saved by hkrr {hkrr.__version__}" in text
    assert "Parameters: n_components=1, random_state=0" in text
    assert str(model.held_out_) in text
    assert str(model.model_.diagnostics_) in text
    assert "  age        number\n" in text
    found = json.loads(run("info", folder / "houses.hkrr", "--json").stdout)
    assert (found["target"], found["library"], found["n_components"]) == (TARGET, hkrr.__version__, 1)
    assert found["diagnostics"]["effective_dimension"] > 1
    sir = hkrr.baselines.SIR(1).fit(np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0))
    hkrr.save(sir, tmp_path / "sir")
    first = f"{tmp_path / 'sir'}: a SIR, saved by hkrr {hkrr.__version__}\n"
    assert run("info", tmp_path / "sir").stdout == f"{first}Parameters: n_components=1\n"
    for name in ("houses.csv", "houses.parquet"):
        assert f"{name} is a table, not a model; to fit a model, run: hkrr fit " in refused("info", folder / name)
    assert "No such file" in json.loads(run("info", "none", "--json").stdout)["error"]


def test_info_shows_the_target_without_held_out_scores(fitted, tmp_path):
    _, model = fitted
    hkrr.save(without(model, "held_out_"), tmp_path / "m")
    assert "\nTarget: 'price'\n" in run("info", tmp_path / "m").stdout
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["target"] == TARGET


def test_report_takes_the_target_from_the_held_out_scores(fitted, folder, tmp_path):
    _, model = fitted
    hkrr.save(without(model, "target_"), tmp_path / "m")
    result = run("report", tmp_path / "m", folder / "houses.csv", "-o", tmp_path / "page.html", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 120


def test_report_on_rows_with_constant_targets(fitted, folder, tmp_path):
    """Test a report on rows whose targets are all equal. A fit refuses such rows, but a report does not."""
    table(30, seed=2).assign(**{TARGET: 3.0}).to_csv(tmp_path / "same.csv", index=False)
    page = tmp_path / "page.html"
    result = run("report", folder / "houses.hkrr", tmp_path / "same.csv", "-o", page)
    assert (result.exit_code, result.stdout) == (0, f"Wrote {page}: 30 rows. Open it in a browser.\n")
    assert "There is nothing to explain" in page.read_text(encoding="utf-8")
    table(1).to_csv(tmp_path / "one.csv", index=False)
    line = refused("report", folder / "houses.hkrr", tmp_path / "one.csv", "-o", page)
    assert line == "a report needs at least 2 rows, got 1"


def test_scores_of_unknown_baselines_are_shown(fitted):
    from rich.console import Console

    from hkrr.cli._model_summary import show_scores

    scores = dataclasses.replace(fitted[1].held_out_, methods=("hkrr", "a", "b"), r2=(0.1, 0.2, 0.3))
    console = Console(width=79, record=True, file=io.StringIO())
    show_scores(console, scores)
    assert "The baseline 'b' scores higher on these rows." in console.export_text()


def test_maps_of_every_shape_are_shown():
    from rich.console import Console

    from hkrr.cli._model_summary import show_columns, show_map, show_outliers

    def shown(show, **found):
        console = Console(width=60, record=True, file=io.StringIO())
        show(console, found)
        return console.export_text()

    each = {"columns": ["a"], "loadings": [1.0], "n_more": 0, "weight": 1.0}
    base = {"n_features": 3, "n_components": 3, "kernel": "anova", "directions": [each] * 20}
    assert shown(show_map, **base, map_shape="identity") == ""
    assert "The time limit stopped the search" in shown(show_map, **base, stopped="time_limit")
    text = shown(show_map, **base)
    assert "  1.00  +1.00 a\n" in text
    assert "  and 5 more\n" in text
    shares = [{"column": f"x{k}", "share": share} for k, share in enumerate([0.6, *[0.05] * 8, 0.0])]
    text = shown(show_map, **base, map_shape="diagonal", importances=shares)
    assert "+1.00 a" not in text
    assert "Most important columns:\n  x0 60%, x1 5%, " in text
    assert text.endswith("x7 5%,\n  and 2 more\n")
    plain = {"name": "a [b]", "kind": "number", "about": ""}
    assert "All 2 columns are numeric." in shown(show_columns, columns=[plain] * 2)
    first = {"weight": 0.734, "kernel": "anova", "shape": "identity", "n_components": 3}
    text = shown(show_map, **base, members=[first, {**first, "weight": 0.2, "shape": "full"}], importances=shares)
    assert "x0 60%" in text
    assert "+1.00 a" not in text
    assert "+1.00 a" in shown(show_map, **base, members=[first])
    found = {"columns": [{"name": "column 2"}], "outliers": list(range(7)), "diagnostics": {"n_outliers": 107}}
    text = shown(show_outliers, **found)
    assert text == "\n107 rows were treated as outliers: lines 1, 2, 3, 4, 5 and\n102 more of the file.\n"
    text = shown(show_outliers, columns=[plain], outliers=[8], diagnostics={"n_outliers": 1})
    assert text == "\n1 row was treated as an outlier: line 10 of the file (the\nheader is line 1).\n"
    assert shown(show_outliers, **base) == ""
    long = {"name": "x" * 90, "kind": "text", "about": "word " * 30}
    text = shown(show_columns, columns=[plain, plain, long])
    assert "Columns (and 2 numeric columns):" in text
    assert all(len(line) <= 60 for line in text.splitlines())


@pytest.mark.usefixtures("fitted")
def test_options_for_columns_can_be_repeated_or_contain_commas(folder, tmp_path):
    out, data = tmp_path / "out.csv", folder / "houses.csv"
    first, second, third = list(read_table(data).columns)[:3]
    run("predict", folder / "houses.hkrr", data, "-o", out, "--keep", first, "--keep", f"{second},{third}")
    assert list(read_table(out).columns)[:4] == [first, second, third, "prediction"]
    assert "there is no column 'no such' to drop" in refused("fit", data, "--drop", f"{first}, no such")


@pytest.mark.usefixtures("fitted")
def test_report_needs_rows_with_the_target(folder, tmp_path):
    read_table(folder / "houses.csv").drop(columns=TARGET).to_csv(tmp_path / "new.csv", index=False)
    line = refused("report", folder / "houses.hkrr", tmp_path / "new.csv")
    assert line.endswith("new.csv has no column 'price', the target of the model; a report needs rows with the target")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit"], "Missing argument"),
        (["fit", "a.csv", "--bogus"], "No such option: --bogus"),
        (["predict", "a", "b", "--coverage", "nan"], "Invalid value for '--coverage'"),
        (["frob"], "No such command 'frob'"),
    ],
)
def test_usage_errors_are_one_line(arguments, message):
    assert refused(*arguments).startswith(message)
    result = run(*arguments, "--json")
    assert result.exit_code == 2
    assert message in json.loads(result.stdout)["error"]


def test_shell_completion():
    environment = {"_HKRR_COMPLETE": "complete_bash", "COMP_WORDS": "hkrr pre", "COMP_CWORD": "1"}
    result = CliRunner().invoke(cli.app, [], prog_name="hkrr", env=environment)
    assert result.stdout.split() == ["predict"]


def test_help_lists_the_commands_in_the_order_of_use():
    text = run("--help").stdout
    places = [text.index(f" {name} ") for name in ("fit", "predict", "info", "bench", "reproduce")]
    assert places == sorted(places)
    assert "hkrr fit houses.csv --target price" in text
    for command in ("fit", "predict", "info"):
        assert f"hkrr {command} houses" in " ".join(run(command, "--help").stdout.split())
