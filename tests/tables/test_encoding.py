"""Test the inference of column types, and the encoding of training values and of unseen values."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import hkrr
from hkrr.tables.encoding import suggest_names
from hkrr.tables.type_inference import learn_encoder
from support.house_table import table


def infer(values, missing="impute", name="c"):
    """Return the inferred record of a column with these values, and the encoded values."""
    frame = pd.DataFrame({name: values, "other": np.linspace(0, 1, len(values)) ** 2})
    encoder = learn_encoder(frame, missing)
    return encoder.columns[0], encoder.transform(frame)[:, : len(encoder.columns[0].names_out)]


def test_the_house_table():
    encoder = learn_encoder(table().drop(columns="price"), "impute")
    kinds = {column.name: column.kind for column in encoder.columns}
    assert kinds == {
        "id": "left out",
        "area (m2)": "number",
        "age": "number",
        "rooms": "number",
        "town": "text",
        "garden": "truth",
        "sold": "date",
        "owner": "left out",
        "country": "left out",
        "empty": "left out",
    }
    X = encoder.transform(table())
    names = encoder.names_out
    assert X.shape == (120, len(names))
    assert np.all(np.isfinite(X))
    frame = table()
    assert_array_equal(X[:, names.index("town=Bari")], frame["town"] == "Bari")
    assert_array_equal(X[:, names.index("area (m2) is missing")], frame["area (m2)"].isna())
    present = frame["area (m2)"].notna()
    assert_array_equal(X[present, names.index("area (m2)")], frame["area (m2)"][present])
    assert np.all(X[~present, names.index("area (m2)")] == frame["area (m2)"].median())
    days = (pd.to_datetime(frame["sold"]) - pd.Timestamp(0)).dt.days
    assert_array_equal(X[:, names.index("sold")], days)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3, 5],
        ["1", " 2 ", "3", "5"],
        [1.0, 2.0, 3.0, 5.0],
        [Decimal(1), Decimal(2), Decimal(3), Decimal(5)],
        pd.array([1, 2, 3, 5], dtype="Int64"),
        pd.array([1, 2, 3, 5], dtype="float32"),
    ],
)
def test_numbers_of_any_dtype(values):
    column, X = infer(values)
    assert column.kind == "number"
    assert_array_equal(X, [[1], [2], [3], [5]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False, True, True], [1, 0, 1, 1]),
        (["yes", "No", "YES ", "no"], [1, 0, 1, 0]),
        (["t", "f", "f", "t"], [1, 0, 0, 1]),
        (pd.array([True, None, False, True], dtype="boolean"), [1, 1, 0, 1]),
    ],
)
def test_booleans(values, expected):
    column, X = infer(values)
    assert column.kind == "truth"
    assert_array_equal(X[:, 0], expected)


@pytest.mark.parametrize(
    "values",
    [
        ["2024-03-01", "2024-03-02", "1969-12-31"],
        pd.to_datetime(["2024-03-01", "2024-03-02", "1969-12-31"]),
        pd.to_datetime(["2024-03-01", "2024-03-02", "1969-12-31"]).tz_localize("UTC"),
        [pd.Timestamp(day).date() for day in ("2024-03-01", "2024-03-02", "1969-12-31")],
    ],
)
def test_dates_are_days(values):
    column, X = infer(values)
    assert column.kind == "date"
    assert_array_equal(X[:, 0], [19783, 19784, -1])


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["01/03/2024", "2/3/2024", "31/12/1969", ""], "day first"),
        (["03.01.2024", "03.02.2024", "12.31.1969", None], "month first"),
        (["1-3-2024 00:00", "02-03-2024", "31-12-1969T00:00:00", "NA"], "day first"),
    ],
)
def test_dates_with_an_unambiguous_order_are_days(values, order):
    column, X = infer(values)
    assert (column.kind, column.values) == ("date", (order,))
    assert column.about.startswith(f"{order}; days since 1970; 1 missing")
    assert_array_equal(X[:3, 0], [19783, 19784, -1])


def test_unseen_dates_are_parsed_in_the_order_of_the_training_dates():
    column, _ = infer(["01/03/2024", "02/03/2024", "31/12/1969"])
    assert_array_equal(column.encode(pd.Series(["03/01/1970", "04-01-1970"]))[:, 0], [2, 3])
    assert_array_equal(column.encode(pd.Series(pd.to_datetime(["1970-01-03"])))[:, 0], [2])
    for wrong in ("01/13/1970", "1970-01-03", "31/02/1970", "soon"):
        with pytest.raises(hkrr.TableError, match=rf"'{wrong}' in .*row 0 .*, is not a date \(such as 25/03/2024\)"):
            column.encode(pd.Series([wrong]))


def test_dates_of_both_orders_are_text():
    column, _ = infer(["13/01/2024", "01/13/2024"] * 3)
    assert column.kind == "text"


def test_dates_in_distant_years_are_days():
    far = pd.Series(np.array(["148000-01-01", "-4000-01-01"], dtype="datetime64[us]"))
    expected = np.array(["148000-01-01", "-4000-01-01"], dtype="datetime64[D]").astype(np.int64)
    assert_array_equal(infer(far)[1][:, 0], expected)


def test_text_is_one_hot_encoded_and_rare_values_are_zero():
    values = ["red"] * 5 + ["blue"] * 4 + ["green"] * 2 + ["odd"]
    column, X = infer(values)
    assert column.names_out == ["c=red", "c=blue", "c=green"]
    assert_array_equal(X.sum(axis=0), [5, 4, 2])
    assert_array_equal(X[-1], [0, 0, 0])
    assert column.about == "one-hot encoded, 3 values; 1 rare value has no column"
    assert_array_equal(column.encode(pd.Series(["green ", "new", None])), [[0, 0, 1], [0, 0, 0], [0, 0, 0]])


def test_at_most_fifty_values_have_columns():
    values = [f"v{k}" for k in range(80) for _ in range(3)] + ["v79"] * 2
    column, X = infer(values)
    assert X.shape[1] == 50
    assert column.values[0] == "v79"  # the most frequent value


def test_missing_text_is_a_value_of_its_own():
    column, X = infer(["a", "b", None, "a", "NA", "b", ""])
    assert column.values == ("(missing)", "a", "b")
    assert_array_equal(X[:, 0], [0, 0, 1, 0, 1, 0, 1])


def test_categories_are_text_even_where_they_are_numbers():
    column, _ = infer(pd.Categorical([1, 2, 1, 2, 2.5, 2.5]))
    assert (column.kind, sorted(column.values)) == ("text", ["1", "2", "2.5"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([7] * 12, "all values are the same"),
        (["x"] * 12, "all values are the same"),
        ([None] * 12, "all values are missing"),
        (["", "NA"] * 6, "all values are missing"),
        ([f"name {k}" for k in range(12)], "nearly all values differ, as in an identifier"),
        (np.arange(12), "the values are row numbers"),
        (np.arange(1, 13), "the values are row numbers"),
        (np.arange(100_000, 100_012), "the values are row numbers"),
        (np.arange(1001, 1013), "the values are row numbers"),
        ([f"{k}/3/2024" for k in range(1, 13)], "the format of the dates is ambiguous (write 2024-03-25)"),
        ([[1]] * 12, "values of type list are not supported"),
        ([1j, 2j] * 6, "complex numbers are not supported"),
        (pd.to_timedelta(np.arange(12), "s"), "durations are not supported"),
        (["a", "b", "c", "d"], "no value occurs twice"),
    ],
)
def test_columns_without_information_are_left_out(values, reason):
    column, X = infer(values)
    assert column.kind == "left out"
    assert reason in column.about
    assert X.shape[1] == 0


@pytest.mark.parametrize("first", [1950, 30, 0.5, 1000.5, -5])
def test_consecutive_years_and_ages_are_not_row_numbers(first):
    assert infer(first + np.arange(40))[0].kind == "number"


def test_row_numbers_are_recognized_in_a_subset_of_the_rows():
    frame = table().drop(columns="price").iloc[np.random.default_rng(0).permutation(120)[:90]]
    assert learn_encoder(frame, "impute").columns[0].about == "the values are row numbers"


def test_a_constant_column_with_missing_values_is_kept():
    column, X = infer([7, None, 7, None])
    assert column.names_out == ["c", "c is missing"]
    assert_array_equal(X[:, 1], [0, 1, 0, 1])


def test_words_between_numbers_are_missing_values():
    column, X = infer([*map(str, range(5, 45)), "?", "n.a."])
    assert (column.kind, column.n_missing) == ("number", 2)
    assert "'?', 'n.a.' treated as missing" in column.about
    assert_array_equal(X[-2:, 0], [24.5, 24.5])  # the median
    # A word that was not in the training values raises an error. The word is not replaced by the median.
    with pytest.raises(hkrr.TableError, match=r"'many' in column 'c', row 1 \(counting from 0\), is not a number"):
        column.encode(pd.Series(["?", "many"]))


def test_invalid_values_are_errors_that_name_the_cell():
    boolean, _ = infer(["yes", "no"])
    with pytest.raises(hkrr.TableError, match=r"'maybe' in column 'c', row 0 .*, is not one of no, yes"):
        boolean.encode(pd.Series(["maybe"]))
    date, _ = infer(["2024-03-01", "2024-03-02"])
    with pytest.raises(hkrr.TableError, match=r"'soon' in column 'c', row 0 .*, is not a date"):
        date.encode(pd.Series(["soon"]))
    with pytest.raises(hkrr.TableError, match=r"'inf' in column 'c', row 1 .*, is not a finite number"):
        infer([1.0, np.inf])
    number, _ = infer([1.0, 2.0])
    with pytest.raises(hkrr.TableError, match=r"'1e999' in column 'c', row 0 .*, is not a finite number"):
        number.encode(pd.Series(["1e999"]))


def test_missing_values_are_refused_on_request():
    for values in ([1.0, None, 3.0], ["a", "a", None], ["yes", "no", ""], ["1", "2", "NA"]):
        with pytest.raises(hkrr.TableError, match=r"column 'c' has 1 missing value, the first in row [12] "):
            infer(values, "refuse")
    with pytest.raises(hkrr.TableError, match="column 'c' has 2 missing values"):
        infer([*map(str, range(5, 45)), "?", "?"], "refuse")
    column, _ = infer([None] * 3, "refuse")  # an empty column is left out and raises no error
    assert column.kind == "left out"


def test_tables_without_usable_columns_are_refused():
    with pytest.raises(hkrr.TableError, match=r"no column can be used as input \('a': all values are the same\)"):
        learn_encoder(pd.DataFrame({"a": [1, 1]}), "impute")
    with pytest.raises(hkrr.TableError, match="the table has only the target"):
        learn_encoder(pd.DataFrame(index=[0, 1]), "impute")


@pytest.mark.parametrize(
    ("name", "names", "suggestion"),
    [
        ("prize", ["area", "price"], "; did you mean 'price'?"),
        ("floor", ["Floor1", "floor2", "area"], "; did you mean 'floor2' or 'Floor1'?"),
        ("zzz", ["area", "price"], "; the columns are 'area', 'price'"),
        ("zzz", [], ""),
    ],
)
def test_similar_names_are_suggested(name, names, suggestion):
    assert suggest_names(name, names) == suggestion


def test_the_closest_of_many_names_are_listed():
    names = [*(f"column {k}" for k in range(40)), "weight of all of it"]
    suggestion = suggest_names("weight", names)
    assert suggestion.startswith("; the closest of the 41 columns are 'weight of all of it', ")
    assert suggestion.count("'column ") == 4
