"""What a column is taken for, what becomes of its values, and of those that were not there before."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import hkrr
from hkrr.columns import nearest
from hkrr.tables.guessing import learn_encoder
from houses import table


def learned(values, missing="impute", name="c"):
    """Return the record of one column, beside another that is always fine."""
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
    there = frame["area (m2)"].notna()
    assert_array_equal(X[there, names.index("area (m2)")], frame["area (m2)"][there])
    assert np.all(X[~there, names.index("area (m2)")] == frame["area (m2)"].median())
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
def test_numbers_of_any_kind(values):
    column, X = learned(values)
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
def test_truths(values, expected):
    column, X = learned(values)
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
    column, X = learned(values)
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
def test_dates_that_can_be_read_in_one_way_are_days(values, order):
    column, X = learned(values)
    assert (column.kind, column.values) == ("date", (order,))
    assert column.about.startswith(f"{order}; days since 1970; 1 missing")
    assert_array_equal(X[:3, 0], [19783, 19784, -1])


def test_new_dates_are_read_as_the_known_ones_were():
    column, _ = learned(["01/03/2024", "02/03/2024", "31/12/1969"])
    assert_array_equal(column.encode(pd.Series(["03/01/1970", "04-01-1970"]))[:, 0], [2, 3])
    assert_array_equal(column.encode(pd.Series(pd.to_datetime(["1970-01-03"])))[:, 0], [2])
    for wrong in ("01/13/1970", "1970-01-03", "31/02/1970", "soon"):
        with pytest.raises(hkrr.TableError, match=rf"'{wrong}' in row 0 .* not a date \(such as 25/03/2024\)"):
            column.encode(pd.Series([wrong]))


def test_dates_of_both_orders_are_text():
    column, _ = learned(["13/01/2024", "01/13/2024"] * 3)
    assert column.kind == "text"


def test_dates_far_from_ours_are_days_too():
    far = pd.Series(np.array(["148000-01-01", "-4000-01-01"], dtype="datetime64[us]"))
    expected = np.array(["148000-01-01", "-4000-01-01"], dtype="datetime64[D]").astype(np.int64)
    assert_array_equal(learned(far)[1][:, 0], expected)


def test_text_is_a_column_for_each_value_and_rare_ones_are_zero():
    values = ["red"] * 5 + ["blue"] * 4 + ["green"] * 2 + ["odd"]
    column, X = learned(values)
    assert column.names_out == ["c=red", "c=blue", "c=green"]
    assert_array_equal(X.sum(axis=0), [5, 4, 2])
    assert_array_equal(X[-1], [0, 0, 0])
    assert "1 rarer one is 0 in all" in column.about
    assert_array_equal(column.encode(pd.Series(["green ", "new", None])), [[0, 0, 1], [0, 0, 0], [0, 0, 0]])


def test_at_most_fifty_values_have_columns():
    values = [f"v{k}" for k in range(80) for _ in range(3)] + ["v79"] * 2
    column, X = learned(values)
    assert X.shape[1] == 50
    assert column.values[0] == "v79"  # the most frequent


def test_missing_text_is_a_value_of_its_own():
    column, X = learned(["a", "b", None, "a", "NA", "b", ""])
    assert column.values == ("(missing)", "a", "b")
    assert_array_equal(X[:, 0], [0, 0, 1, 0, 1, 0, 1])


def test_categories_are_text_even_where_they_are_numbers():
    column, _ = learned(pd.Categorical([1, 2, 1, 2, 2.5, 2.5]))
    assert (column.kind, sorted(column.values)) == ("text", ["1", "2", "2.5"])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([7] * 12, "all values are the same"),
        (["x"] * 12, "all values are the same"),
        ([None] * 12, "all values are missing"),
        (["", "NA"] * 6, "all values are missing"),
        ([f"name {k}" for k in range(12)], "nearly all values differ"),
        (np.arange(12), "it numbers the rows"),
        (np.arange(1, 13), "it numbers the rows"),
        (np.arange(100_000, 100_012), "it numbers the rows"),
        (np.arange(1001, 1013), "it numbers the rows"),
        ([f"{k}/3/2024" for k in range(1, 13)], "dates that can be read in two ways"),
        ([[1]] * 12, "each value is a list"),
        ([1j, 2j] * 6, "complex numbers"),
        (pd.to_timedelta(np.arange(12), "s"), "lengths of time"),
        (["a", "b", "c", "d"], "no value stands in two rows"),
    ],
)
def test_columns_that_say_nothing_are_left_out(values, why):
    column, X = learned(values)
    assert column.kind == "left out"
    assert why in column.about
    assert X.shape[1] == 0


@pytest.mark.parametrize("first", [1950, 30, 0.5, 1000.5, -5])
def test_years_and_ages_in_their_order_are_no_row_numbers(first):
    assert learned(first + np.arange(40))[0].kind == "number"


def test_row_numbers_are_known_among_the_rows_that_are_left():
    frame = table().drop(columns="price").iloc[np.random.default_rng(0).permutation(120)[:90]]
    assert learn_encoder(frame, "impute").columns[0].about == "it numbers the rows"


def test_one_value_and_missing_ones_say_something():
    column, X = learned([7, None, 7, None])
    assert column.names_out == ["c", "c is missing"]
    assert_array_equal(X[:, 1], [0, 1, 0, 1])


def test_words_between_numbers_are_missing_and_said():
    column, X = learned([*map(str, range(5, 45)), "?", "n.a."])
    assert (column.kind, column.n_missing) == ("number", 2)
    assert "'?', 'n.a.' taken for missing" in column.about
    assert_array_equal(X[-2:, 0], [24.5, 24.5])  # the median
    # New ones are an error, and no silent median.
    with pytest.raises(hkrr.TableError, match=r"column 'c' holds 'many' in row 1 .* which is not a number"):
        column.encode(pd.Series(["?", "many"]))


def test_what_cannot_be_encoded_is_an_error_that_names_the_column():
    truth, _ = learned(["yes", "no"])
    with pytest.raises(hkrr.TableError, match=r"'maybe' in row 0 .* not one of no, yes"):
        truth.encode(pd.Series(["maybe"]))
    date, _ = learned(["2024-03-01", "2024-03-02"])
    with pytest.raises(hkrr.TableError, match=r"'soon' in row 0 .* not a date"):
        date.encode(pd.Series(["soon"]))
    with pytest.raises(hkrr.TableError, match="column 'c' holds infinity in row 1"):
        learned([1.0, np.inf])
    number, _ = learned([1.0, 2.0])
    with pytest.raises(hkrr.TableError, match="numbers must be finite"):
        number.encode(pd.Series(["1e999"]))


def test_refusing_missing_values():
    for values in ([1.0, None, 3.0], ["a", "a", None], ["yes", "no", ""], ["1", "2", "NA"]):
        with pytest.raises(hkrr.TableError, match=r"column 'c' has 1 missing value, the first in row [12] "):
            learned(values, "refuse")
    with pytest.raises(hkrr.TableError, match="column 'c' has 2 missing values"):
        learned([*map(str, range(5, 45)), "?", "?"], "refuse")
    column, _ = learned([None] * 3, "refuse")  # nothing is taken from it
    assert column.kind == "left out"


def test_nothing_left_to_learn_from():
    with pytest.raises(hkrr.TableError, match=r"no column is left to learn from .*'a': all values are the same"):
        learn_encoder(pd.DataFrame({"a": [1, 1]}), "impute")
    with pytest.raises(hkrr.TableError, match="there is none beside the target"):
        learn_encoder(pd.DataFrame(index=[0, 1]), "impute")


@pytest.mark.parametrize(
    ("name", "names", "said"),
    [
        ("prize", ["area", "price"], ": is it 'price'?"),
        ("floor", ["Floor1", "floor2", "area"], ": is it 'floor2' or 'Floor1'?"),
        ("zzz", ["area", "price"], "; there are 'area', 'price'"),
        ("zzz", [], ""),
    ],
)
def test_the_closest_names_are_asked_for(name, names, said):
    assert nearest(name, names) == said


def test_of_many_names_the_closest_are_named():
    names = [*(f"column {k}" for k in range(40)), "weight of all of it"]
    said = nearest("weight", names)
    assert said.startswith("; of 41 columns the closest are 'weight of all of it', ")
    assert said.count("'column ") == 4
