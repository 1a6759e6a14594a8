"""The preparation of tables for the methods of a benchmark, compared with what it should give on small tables."""

import numpy as np
import pandas as pd

from hkrr.bench.preparation import categorical_columns, imputed, numeric, texts_of_categories, typed

TRAIN = pd.DataFrame(
    {
        "size, in [m]": [1.0, np.nan, 3.0, 8.0] * 5,
        "colour": ["red", None, "red", "blue"] * 5,
        "day": ["2024-01-01", "2024-01-03", "NA", "2024-01-02"] * 5,
        "new": [True, False, True, True] * 5,
        "when": pd.to_datetime(["2024-01-01", None, "2024-01-02 12:00", "1970-01-02"] * 5, format="ISO8601"),
    }
)
TEST = pd.DataFrame(
    {
        "size, in [m]": [np.nan, 2.0],
        "colour": ["green", "red"],
        "day": ["2024-01-05", "?"],
        "new": [False, True],
        "when": pd.to_datetime(["1970-01-03", None]),
    }
)
FIRST_DAY = 19723.0  # 2024-01-01, in days since 1970-01-01


def test_typed_columns():
    """Numbers, booleans and dates are floats. Texts are categories, and an unknown text is a missing value."""
    train, test = typed(TRAIN, TEST)
    assert list(train.columns) == list(test.columns) == ["x0", "x1", "x2", "x3", "x4"]
    assert categorical_columns(train) == ["x1"]
    np.testing.assert_array_equal(train["x0"][:4], [1.0, np.nan, 3.0, 8.0])
    np.testing.assert_array_equal(train["x2"][:4], [FIRST_DAY, FIRST_DAY + 2, np.nan, FIRST_DAY + 1])
    np.testing.assert_array_equal(train["x3"][:4], [1.0, 0.0, 1.0, 1.0])
    np.testing.assert_array_equal(train["x4"][:4], [FIRST_DAY, np.nan, FIRST_DAY + 1.5, 1.0])
    assert train["x1"].cat.codes[:4].tolist() == [1, -1, 1, 0]
    assert test["x1"].cat.codes.tolist() == [-1, 1]
    np.testing.assert_array_equal(test["x2"], [FIRST_DAY + 4, np.nan])
    assert train["x1"].dtype == test["x1"].dtype


def test_texts_of_categories_have_no_missing_values():
    train, test = texts_of_categories(TRAIN, TEST)
    assert train["x1"][:4].tolist() == ["1", "-1", "1", "0"]
    assert test["x1"].tolist() == ["-1", "1"]
    assert categorical_columns(train) == ["x1"]


def test_imputed_columns():
    """A missing number is the median of the training rows, and missing texts are a category."""
    train, test = imputed(TRAIN, TEST)
    assert not train.isna().to_numpy().any()
    assert not test.isna().to_numpy().any()
    assert test["x0"].tolist() == [3.0, 2.0]
    assert test["missingindicator_x0"].tolist() == [1.0, 0.0]
    assert train["x1"].tolist()[:4] == [1, -1, 1, 0]
    assert test["x1"].tolist() == [-1, 1]
    assert test["x1"].dtype == train["x1"].dtype


def test_numeric_columns():
    """Values in fewer than five training rows are grouped. Missing and unknown values are a category."""
    colours = ["red"] * 10 + ["blue"] * 6 + ["pink", "lime", "gold"] + [None] * 6
    train = pd.DataFrame({"size": [*range(24), None], "colour": colours})
    test = pd.DataFrame({"size": [None, 1.0, 2.0], "colour": ["red", "gold", "unknown"]})
    X, X_test = numeric(train, test)
    size, is_missing, *one_hot = X.T
    np.testing.assert_array_equal(size, [*range(24), 11.5])
    np.testing.assert_array_equal(is_missing, [0.0] * 24 + [1.0])
    rare = np.array([colour in ("pink", "lime", "gold", None) for colour in colours])
    assert len(one_hot) == 4  # blue, red, missing and rare
    assert {tuple(column) for column in one_hot} >= {tuple(np.array(colours) == each) for each in ("red", "blue")}
    np.testing.assert_array_equal(np.sum(one_hot, axis=0), 1.0)
    assert sum(np.array_equal(column, rare & (np.array(colours) != None)) for column in one_hot) == 1  # noqa: E711
    np.testing.assert_array_equal(X_test[:, :2], [[11.5, 1.0], [1.0, 0.0], [2.0, 0.0]])
    np.testing.assert_array_equal(X_test[:, 2:], X[[0, 18, 24], 2:])


def test_a_table_without_numbers_or_without_texts():
    only_texts, only_numbers = TRAIN[["colour"]], TRAIN[["size, in [m]"]]
    assert numeric(only_texts, TEST[["colour"]])[0].shape == (20, 3)
    assert numeric(only_numbers, TEST[["size, in [m]"]])[1].tolist() == [[3.0, 1.0], [2.0, 0.0]]
    assert imputed(only_texts, TEST[["colour"]])[0].shape == (20, 1)
