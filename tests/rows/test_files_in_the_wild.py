"""Tests of files written by other programs: column order, byte order marks, pandas indices, many and large files."""

import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators import _search_mixin, ridge
from hkrr.rows.file_readers import open_source
from hkrr.rows.file_rows import FileRows


def _table(m=400):
    rng = np.random.default_rng(m)
    table = pd.DataFrame(rng.normal(size=(m, 3)), columns=["a", "b", "c"])
    return table.assign(y=np.sin(table["a"]) + 0.3 * rng.normal(size=m))


def _model(**options):
    common = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "n_init": 1, "random_state": 0}
    return HyperKernelRidge(1, **{**common, **options})


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns_are_matched_by_name(tmp_path, kind):
    table = _table()
    first, other = tmp_path / f"first.{kind}", tmp_path / f"other.{kind}"
    getattr(table, f"to_{kind}")(first, index=False)
    getattr(table[["c", "y", "a", "b"]].assign(more=1.0), f"to_{kind}")(other, index=False)
    model = _model().fit(first, "y")
    assert model.score(other, "y") == pytest.approx(model.score(first, "y"), abs=1e-12)
    assert_allclose(model.predict(other), model.predict(first), rtol=0.0, atol=1e-12)
    table.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(ValueError, match="no column 'b'"):
        model.score(tmp_path / "less.csv", "y")


def test_score_rejects_another_number_of_columns(tmp_path):
    np.save(tmp_path / "four.npy", _table().to_numpy())
    np.save(tmp_path / "three.npy", _table().drop(columns="b").to_numpy())
    model = _model().fit(tmp_path / "four.npy", 3)
    with pytest.raises(ValueError, match="X has 2 columns, but the model was fitted with 3"):
        model.score(tmp_path / "three.npy", 2)


def test_the_index_of_pandas_is_not_a_feature(tmp_path):
    table = _table()
    table[table["a"] > -0.5].to_parquet(tmp_path / "some.parquet")  # pandas writes the index of a selection as a column
    model = _model().fit(tmp_path / "some.parquet", "y")
    assert list(model.feature_names_in_) == ["a", "b", "c"]


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path):
    _table().to_csv(tmp_path / "excel.csv", index=False, encoding="utf-8-sig")
    model = _model().fit(tmp_path / "excel.csv", "y")
    assert list(model.feature_names_in_) == ["a", "b", "c"]


def test_repeated_column_names_are_an_error(tmp_path):
    (tmp_path / "twice.csv").write_text("a,b,a,y\n1,2,3,4\n5,6,7,8\n")
    with pytest.raises(ValueError, match=r"twice\.csv: two columns are called 'a'"):
        _model().fit(tmp_path / "twice.csv", "y")


def test_an_empty_first_line_is_named(tmp_path):
    (tmp_path / "late.csv").write_text("\na,y\n1,2\n3,4\n")
    with pytest.raises(ValueError, match=r"late\.csv: the first line is empty"):
        _model().fit(tmp_path / "late.csv", "y")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc, which only Linux has")
def test_files_are_open_only_while_they_are_read(tmp_path):
    paths = [tmp_path / f"{k}.parquet" for k in range(30)]
    for path in paths:
        _table(20).to_parquet(path, index=False)
    before = len(list(Path("/proc/self/fd").iterdir()))
    rows = FileRows(open_source(paths, "y"))
    rows.subset(np.array([0, 599]))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    assert rows.n_rows == 600


def test_blocks_may_reuse_the_same_array():
    table = _table().to_numpy()

    def reused():
        X, y = np.empty((100, 3)), np.empty(100)
        for k in range(0, len(table), 100):
            X[:], y[:] = table[k : k + 100, :3], table[k : k + 100, 3]
            yield X, y

    def fresh():
        return ((table[k : k + 100, :3], table[k : k + 100, 3]) for k in range(0, len(table), 100))

    found, expected = (FileRows(open_source(function, None)) for function in (reused, fresh))
    assert_array_equal(found.subset(np.arange(400)).gather()[0], table[:, :3])
    for one, other in zip(found.sum(_products), expected.sum(_products), strict=True):
        assert_allclose(one, other, rtol=1e-12)


def _products(X, Y, w):
    return X.T @ X, X.T @ Y


def test_the_same_iterator_again_is_an_error():
    table = _table().to_numpy()
    model = _model().fit(table[:, :3], table[:, 3])
    once = iter([table[:20, :3], table[20:50, :3]])
    with pytest.raises(ValueError, match="the same iterator again"):
        model.predict(lambda: once)


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_a_file_that_changes_while_it_is_read_is_named(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"

    def write(m):
        if kind == "npy":
            np.save(path, _table(m).to_numpy())
        else:
            _table(m).to_parquet(path, index=False)

    write(400)
    rows = FileRows(open_source(path, 3))
    write(100)
    with pytest.raises(ValueError, match=rf"rows\.{kind}: the file had 400 rows and now has 100"):
        rows.sum(_products)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("oops,true,1", "column 'a' holds 'oops' in row 2"), ("1,true", "row 2 does not have 3 columns")],
)
def test_the_invalid_cell_is_named_next_to_a_boolean_column(tmp_path, line, wrong):
    path = tmp_path / "rows.csv"
    path.write_text(f"a,c,y\n1,true,2\n2,false,3\n{line}\n")
    with pytest.raises(ValueError, match=wrong):
        _model().fit(path, "y")


def test_a_missing_package_is_named_with_a_remedy(tmp_path, monkeypatch):
    _table().to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'hkrr\[files\]'"):
        _model().fit(tmp_path / "rows.csv", "y")
    with pytest.raises(ImportError, match=r"pip install 'hkrr\[torch\]'"):
        _model(device="cpu").fit(_table()[["a", "b"]], _table()["y"])


def test_more_blocks_in_a_later_pass_are_an_error():
    calls = []

    def growing():
        calls.append(1)
        return ((np.random.default_rng(k).normal(size=(50, 3)), np.arange(50.0)) for k in range(len(calls)))

    with pytest.raises(ValueError, match="when called again"):
        _model().fit(growing)


def test_predictions_take_one_pass():
    calls = []
    table = _table().to_numpy()

    def blocks():
        calls.append(1)
        return iter([table[:200, :3], table[200:, :3]])

    model = _model().fit(table[:, :3], table[:, 3])
    found = model.predict(blocks)
    assert len(calls) == 2  # one call for the number of columns, one for the predictions
    assert_allclose(found, model.predict(table[:, :3]), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("merged_rows", [20_000, 100], ids=["below the limit", "above it"])
def test_repeated_rows_have_the_same_effect_in_memory_and_in_files(tmp_path, monkeypatch, merged_rows):
    monkeypatch.setattr(ridge, "MERGED_ROWS", merged_rows)
    table = _table().to_numpy()
    table[1] = table[0]
    np.save(tmp_path / "rows.npy", table)
    options = {"criterion": "evidence", "max_iter": 5}
    expected = _model(**options).fit(table[:, :3], table[:, 3])
    found = _model(**options).fit(tmp_path / "rows.npy", 3)
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)


def test_the_search_draws_the_same_rows_from_files(tmp_path, monkeypatch):
    monkeypatch.setattr(_search_mixin, "SAMPLE_ROWS", 150)
    table = _table().to_numpy()
    np.save(tmp_path / "rows.npy", table)
    options = {"n_components": 1, "n_init": 1, "refit": 60, "random_state": 0}
    expected = HyperKernelRidgeCV(**options).fit(table[:, :3], table[:, 3])
    found = HyperKernelRidgeCV(**options).fit(tmp_path / "rows.npy", 3)
    assert found.truncation_ == expected.truncation_
    assert_array_equal(found.centers_, expected.centers_)
    # The search uses the same 150 rows, so the maps are bitwise equal. The final fit adds the rows in a different
    # order.
    assert_array_equal(found.components_, expected.components_)
    assert_allclose(found.predict(table[:, :3]), expected.predict(table[:, :3]), rtol=0.0, atol=1e-6)


def test_a_rewrapped_iterator_is_an_error():
    """Test that a function that returns the rest of the same iterator on every call is an error.

    The first call, which determines the number of columns, consumes the first block.
    """
    blocks = iter([_table(m).to_numpy()[:, :3] for m in (100, 101, 102)])
    model = _model().fit(*np.split(_table().to_numpy(), [3], axis=1))
    with pytest.raises(ValueError, match="new iterable"):
        model.predict(lambda: (block for block in blocks))


def test_a_first_block_that_changes_is_an_error():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="a different first block"):
        _model().fit(lambda: iter([(rng.normal(size=(50, 3)), np.arange(50.0))]))


def test_a_csv_file_without_header_is_an_error(tmp_path):
    np.savetxt(tmp_path / "rows.csv", _table(), delimiter=",")
    with pytest.raises(ValueError, match=r"rows\.csv.*column names"):
        _model().fit(tmp_path / "rows.csv", 3)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_target_may_be_a_feature_of_the_model(tmp_path, kind):
    path, table = tmp_path / f"rows.{kind}", _table()
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path, index=False)
    model = _model().fit(table[["a", "b", "c"]], table["y"])
    assert model.score(path, "a") == pytest.approx(model.score(table[["a", "b", "c"]], table["a"]))


@pytest.mark.parametrize("make", [partial(HyperKernelRidge, reg_lambda=0.1), partial(HyperKernelRidgeCV, 1)])
def test_predictions_of_no_rows_have_the_right_shape(tmp_path, make):
    table = _table().to_numpy()
    model = make(random_state=0).fit(table[:, :2], table[:, 2:])
    np.save(tmp_path / "none.npy", table[:0, :2])
    assert model.predict(tmp_path / "none.npy").shape == (0, 2)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the memory statistics of Linux")
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    """Test that fits to files of 20 and 80 MB, read in chunks of 4 MB, have similar peak memory.

    The peaks may differ by 30 MB, half of the difference between the file sizes.
    """
    part = np.random.default_rng(0).normal(size=(50_000, 50))
    paths = [tmp_path / f"{n}.{kind}" for n in (1, 4)]
    for n, path in zip((1, 4), paths, strict=True):
        if kind == "npy":
            rows = np.lib.format.open_memmap(path, mode="w+", shape=(n * len(part), 50), dtype=np.float64)
            for k in range(n):
                rows[k * len(part) : (k + 1) * len(part)] = part
            del rows
        else:
            names = [f"x{k}" for k in range(50)]
            pd.concat([pd.DataFrame(part, columns=names)] * n).to_parquet(path, index=False)  # a single row group
    peaks = []
    for path in paths:  # each fit has its own process, because freed memory still counts in the peak of a process
        code = f"""
            from pathlib import Path
            from hkrr import HyperKernelRidge
            from hkrr.rows import file_readers as readers
            readers.CHUNK_BYTES = 4 << 20  # small chunks, because the number of chunks in memory varies
            path = {str(path)!r}
            HyperKernelRidge(1, n_centers=20, n_init=1, max_iter=1, random_state=0).fit(path, 0)
            lines = Path("/proc/self/status").read_text().splitlines()
            print(next(line for line in lines if line.startswith("VmHWM")).split()[1])
        """
        command = [sys.executable, "-c", textwrap.dedent(code)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        peaks.append(int(found) / 1024)
    assert peaks[1] - peaks[0] < 30, peaks


def test_an_iterator_is_an_error_that_suggests_a_function():
    table = _table().to_numpy()
    model = _model().fit(table[:, :3], table[:, 3])
    blocks = (table[:, :3] for _ in range(2))
    for call in (
        lambda: _model().fit(blocks),
        lambda: _model().fit(blocks, table[:, 3]),
        lambda: model.predict(blocks),
    ):
        with pytest.raises(ValueError, match="pass a function that returns a new iterator"):
            call()


def test_remedies_for_patterns_and_for_an_included_target(tmp_path):
    np.save(tmp_path / "rows.npy", _table().to_numpy())
    model = _model().fit(tmp_path / "rows.npy", 3)
    with pytest.raises(ValueError, match="if X includes the target"):
        model.predict(tmp_path / "rows.npy")
    with pytest.raises(FileNotFoundError, match="glob"):
        _model().fit(tmp_path / "*.npy", 3)
