"""Test how hkrr.tables infers the task from the target column, and which columns can be labels of classes."""

import numpy as np
import pandas as pd
import pytest

import hkrr
from hkrr.tables import Task, hold_out, infer_task
from hkrr.tables.task import are_numbers, as_labels


def whole(n_values, n_rows):
    """Return a column of whole numbers with this number of distinct values and rows."""
    return np.arange(n_rows) % n_values


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["yes", "no"], "'y' contains text"),
        (["yes", "no", None, "NA"], "'y' contains text"),
        ([f"text {k}" for k in range(40)], "'y' contains text"),
        (["a", "b", "c", "1", "2"], "'y' contains text"),  # three of five values are text
        ([True, False, True], "'y' contains booleans"),
        (pd.array([True, False, None], dtype="boolean"), "'y' contains booleans"),
        (pd.Categorical(["1", "2", "3"]), "'y' contains categories"),
        (pd.Categorical([True, False]), "'y' contains categories"),
        ([1.5, 2.25, 1.5], "'y' has two distinct values"),
        ([0, 1], "'y' has two distinct values"),
        ([0.0, 1.0, np.nan], "'y' has two distinct values"),
        (["0", "1", "", "1"], "'y' has two distinct values"),
        (whole(3, 30), "'y' has 3 distinct whole numbers"),
        (whole(10, 100), "'y' has 10 distinct whole numbers"),
        (whole(10, 100) - 5.0, "'y' has 10 distinct whole numbers"),
        (whole(3, 30).astype(str), "'y' has 3 distinct whole numbers"),
        ([*whole(3, 30), None], "'y' has 3 distinct whole numbers"),
    ],
)
def test_columns_of_labels(values, reason):
    found = infer_task("y", pd.Series(values))
    assert found == Task("classification", reason)
    assert found.of_classes


@pytest.mark.parametrize(
    "values",
    [
        whole(3, 29),  # fewer than ten rows for each value
        [*whole(3, 29), None],  # rows without a target do not count
        whole(10, 99),
        whole(11, 1100),  # too many values
        whole(3, 30) + 0.5,
        whole(11, 40).astype(str),
        [1.0] * 30,
        [3],
        np.linspace(0, 1, 50),
        ["a", "1", "2", "3"],  # mostly numbers: the error message names the text
        ["a", "b", "1", "2"],
        [0.0, 1.0, np.inf],
        [None] * 5,
        ["NA", "", None],
        [],
        pd.to_datetime(["2024-01-01", "2024-01-02"]),
        pd.to_datetime(["2024-01-01", "2024-01-02"]).tz_localize("UTC"),
        pd.to_timedelta([1, 2], unit="D"),
        [1j, 2j],
    ],
)
def test_columns_of_numbers_and_unusable_columns(values):
    found = infer_task("y", pd.Series(values))
    assert found == Task("regression")
    assert not found.of_classes


def test_dates_as_text_are_labels():
    """Test that dates in a text column are text. As in any column of text, too many different values are refused."""
    dates = pd.Series(pd.date_range("2024-01-01", periods=20)).dt.strftime("%Y-%m-%d")
    assert infer_task("y", dates).of_classes
    with pytest.raises(hkrr.TableError, match="'y' has 20 different values in 20 rows, too many for classes"):
        as_labels("y", dates)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1.0, 2.0, 1.0, 2.0], ["1", "2", "1", "2"]),
        ([-1.0, 1e6], ["-1", "1000000"]),
        ([0.5, 2.0], ["0.5", "2"]),
        ([" a", "a ", "b c", "b c "], ["a", "a", "b c", "b c"]),
        (["01", "1", "01", "1"], ["01", "1", "01", "1"]),
        ([True, False], ["True", "False"]),
        (pd.Categorical([2, 1, 2, 1]), ["2", "1", "2", "1"]),
        (["only"], ["only"]),
    ],
)
def test_labels_are_texts(values, labels):
    found = as_labels("y", pd.Series(values))
    assert found.tolist() == labels
    assert found.dtype.kind == "U"


def test_every_class_needs_two_rows_on_average():
    assert len(as_labels("y", pd.Series(list("abab")))) == 4
    assert len(as_labels("y", pd.Series(list("aab")))) == 3
    assert len(as_labels("y", pd.Series(list("aaabbc")))) == 6
    with pytest.raises(hkrr.TableError, match=r"3 different values in 5 rows, .* choose another target column$"):
        as_labels("y", pd.Series(list("aaabc")))
    with pytest.raises(hkrr.TableError, match=r"5 different values in 9 rows, .*; predict numbers \(--task regression"):
        as_labels("y", pd.Series([1.5, 2.5, 3, 4, 5, 5, 5, 5, 5]))


def test_at_most_500_classes():
    assert len(as_labels("y", pd.Series(whole(500, 2000)))) == 2000
    with pytest.raises(hkrr.TableError, match="the target 'y' has 501 different values in 2,000 rows, too many for"):
        as_labels("y", pd.Series(whole(501, 2000)))


@pytest.mark.parametrize("column", [pd.to_datetime(["2024-01-01"] * 4), pd.to_timedelta([1] * 4, unit="D"), [1j] * 4])
def test_dates_and_complex_numbers_are_no_labels(column):
    with pytest.raises(hkrr.TableError, match="the target 'y' must contain labels, but its type is"):
        as_labels("y", pd.Series(column))


def test_labels_that_are_numbers():
    assert are_numbers(np.array(["1", "-2.5", "1e3"]))
    assert not are_numbers(np.array(["1", "two"]))
    assert not are_numbers(np.array(["1", "inf"]))


def test_hold_out_infers_the_task_on_request():
    frame = pd.DataFrame({"x": range(40), "y": whole(4, 40)})
    for task, expected in (
        ("auto", Task("classification", "'y' has 4 distinct whole numbers")),
        ("classification", Task("classification")),
        ("regression", Task("regression")),
    ):
        split = hold_out(frame, "y", task=task)
        assert split.task == expected
        assert split.y_train.dtype.kind == ("U" if expected.of_classes else "f")
    assert hold_out(frame, "y").task == Task("regression")  # as before classifiers existed
    with pytest.raises(ValueError, match="task must be one of 'auto', 'regression', 'classification'"):
        hold_out(frame, "y", task="clustering")


def test_nullable_booleans_can_be_numbers():
    y = pd.array([True, False, None, True, False] * 4, dtype="boolean")
    split = hold_out(pd.DataFrame({"x": range(20), "y": y}), "y", 0.25)
    assert set(split.y_train) == {0.0, 1.0}
    assert split.about == "dropped 4 rows without a target"
