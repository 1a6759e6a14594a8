"""Benchmarks: the problems, the random search, and the cells with their CSV file.

A cell is the result of one method on one problem.
"""

import csv
import gzip
import multiprocessing
import os
import subprocess
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
from sklearn.metrics import r2_score

from hkrr.bench import METHODS
from hkrr.bench.benchmark_runner import COLUMNS, OVER_LIMIT, Rules, append, evaluate, read, run_cells
from hkrr.bench.code_digest import code_of
from hkrr.bench.method_interface import Answer, BenchmarkTask, Method, components_of, tuned
from hkrr.bench.problems import N_TEST, PLANTED_SUITE, label, load_problem
from hkrr.datasets import make_mim_sines
from hkrr.metrics import subspace_distance

FEW = Rules(seconds=1.0, threads=1)


@pytest.fixture
def in_process(monkeypatch):
    """Run the benchmark in this process, because starting a process and importing the library takes seconds."""

    def start(problem, method, rules):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        sender.send(evaluate(problem, method, rules))
        return receiver, SimpleNamespace(join=lambda timeout=None: None, kill=lambda: None)

    monkeypatch.setattr("hkrr.bench.benchmark_runner._start", start)
    monkeypatch.setattr("hkrr.bench.benchmark_runner._kill", lambda process: None)


def test_a_planted_problem_is_the_data_set_of_that_name():
    problem = load_problem("sines:m=70,D=8,d=2,seed=3")
    data = make_mim_sines(70 + N_TEST, 8, 2, random_state=3)
    np.testing.assert_array_equal(problem.X, data.X[:70])
    np.testing.assert_array_equal(problem.y_test, data.y[70:])
    np.testing.assert_array_equal(problem.B, data.B)


@pytest.mark.parametrize("name", PLANTED_SUITE)
def test_every_problem_of_the_suite_can_be_drawn(name):
    problem = load_problem(name)
    assert f"m={len(problem.y)}" in name
    assert len(problem.y_test) == N_TEST
    assert len(problem.B) < problem.X.shape[1]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_table_has_a_fifth_of_its_rows_for_testing(tmp_path, suffix):
    """Text and missing values are kept, only rows without a target are dropped, and the named column is the target."""
    frame = pd.DataFrame({"y": [*range(30), None], "size": np.arange(31.0) ** 2, "colour": ["red", None] * 15 + ["b"]})
    path = tmp_path / f"some.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    problem = load_problem(f"{path}:target=y")
    assert list(problem.X.columns) == ["size", "colour"]
    assert (len(problem.X), len(problem.X_test), problem.n_classes) == (24, 6, 0)
    assert sorted([*problem.y, *problem.y_test]) == list(range(30))
    for X, y in ((problem.X, problem.y), (problem.X_test, problem.y_test)):
        np.testing.assert_array_equal(X["size"], y**2)
        np.testing.assert_array_equal(X["colour"].isna(), y % 2 == 1)
    other = load_problem(f"{path}:target=y,seed=1")
    assert sorted(other.y_test) != sorted(problem.y_test)
    assert "dropped 1 row without a target, 2 columns (1 not numeric), " in problem.about
    assert problem.fingerprint() == load_problem(f"{path}:target=y").fingerprint() != other.fingerprint()


def test_the_classes_of_a_table(tmp_path):
    """A text target has integer codes, and every class has a fifth of its rows for testing."""
    labels = ["b"] * 50 + ["a"] * 25 + ["c"] * 2 + ["once"]
    pd.DataFrame({"x": range(78), "y": labels}).to_csv(tmp_path / "t.csv", index=False)
    problem = load_problem(f"{tmp_path}/t.csv")
    assert problem.n_classes == 4
    for X, y in ((problem.X, problem.y), (problem.X_test, problem.y_test)):
        assert [["a", "b", "c", "once"][code] for code in y] == [labels[x] for x in X["x"]]
    assert np.bincount(problem.y_test)[:2].tolist() == [5, 10]
    assert set(problem.y) == {0, 1, 2, 3}
    assert "the target is 'y', with 4 classes ('y' contains text), 1 columns" in problem.about


def test_the_task_can_be_given(tmp_path):
    pd.DataFrame({"x": range(40), "y": [0, 1] * 20}).to_csv(tmp_path / "t.csv", index=False)
    inferred = load_problem(f"{tmp_path}/t.csv")
    assert inferred.n_classes == 2
    assert "('y' has two distinct values; to predict numbers, add task=regression)" in inferred.about
    assert load_problem(f"{tmp_path}/t.csv:task=regression").n_classes == 0
    with pytest.raises(ValueError, match="task must be regression or classification, got 'ranking'"):
        load_problem(f"{tmp_path}/t.csv:task=ranking")


@pytest.mark.parametrize("classes", [False, True])
def test_a_large_table_has_at_most_10000_training_rows(tmp_path, monkeypatch, classes):
    monkeypatch.setattr("hkrr.bench.problems.MOST_TRAINING_ROWS", 30)
    y = ["rare" if k < 5 else f"class {k % 2}" for k in range(100)] if classes else range(100)
    pd.DataFrame({"x": range(100), "y": y}).to_csv(tmp_path / "t.csv", index=False)
    problem = load_problem(f"{tmp_path}/t.csv")
    assert (len(problem.X), len(problem.y), len(problem.X_test)) == (30, 30, 20)
    assert not set(problem.X["x"]) & set(problem.X_test["x"])
    if classes:
        assert set(problem.y) == {0, 1, 2}


def test_data_sets_of_scikit_learn():
    classes = {"breast_cancer": 2, "digits": 10, "iris": 3, "wine": 3, "diabetes": 0}
    assert {name: load_problem(f"sklearn:{name}").n_classes for name in classes} == classes
    assert label("sklearn:iris:seed=1") == "sklearn:iris:seed=1"
    with pytest.raises(ValueError, match=r"the data sets of scikit-learn are breast_cancer, .*, got 'boston'"):
        load_problem("sklearn:boston")


def test_a_folder_has_its_own_splits(tmp_path):
    rows = np.arange(60.0).reshape(20, 3)
    masks = np.zeros((20, 2))
    masks[0, 0] = masks[2:4, 1] = 1
    for name, values in (("data", rows), ("test_mask", masks)):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, values, delimiter=",")
    problem = load_problem(f"{tmp_path}:split=1")
    np.testing.assert_array_equal(problem.X_test, rows[2:4, :2])
    np.testing.assert_array_equal(problem.y, rows[[0, 1, *range(4, 20)], 2])
    with pytest.raises(ValueError, match="split must be between 0 and 1, got 2"):
        load_problem(f"{tmp_path}:split=2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.csv", "no such file"),
        ("sines:m=ten", "m must be an integer"),
        ("sines:rows=10", "unknown option 'rows'"),
        ("sines:m=", "NAME=VALUE"),
        ("product:d=2", "unknown option 'd'"),
        ("sines:m=-5", "m must be an integer of at least 20"),
        ("sines:D=2", "D must be an integer of at least 3"),
        ("product:D=1", "D must be an integer of at least 2"),
    ],
)
def test_an_invalid_problem_is_explained(name, message):
    with pytest.raises(ValueError, match=message):
        load_problem(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("x,y\n" + "1,2\n3,4\n" * 5, "10 rows have a target, but at least 20 are needed"),
        ("x,y\n" + "1,red\n" * 30, "'red' in every row; there is nothing to learn"),
        ("x,y\n" + "".join(f"{k},name {k}\n" for k in range(30)), "too many for classes"),
        ("x,y\n" + "".join(f"{k},1\n" for k in range(30)), "is 1 in every row; there is nothing to learn"),
    ],
)
def test_an_unusable_table_is_explained(tmp_path, text, message):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=f"bad.csv.*{message}"):
        load_problem(f"{tmp_path}/bad.csv")


def test_a_folder_without_the_files_is_explained(tmp_path):
    with pytest.raises(ValueError, match=r"data\.csv\.gz \(numbers"):
        load_problem(str(tmp_path))


def test_results_name_files_without_their_folders(tmp_path):
    assert label(f"{tmp_path}/prices.csv:target=price") == "prices.csv:target=price"
    assert label("sines:m=60,D=5") == "sines:m=60,D=5"


class Shift:
    """A regressor that predicts the mean of y plus a shift, and fails to fit if the shift is above 5."""

    def __init__(self, shift):
        self.shift = shift

    def fit(self, X, y):
        if self.shift > 5:
            raise ValueError("too far")
        self.mean = np.mean(y)
        self.n_rows = len(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean + self.shift)


def task(seconds=1e9):
    rng = np.random.default_rng(0)
    return BenchmarkTask(rng.standard_normal((50, 2)), rng.standard_normal(50), np.zeros((3, 2)), seconds, 1)


def test_random_search_fits_the_setting_with_the_lowest_error_to_all_rows():
    made = []

    def make(setting, task):
        made.append(Shift(setting.get("shift", 3.0)))
        return made[-1]

    shifts = iter([2.0, 9.0, 0.5, 2.0, *np.linspace(1.0, 2.0, 500)])
    answer = tuned(make, lambda rng, task: {"shift": next(shifts)})(task())
    assert made[0].shift == 3.0  # the default setting is always tried
    assert [model.shift for model in made if getattr(model, "n_rows", 0) == 50] == [0.5]
    assert {model.n_rows for model in made if model.shift <= 5} == {40, 50}
    assert answer.predicted == pytest.approx(np.full(3, task().y.mean() + 0.5))
    assert "1 failed" in answer.note
    assert "shift=0.5" in answer.note
    assert [model.shift for model in made].count(2.0) == 1  # no setting is tried twice
    assert answer.predicted.shape == (3,)


def test_random_search_stops_without_new_settings():
    answer = tuned(lambda setting, task: Shift(setting.get("shift", 1.0)), lambda rng, task: {"shift": 0.0})(task())
    assert answer.note == "2 settings, chosen: shift=0"


def test_random_search_without_time_returns_the_default_without_a_final_fit():
    made = []

    def make(setting, task):
        made.append(Shift(1.0))
        return made[-1]

    answer = tuned(make, lambda rng, task: {"shift": 0.0})(task(0.0))
    assert answer.note == "1 settings, chosen: default, no time for the final fit"
    assert [model.n_rows for model in made] == [40]


def test_random_search_for_classes_has_the_lowest_log_loss():
    """The log loss is that of scikit-learn, and a class that is not in the training rows has the probability 0."""
    y = np.array([0, 0, 0, 1, 1] * 10)

    class Frequencies:
        classes_ = np.array([0, 1])

        def __init__(self, p):
            self.p = p

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.tile([1 - self.p, self.p], (len(X), 1))

    shares = iter([0.9, 0.41, 0.1, 0.41])
    of_classes = task(seconds=1e9)._replace(y=y, n_classes=3)
    run = tuned(lambda setting, task: Frequencies(setting.get("p", 0.5)), lambda rng, task: {"p": next(shares, 0.5)})
    np.testing.assert_allclose(run(of_classes).predicted, np.tile([0.59, 0.41, 0.0], (3, 1)))


def test_random_search_fails_if_all_settings_fail():
    with pytest.raises(RuntimeError, match="too far"):
        tuned(lambda setting, task: Shift(9.0), lambda rng, task: {})(task())


def test_every_method_has_the_same_validation_rows():
    training, validation = task().validation_split()
    assert sorted([*training, *validation]) == list(range(50))
    assert len(validation) == 10
    np.testing.assert_array_equal(validation, task(3.0).validation_split()[1])


def test_a_cell_is_measured():
    """A cell has the R2 of the method's predictions, and the subspace distance of its map.

    Both are compared with the values of a second run of the method. The time for tuning is zero, so that both runs fit
    the default setting.
    """
    row = evaluate("sines:m=200,D=5,d=2", "sir", Rules(seconds=0.0))
    problem = load_problem("sines:m=200,D=5,d=2")
    answer = METHODS["sir"].run(BenchmarkTask(problem.X, problem.y, problem.X_test, 0.0, 1))
    assert row["R2"] == pytest.approx(r2_score(problem.y_test, answer.predicted), abs=1e-6)  # rounded to six digits
    scale = problem.X.std(axis=0)
    distance = subspace_distance(answer.components * scale, problem.B * scale)
    assert row["subspace_distance"] == pytest.approx(distance, abs=1e-4)  # rounded to four digits
    facts = problem.facts()
    assert (facts["n_train"], facts["n_features"], facts["task"]) == (200, 5, "regression")
    assert row["seconds"] >= row["fit_seconds"]


def test_finished_cells_are_not_run_again(tmp_path, in_process):
    path = tmp_path / "bench.csv"
    seen = []

    def show(done, total, what):
        seen.append((done, total))

    first = run_cells(["sines:m=60,D=3"], ["krr"], FEW, path, on_progress=show)
    kept = path.read_text()
    again = run_cells(["sines:m=60,D=3"], ["krr", "catboost"], FEW, path, n_jobs=2, on_progress=show)
    assert path.read_text().startswith(kept)
    assert [row["method"] for row in again] == ["krr", "catboost"]
    assert float(again[0]["seconds"]) == first[0]["seconds"]
    assert "catboost" in again[1]["error"]  # the package is not installed: the error is recorded
    assert seen[-1] == (2, 2)
    with open(path) as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    other_rules = run_cells(["sines:m=60,D=3"], ["krr"], Rules(2.0), path)
    assert len(read(path)) == 3
    assert other_rules[0]["limit"] == 2.0


def test_a_cell_with_changed_data_is_run_again(tmp_path, in_process):
    path, table = tmp_path / "bench.csv", tmp_path / "t.csv"
    table.write_text("\n".join(["x,y", *(f"{k},{k}" for k in range(40))]))
    first = run_cells([str(table)], ["krr"], FEW, path)
    table.write_text("\n".join(["x,y", *(f"{k},{7 * k % 40}" for k in range(40))]))
    second = run_cells([str(table)], ["krr"], FEW, path)
    assert first[0]["data"] != second[0]["data"]
    assert first[0]["R2"] > 0.9 > second[0]["R2"]
    assert len(read(path)) == 1


def test_a_failed_cell_is_run_again(tmp_path, in_process):
    path = tmp_path / "bench.csv"
    first = run_cells(["sines:m=60,D=3"], ["krr"], FEW, path)[0]
    path.unlink()
    append({**first, "error": "it broke"}, path)
    rows = run_cells(["sines:m=60,D=3"], ["krr"], FEW, path)
    assert not rows[0].get("error")
    assert [row["error"] for row in read(path)] == [""]


def test_a_cell_over_the_limit_is_not_run_again(tmp_path, in_process):
    path = tmp_path / "bench.csv"
    first = run_cells(["sines:m=60,D=3"], ["krr"], FEW, path)[0]
    path.unlink()
    append({**first, "R2": "", "error": OVER_LIMIT}, path)
    assert run_cells(["sines:m=60,D=3"], ["krr"], FEW, path)[0]["error"] == OVER_LIMIT


def test_methods_run_only_on_the_problems_of_their_task(tmp_path, in_process):
    rows = run_cells(["sklearn:iris", "sines:m=60,D=3"], ["logistic", "krr"], FEW, tmp_path / "bench.csv")
    assert [(row["problem"], row["method"], row["task"]) for row in rows] == [
        ("sklearn:iris", "logistic", "classification"),
        ("sines:m=60,D=3", "krr", "regression"),
    ]
    assert 0.0 < rows[0]["log_loss"] < rows[0]["constant_error"] == pytest.approx(np.log(3), abs=1e-6)
    assert (rows[0]["accuracy"], rows[0].get("R2")) == (pytest.approx(1.0, abs=0.1), None)


def test_a_cell_with_changed_code_is_run_again(tmp_path, monkeypatch, in_process):
    path = tmp_path / "bench.csv"
    first = run_cells(["sines:m=60,D=3"], ["krr"], FEW, path)[0]
    monkeypatch.setattr("hkrr.bench.code_digest.code_of", lambda method: "another")
    second = run_cells(["sines:m=60,D=3"], ["krr"], FEW, path)[0]
    assert first["code"] != second["code"] == "another"
    assert len(read(path)) == 1


def test_methods_of_different_packages_have_different_code_digests():
    assert len({code_of(method) for method in ("krr", "sk_krr", "xrfm", "catboost")}) == 4
    assert code_of("krr") == code_of("hkrr")  # both are methods of this library


@pytest.mark.parametrize("predicted", [np.full(N_TEST, np.nan), np.zeros((N_TEST, 1))], ids=["NaN", "a column"])
def test_invalid_predictions_are_a_failure(monkeypatch, predicted):
    monkeypatch.setitem(METHODS, "krr", Method(lambda task: Answer(predicted), "predicts nothing"))
    row = evaluate("sines:m=60,D=3", "krr", FEW)
    assert "predictions must be finite and of shape" in row["error"]
    assert "R2" not in row


def test_the_leading_directions_of_a_sorted_map_are_its_first_rows(monkeypatch):
    """If the rows of a map are sorted by importance, the subspace distance is that of its first rows.

    Otherwise, it is that of the leading singular vectors of the map. In this test, the first two of five rows are the
    two true directions, and the leading singular vectors are different directions.
    """
    problem = load_problem("product:m=60,D=8")
    rest = np.random.default_rng(0).normal(size=(3, 8))
    for ordered in (True, False):
        answer = Answer(np.zeros(N_TEST), np.vstack([problem.B, rest]), ordered=ordered)
        monkeypatch.setitem(METHODS, "krr", Method(lambda task, answer=answer: answer, "predicts nothing"))
        distance = evaluate("product:m=60,D=8", "krr", FEW)["subspace_distance"]
        assert distance == 0.0 if ordered else distance > 0.1
    for name in ("sir", "rcls"):
        assert METHODS[name].run(BenchmarkTask(problem.X, problem.y, problem.X_test, 0.0, 1)).ordered


# Methods that take long, or that are similar to other methods.
SLOW = ["mlp", "xrfm_tuned", "rfm", "rbf", "hyper_rbf", "bkernn", "relu", "rcls", "sir", "save", "phd", "opg", "mave"]
SLOW += ["kdr", "gkdr", "krr_nystrom", "krr_leverage", "hkrr_auto", "hist_boosting"]
INSTALLED = [
    pytest.param(name, marks=pytest.mark.thorough if name in SLOW else ())
    for name, method in METHODS.items()
    if not method.missing()
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return the paths of tables with numbers, text, dates and missing values: one for regression, one for classes."""
    rng, n = np.random.default_rng(0), 150
    x, colour = rng.standard_normal(n), rng.choice(["red", "blue", "green, mostly"], n)
    y = x + 2.0 * (colour == "red")
    days = pd.date_range("2024-01-20", periods=n, freq="D").strftime("%d/%m/%Y")
    rare = [f"only {k}" if k % 20 == 0 else "usual" for k in range(n)]
    frame = pd.DataFrame({"x": x, "colour": colour, "day": days, "rare": rare})
    frame.loc[rng.choice(n, 15, replace=False), "x"] = np.nan
    frame.loc[rng.choice(n, 15, replace=False), "colour"] = None
    folder = tmp_path_factory.mktemp("tables")
    frame.assign(y=y + 0.1 * rng.standard_normal(n)).to_csv(folder / "numbers.csv", index=False)
    frame.assign(y=np.array(["low", "middle", "high"])[np.digitize(y, [0.0, 1.5])]).to_csv(
        folder / "c.csv", index=False
    )
    return {"regression": folder / "numbers.csv", "classification": folder / "c.csv"}


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.filterwarnings("ignore")  # warnings of other packages
def test_every_installed_method_learns_from_a_table_with_text(name, tables):
    seconds = 3.0 if name == "hkrr_classifier" else 0.5  # in half a second, its probabilities are poor
    for kind in METHODS[name].tasks:
        row = evaluate(str(tables[kind]), name, Rules(seconds, threads=1))
        assert not row.get("error"), row
        if kind == "classification":
            assert 0.0 < row["log_loss"] < 1.1
            assert row["accuracy"] > 0.6
        else:
            assert row["R2"] > (-1.0 if name in SLOW else 0.5)


LEARNING = [
    "sk_krr",
    "mlp",
    "random_forest",
    "gpr",
    "xrfm",
    "xrfm_tuned",
    "hkrr_auto",
    "hkrr_ensemble",
    "hist_boosting",
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if name in SLOW else ()) for name in LEARNING]
)
@pytest.mark.filterwarnings("ignore")  # warnings of other packages
def test_every_installed_method_learns_a_simple_function(name):
    row = evaluate("single:m=300,D=2", name, Rules(seconds=0.5, threads=1))
    assert not row.get("error"), row
    assert row["R2"] > 0.7


@pytest.mark.parametrize("name", ["hkrr_ensemble", "hkrr_classifier"])
def test_the_note_has_the_members_and_the_seconds_of_each_phase(name, tables):
    note = evaluate(str(tables[METHODS[name].tasks[0]]), name, Rules(seconds=0.5))["note"]
    *members, seconds = note.split("; ")
    assert all(member.endswith("centers") and "directions" in member for member in members)
    assert seconds.startswith("start ")
    assert "final fit " in seconds
    assert seconds.rpartition(", ")[2].startswith("predictions ")


def test_openml_by_name(monkeypatch):
    frame = pd.DataFrame({"size": np.arange(40.0), "colour": ["red", "blue"] * 20})
    found = SimpleNamespace(data=frame, target=pd.Series(np.arange(40.0) ** 2))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda name, as_frame: {"houses": found}[name])
    problem = load_problem("openml:houses")
    assert problem.X.shape == (32, 2)
    assert "openml:name=houses: the target is 'the target', 2 columns (1 not numeric)" in problem.about
    with pytest.raises(ValueError, match="OpenML cannot be reached or has no such data set"):
        load_problem("openml:flats")


@pytest.mark.thorough
def test_memory_of_a_cell(tmp_path):
    """A fit with 1,000 rows takes at least the memory of its kernel matrix, 8 MB, and at most 200 MB."""
    rows = run_cells(["sines:m=1000,D=3"], ["krr", "catboost"], FEW, tmp_path / "bench.csv", n_jobs=2)
    assert 8 < rows[0]["peak_mb"] < 200
    assert "catboost" in rows[1]["error"]


def sleep_with_a_child(sender, path):
    """Stand for a method that never returns: start a child process, write its number to a file, and sleep."""
    os.setsid()
    child = subprocess.Popen(["sleep", "60"])
    path.write_text(str(child.pid))
    sender.send(None)  # the time measurement starts
    time.sleep(60)


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.skipif(not hasattr(os, "setsid"), reason="needs process groups")
def test_a_sleeping_method_is_killed_at_the_limit(tmp_path, monkeypatch):
    """The process and its children are killed after 1.05 times the time limit plus one second."""
    context, began = multiprocessing.get_context("spawn"), []

    def start(problem, method, rules):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=sleep_with_a_child, args=(sender, tmp_path / "pid"), daemon=True)
        process.start()
        while not receiver.poll(60):
            pass
        began.append(time.monotonic())
        return receiver, process

    monkeypatch.setattr("hkrr.bench.benchmark_runner._start", start)
    rows = run_cells(["sines:m=60,D=3"], ["krr"], Rules(1.0), tmp_path / "bench.csv")
    assert 2.05 <= time.monotonic() - began[0] < 10.0
    assert rows[0]["error"] == OVER_LIMIT == read(tmp_path / "bench.csv")[0]["error"]
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10.0
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_an_answer_after_the_limit_is_over_the_limit(tmp_path, in_process, monkeypatch):
    """An answer that arrives before the process is killed, but after the limit, does not count."""
    monkeypatch.setitem(METHODS, "krr", Method(lambda task: time.sleep(0.1) or Answer(np.zeros(N_TEST)), "sleeps"))
    monkeypatch.setattr(Rules, "most_seconds", 0.05)
    assert run_cells(["sines:m=60,D=3"], ["krr"], FEW, tmp_path / "bench.csv")[0]["error"] == OVER_LIMIT


def test_the_map_of_a_pipeline_is_that_of_the_first_step_with_a_map():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from hkrr.baselines import SIR, KernelRidgeCV

    problem = load_problem("sines:m=60,D=4")
    model = make_pipeline(StandardScaler(), SIR(2), KernelRidgeCV(random_state=0)).fit(problem.X, problem.y)
    assert components_of(model)[0] is model[1].components_
    assert components_of(model)[1]
    assert components_of(model[0]) == (None, False)
