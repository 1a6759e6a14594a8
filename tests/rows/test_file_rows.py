"""Tests of fits and predictions from files: errors name the file that cannot be read, and memory stays bounded."""

import gc
import threading
import weakref

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.rows import file_readers
from hkrr.rows.file_readers import open_source
from hkrr.rows.file_rows import FileRows

KINDS = ["parquet", "csv", "npy"]
TARGET = {"parquet": "y", "csv": "y", "npy": 3}
M = 3000  # number of rows, more than one chunk of a Parquet or .npy file


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Use chunks of about 400 rows for CSV files, and of 1,024 rows (the minimum) for Parquet and .npy files."""
    monkeypatch.setattr(file_readers, "CHUNK_BYTES", 32 << 10)


def _table(m=M):
    rng = np.random.default_rng(m)
    table = pd.DataFrame(rng.normal(size=(m, 3)), columns=["a", "b", "c"])
    return table.assign(y=np.sin(table["a"]) + 0.1 * rng.normal(size=m))


def _write(path, table):
    if path.suffix == ".npy":
        np.save(path, table.to_numpy())
    else:
        getattr(table, f"to_{path.suffix[1:]}")(path, index=False)
    return path


def _model(**options):
    """Return a model that is fitted quickly, since only reading is tested.

    Two fits are bitwise equal if they read the same chunks.
    """
    common = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "n_init": 1, "max_iter": 2, "random_state": 0}
    return HyperKernelRidge(1, **{**common, **options})


def _check_error(X, y, *parts, kind=ValueError):
    """Check that a fit raises an error whose message contains all the parts."""
    with pytest.raises(kind) as caught:
        _model().fit(X, y)
    for part in parts:
        assert str(part) in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_truncated_or_empty_file_is_named(tmp_path, kind):
    good = _write(tmp_path / f"good.{kind}", _table())
    missing, cut, empty = (tmp_path / f"{name}.{kind}" for name in ("missing", "cut", "empty"))
    _check_error([good, missing], TARGET[kind], missing, kind=FileNotFoundError)
    with pytest.raises(FileNotFoundError, match="missing"):
        _model().fit(good, TARGET[kind]).predict(str(missing))
    content = good.read_bytes()
    # Cut CSV files within the first number of a row, because a row that is cut within its last number is still valid.
    cut.write_bytes(content[: content.index(b"\n", len(content) // 2) + 4 if kind == "csv" else len(content) // 2])
    empty.write_bytes(b"")
    _check_error([good, cut], TARGET[kind], cut)
    _check_error([good, empty], TARGET[kind], empty)


def test_a_parquet_file_with_damaged_pages_is_named(tmp_path):
    path = _write(tmp_path / "spoilt.parquet", _table())
    content = path.read_bytes()
    start = pq.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset
    path.write_bytes(content[:start] + b"\xff" * 40 + content[start + 40 :])  # overwrite the header of the page
    _check_error(path, "y", path)


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_columns_is_an_error_that_names_the_file(tmp_path, kind):
    good = _write(tmp_path / f"good.{kind}", _table())
    short = _write(tmp_path / f"short.{kind}", _table()[["a", "y"]])
    _check_error([good, short], 1 if kind == "npy" else "y", short)
    model = _model().fit(good, TARGET[kind])
    with pytest.raises(ValueError, match=f"short.{kind}.*column"):
        model.predict(short)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["b", "y"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_nonfinite_value_is_named_with_its_file_row_and_column(tmp_path, kind, column, value):
    """Test that the error for a value that is not finite names the file, the row and the column.

    The value is in a later chunk of the second file. Rows are counted from 0, without the header.
    """
    table = _table()
    good = _write(tmp_path / f"good.{kind}", table)
    table.loc[2357, column] = value
    bad = _write(tmp_path / f"bad.{kind}", table)
    name = "the target" if column == "y" else "column 1" if kind == "npy" else "column 'b'"
    _check_error([good, bad], TARGET[kind], bad, name, "row 2357", "NaN" if np.isnan(value) else "infinity")
    if column == "b":
        model = _model().fit(good, TARGET[kind])
        with pytest.raises(ValueError, match=f"bad.{kind}.*row 2357"):
            model.predict(_write(bad, table.drop(columns="y")))


def test_infinities_of_both_signs_are_detected(tmp_path):
    table = _table().assign(c=[np.inf, -np.inf] * (M // 2))
    _check_error(_write(tmp_path / "bad.csv", table), "y", "bad.csv", "row 0", "'c'")


@pytest.mark.parametrize("row", [17, 2357])
@pytest.mark.parametrize("wrong", ["text", "short row"])
def test_text_or_a_short_row_of_a_csv_file_is_named(tmp_path, row, wrong):
    """Test that the error for an invalid row of a CSV file names the row.

    Row 17 is in the first chunk, from which the column types are inferred, and row 2357 is in a later chunk.
    """
    lines = _table().to_csv(index=False).splitlines()
    lines[row + 1] = "1.0,oops,1.0,1.0" if wrong == "text" else "1.0,2.0"
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    _check_error(tmp_path / "bad.csv", "y", "bad.csv", f"row {row}", "'b'" if wrong == "text" else "columns")


def test_text_in_parquet_is_named_in_every_file(tmp_path):
    """Test that text columns are rejected even if the strings look like numbers, in the first and the second file."""
    good = _write(tmp_path / "good.parquet", _table())
    for text in (_table()["b"].astype(str), "oops"):
        bad = _write(tmp_path / "bad.parquet", _table().assign(b=text))
        for paths in ([bad], [good, bad]):
            _check_error(paths, "y", bad, "'b'")


def _check_written_alike(folder, kind, target, *tables):
    """Check that fits to tables of equal numbers but different types agree.

    The chunks of the CSV files differ, so only converged fits agree.
    """
    paths = (_write(folder / f"{k}.{kind}", table) for k, table in enumerate(tables))
    found, expected = (_model(max_iter=200).fit(path, target) for path in paths)
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(
        found.components_, expected.components_, rtol=0.0, atol=1e-6
    )  # the documented accuracy of every row source


@pytest.mark.parametrize("kind", KINDS)
def test_integers_and_booleans_are_numbers(tmp_path, kind):
    table = _table().assign(b=lambda t: np.round(10 * t["b"]).astype(np.int16), c=lambda t: t["c"] > 0)
    if kind == "npy":  # an array has a single dtype
        table = table[["b", "c"]].assign(y=table["b"] ** 2).astype(np.int16)
    _check_written_alike(tmp_path, kind, -1, table, table.astype(float))


def test_a_csv_column_may_start_with_integers(tmp_path):
    table = _table().assign(b=lambda t: np.where(t.index < 2000, 1.0, t["b"]))
    mixed = table.assign(b=["1"] * 2000 + [str(number) for number in table["b"][2000:]])
    _check_written_alike(tmp_path, "csv", "y", mixed, table)


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_rows_are_allowed_among_others(tmp_path, kind):
    paths = [_write(tmp_path / f"{k}.{kind}", part) for k, part in enumerate((_table()[:0], _table(), _table()[:0]))]
    found, expected = (_model().fit(X, TARGET[kind]) for X in (paths, paths[1]))
    assert_array_equal(found.components_, expected.components_)
    assert found.predict(_write(tmp_path / f"x.{kind}", _table()[["a", "b", "c"]][:0])).shape == (0,)
    _check_error([paths[0], paths[2]], TARGET[kind], "0 rows")


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_match_those_of_arrays(tmp_path, kind):
    """Test that predictions from files and from blocks equal those from an array.

    The files contain the target or not. In one file, the columns are in a different order.
    """
    table, X = _table(), _table()[["a", "b", "c"]]
    whole, without = _write(tmp_path / f"all.{kind}", table), _write(tmp_path / f"x.{kind}", X)
    model = _model().fit(whole, TARGET[kind])
    expected = model.predict(X.to_numpy() if kind == "npy" else X)
    inputs = [without, str(without), lambda: [X.to_numpy()], lambda: [(X[:9], 0 * X["a"][:9]), (X[9:], X["a"][9:])]]
    if kind != "npy":
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        inputs += [whole, _write(tmp_path / f"other.{kind}", table[["c", "y", "a", "b"]])]
    for given in inputs:
        assert_allclose(model.predict(given), expected, atol=1e-12)
    assert_allclose(model.predict([without, without]), np.tile(expected, 2), atol=1e-12)


def test_errors_name_the_invalid_argument(tmp_path):
    csv, npy = _write(tmp_path / "a.csv", _table()), _write(tmp_path / "a.npy", _table())
    for path, target in ((csv, "z"), (csv, 4), (npy, 4), (npy, -5), (npy, "y")):
        _check_error(path, target, target)
    _check_error(csv, None, "y must be")
    _check_error(csv, np.zeros(M), "y must be")
    _check_error([csv, npy], "y", "the same extension")
    _check_error(csv.rename(tmp_path / "a.txt"), "y", ".txt")
    with pytest.raises(ValueError, match="sample_weight"):
        _model().fit(npy, 3, np.ones(M))
    _check_error([], "y", "X")


def test_the_target_may_be_a_numpy_integer(tmp_path):
    assert _model().fit(_write(tmp_path / "a.npy", _table()), np.int64(3)).n_features_in_ == 3


def _blocks(n_blocks, size, made=lambda k, X: None):
    """Return a function that yields blocks (X, y), and calls ``made(k, X)`` for block k before it is yielded."""
    first = np.random.default_rng(0).normal(size=(size, 3)).astype(np.float32)

    def factory():
        for k in range(n_blocks):
            X = first + np.float32(k / n_blocks)
            made(k, X)
            yield X, np.sin(X[:, 0])

    return factory


def test_errors_name_the_invalid_block():
    X, y = np.ones((9, 3)), np.ones(9)
    _check_error(lambda: [X], None, "blocks without targets")
    _check_error(list, None, "no blocks")
    _check_error(lambda: [(X, y), (X[:, :2], y)], None, "block 1")
    _check_error(lambda: [(X, y), (np.full((9, 3), "a"), y)], None, "block 1")
    _check_error(lambda: [(X, y), (np.where(np.eye(9, 3, -5) > 0, np.nan, X), y)], None, "block 1", "row 5", "column 0")
    _check_error(lambda: [(X, y), (X, y[:-1])], None, "block 1")


def test_blocks_without_rows_are_allowed():
    whole, none = _blocks(3, 300), (np.ones((0, 3)), np.ones(0))
    found = _model().fit(lambda: [none, *whole(), none], None)
    assert_array_equal(found.components_, _model().fit(whole, None).components_)


def test_blocks_that_can_be_read_only_once_are_an_error():
    once = _blocks(3, 300)()
    _check_error(lambda: once, None, "on every call")


def _readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


@pytest.mark.parametrize("failing", ["reading", "computing"])
def test_errors_are_passed_on_and_no_thread_is_left(failing):
    before, made = _readers(), []

    def fail_later(k, X):
        made.append(k)
        if failing == "reading" and k == 3:
            raise ZeroDivisionError

    def block(X, Y, w):
        if failing == "computing" and made[-1] >= 3:
            raise ZeroDivisionError
        return (2.0 * X[:, 0],)

    rows = FileRows(open_source(_blocks(7, 300, fail_later), None))
    for method in ("sum", "map"):
        with pytest.raises(ZeroDivisionError):
            getattr(rows, method)(block)
    rows.take(np.array([5]))
    assert made[-1] <= 2  # row 5 is in block 0, and `take` stops reading soon after this block
    gc.collect()
    assert _readers() == before


def test_the_next_block_is_read_while_the_current_one_is_processed():
    """Test that processing a block can wait until the next block has been read.

    Without read-ahead, this would deadlock.
    """
    read, done = [threading.Event() for _ in range(5)], []
    # Opening the source reads the first block to determine the number of columns.
    rows = FileRows(open_source(_blocks(5, 100, lambda k, X: read[k].set()), None))
    for event in read:
        event.clear()

    def block(X, Y, w):
        done.append(1)
        assert len(done) == 5 or read[len(done)].wait(timeout=60)  # the timeout detects a deadlock
        return (1,)

    assert rows.sum(block)[0] == 5


def test_at_most_three_blocks_are_in_memory():
    """Test that at most three of a hundred blocks exist at once.

    One block is processed and one is read ahead. A third block may be in transit between the two threads.
    """
    live, most, made = set(), [], []

    def track(k, X):
        made.append(k)
        live.add(len(made))
        weakref.finalize(X, live.discard, len(made))
        most.append(len(live))

    source = _blocks(100, 2_000, track)
    model = _model(max_iter=1, n_centers=5).fit(source, None)
    assert made.count(99) > 4  # moments, starting maps, centers and the objective each take a pass over all rows
    assert model.predict(source).shape == (200_000,)
    assert max(most) <= 3
    gc.collect()
    assert not live


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("csv", "npy"))]
)
def test_transform_and_the_search_take_files(tmp_path, kind):
    table, X = _table(200), _table(200)[["a", "b", "c"]]
    expected = HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(X, table["y"])
    without = _write(tmp_path / f"x.{kind}", X)
    assert_allclose(expected.transform(without), expected.transform(X), atol=1e-12)
    found = HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(_write(tmp_path / f"all.{kind}", table), TARGET[kind])
    assert_allclose(found.components_, expected.components_, atol=1e-6)  # the documented accuracy of every row source
    assert_allclose(found.predict(without), expected.predict(X), atol=1e-5)  # follows from the accuracy of the map
