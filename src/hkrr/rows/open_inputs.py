"""External inputs of `fit` and `predict`: tensors, files, functions that return blocks, and Dask collections.

This module checks external inputs and opens them as `Rows`. `array_rows` creates `Rows` from arrays that have been
checked already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hkrr._base.checks import check_installed
from hkrr._base.linear_algebra import Array, is_torch_array
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.file_readers import is_index, open_source
from hkrr.rows.file_rows import FileRows


class InputRows(NamedTuple):
    """An external input that has been opened as rows."""

    rows: Rows  # the rows, in the original units of X and y
    one_target: bool  # whether predictions have the shape (n_rows,) rather than (n_rows, n_targets)
    names: list[str] | None  # column names of X, or None if X has no column names


def is_file(X: Any) -> bool:
    """Return whether X is a path, a list of paths, or a function that returns blocks."""
    if isinstance(X, Iterator):
        raise ValueError("X is an iterator, which can be read only once: pass a function that returns a new iterator")
    if isinstance(X, list | tuple):
        return all(isinstance(path, str | Path) for path in X)
    return isinstance(X, str | Path) or (callable(X) and not hasattr(X, "shape"))


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection."""
    return hasattr(X, "__dask_graph__")


def is_external(X: Any) -> bool:
    """Return whether X is a tensor, a Dask collection, a file or a function, not an array or a data frame in memory."""
    return is_torch_array(X) or is_dask(X) or is_file(X)


def array_rows(
    X: Array, y: Array, weight: Array | None, *, device: Any, block_size: Literal["auto"] | int, n_threads: int
) -> Rows:
    """Return the arrays as `TorchRows` on the given device, or as `InMemoryRows` if `device` is None."""
    if device is None:
        return InMemoryRows(X, y, weight, block_size=block_size, n_threads=n_threads)
    check_installed("torch", "torch", "devices")
    from hkrr.rows.torch_device import TorchRows

    return TorchRows(X, y, weight, device=device, block_size=block_size)


def open_rows(
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    device: Any,
    block_size: Literal["auto"] | int,
    n_threads: int,
    names: list[str] | None = None,
) -> InputRows:
    """Open tensors, files, a function or Dask collections as rows.

    ``names`` selects the columns of X and their order. None selects all columns except the target.
    """
    if sample_weight is not None and not is_torch_array(X):
        raise ValueError(
            "sample_weight is supported for arrays and tensors only; omit sample_weight if X is a file, a function "
            "or a Dask collection"
        )
    if is_torch_array(X):
        return _open_tensors(X, y, sample_weight, device, block_size)
    if is_dask(X):
        return _open_dask(X, y, device, block_size, names)
    if device is not None:
        raise ValueError(
            f"device={device!r} is supported for arrays, tensors and Dask collections only; use device=None if X is a "
            "file or a function"
        )
    if not callable(X) and not isinstance(X, str | Path) and not X:
        raise ValueError("X is an empty list: pass an array or the paths of files")
    if not callable(X) and not isinstance(y, str) and not is_index(y):
        raise ValueError(f"for files, y must be the name or the index of the target column, got {type(y).__name__}")
    if callable(X) and y is not None:
        raise ValueError("y must be None if X is a function, because the function returns blocks (inputs, targets)")
    source = open_source(X, y, names)
    if source.n_targets == 0:
        raise ValueError(
            "the function passed as X returned blocks without targets; for fit and score, each block must be a pair of "
            "arrays (inputs, targets)"
        )
    rows = FileRows(source, block_size=block_size, n_threads=n_threads)
    return InputRows(rows, source.n_targets == 1, source.names)


def _check_tensor(name: str, tensor: Any, n_rows: int, dimensions: tuple[int, ...]) -> None:
    """Raise a ValueError if the argument is not a tensor of finite real numbers with ``n_rows`` rows.

    ``dimensions`` contains the allowed values of ``tensor.ndim``.
    """
    import torch

    if not is_torch_array(tensor) or tensor.ndim not in dimensions or len(tensor) != n_rows:
        raise ValueError(f"{name} must be a tensor with one entry for each of the {n_rows} rows of X")
    if tensor.is_complex():
        raise ValueError(f"{name} must contain real numbers, got complex numbers")
    tensor = tensor.detach()
    # Test the sum first, because testing every value makes a copy of the tensor.
    if not bool(torch.isfinite(tensor.sum(dtype=torch.float64))) and not bool(torch.isfinite(tensor).all()):
        what = "NaN" if bool(torch.isnan(tensor).any()) else "infinity"
        raise ValueError(f"{name} holds {what}; impute such values or drop their rows first")


def _open_tensors(X: Any, y: Any, weight: Any, device: Any, block_size: Literal["auto"] | int) -> InputRows:
    import torch

    from hkrr.rows.torch_device import TorchRows

    if X.ndim != 2:
        raise ValueError(f"X must be a matrix, got a tensor of shape {tuple(X.shape)}")
    _check_tensor("X", X, len(X), (2,))
    _check_tensor("y", y, len(X), (1, 2))
    if weight is not None:
        _check_tensor("sample_weight", weight, len(X), (1,))
        weight = weight.detach().to(torch.float64)
        if bool((weight < 0).any()):
            raise ValueError("sample_weight must not be negative")
        if int(torch.count_nonzero(weight)) < 2:
            raise ValueError("sample_weight must be positive for at least 2 rows")
    rows = TorchRows(X, y, weight, device=X.device if device is None else device, block_size=block_size)
    return InputRows(rows, y.ndim == 1, None)


def _open_dask(X: Any, y: Any, device: Any, block_size: Literal["auto"] | int, wanted: list[str] | None) -> InputRows:
    check_installed("distributed", "dask", "Dask collections")
    from hkrr.rows.dask import DaskRows

    if getattr(X, "ndim", 0) != 2:
        raise ValueError("X must be a two-dimensional Dask array or a Dask data frame")
    names = list(X.columns) if hasattr(X, "columns") else None
    if isinstance(y, str):
        if names is None or y not in names:
            raise ValueError(
                f"y={y!r} names a column, so X must be a Dask data frame with this column; the columns of X are "
                f"{', '.join(map(str, names or ['not named']))}"
            )
        X, y = X.drop(columns=[y]), X[y]
    if not is_dask(y):
        raise ValueError("y must be a Dask collection with the same rows as X, or the name of a column of X")
    if names is not None:
        X = X if wanted is None else _select_columns(X, wanted)
        names = list(X.columns)
        for name, dtype in zip(names, X.dtypes, strict=True):
            if dtype.kind not in "fiub":
                raise ValueError(f"column {name!r} of X is not numeric ({dtype}): encode or drop it first")
    for name, collection in (("X", X), ("y", y)):
        kinds = [collection.dtype] if hasattr(collection, "dtype") else list(collection.dtypes)
        for kind in kinds:
            if kind.kind not in "fiubO":  # columns of objects may hold numbers; the workers check them
                raise ValueError(f"{name} must contain real numbers, got dtype {kind}; convert {name} to numbers first")
    rows = DaskRows(X, y, device=device, block_size=block_size)
    # As in scikit-learn, column names are used only if all of them are strings.
    names = names if names is not None and all(isinstance(name, str) for name in names) else None
    return InputRows(rows, rows.n_targets == 1 and getattr(y, "ndim", 1) == 1, names)


def _select_columns(X: Any, names: list[str]) -> Any:
    missing = [column for column in names if column not in list(X.columns)]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}, but the model was fitted with this column")
    return X[names]


def apply_to_external(
    X: Any,
    of_block: Callable[[Any], Array],
    tail: tuple[int, ...],
    of_rows: Callable[[Rows], Array],
    *,
    n_features: int,
    names: list[str] | None,
    block_size: Literal["auto"] | int,
    n_threads: int,
) -> Any:
    """Apply a function to all rows of an external input.

    The result is a tensor if X is a tensor, a lazy collection if X is a Dask collection, and an array otherwise.
    `of_block` is the function for an array or a data frame, called by the workers for the partitions of Dask
    collections. `of_rows` is the function for `Rows`, called for tensors, files and functions. `tail` is the shape of
    the result for one row, () for a number. X must have `n_features` columns. `names` selects columns of X. None
    selects all columns.
    """
    if is_dask(X):
        return _apply_to_collection(X, of_block, tail, n_features, names)
    if is_torch_array(X):
        import torch

        from hkrr.rows.torch_device import TorchRows

        if X.ndim != 2 or X.shape[1] != n_features:
            raise ValueError(f"X must be a matrix of {n_features} columns, got shape {tuple(X.shape)}")
        if len(X) == 0:
            raise ValueError("X has 0 rows; at least 1 row is needed")
        _check_tensor("X", X, len(X), (2,))
        rows = TorchRows(X, torch.empty((len(X), 0), device=X.device), device=X.device, block_size=block_size)
        dtype = X.dtype if X.is_floating_point() else torch.float64
        return torch.as_tensor(of_rows(rows), dtype=dtype, device=X.device)
    source = open_source(X, None, names)
    if source.n_features != n_features:
        where = "" if callable(X) else f"{X if isinstance(X, str | Path) else X[0]}: "
        remedy = (
            "; if X includes the target, pass a function that returns blocks without the target"
            if source.n_features == n_features + 1
            else ""
        )
        raise ValueError(
            f"{where}X has {source.n_features} columns, but the model was fitted with {n_features}{remedy}"
        )
    return of_rows(FileRows(source, block_size=block_size, n_threads=n_threads))


def _apply_to_collection(
    X: Any, of_block: Callable[[Any], Array], tail: tuple[int, ...], n_features: int, names: list[str] | None
) -> Any:
    """Return a lazy collection with the results. Each partition is computed on the worker that stores it."""
    if names is not None and hasattr(X, "columns"):
        X = _select_columns(X, names)
    if X.shape[1] != n_features:
        raise ValueError(f"X has {X.shape[1]} columns, but the model was fitted with {n_features}")

    def values(block: Any, dtype: Any = np.float64) -> Array:
        return of_block(block) if len(block) else np.empty((0, *tail), dtype=dtype)

    if hasattr(X, "columns"):
        import pandas as pd

        def of_frame(block: Any) -> Any:
            result = values(block if names is not None else block.to_numpy())
            return pd.DataFrame(result, index=block.index) if tail else pd.Series(result, index=block.index)

        empty = np.empty((0, *tail))
        return X.map_partitions(of_frame, meta=pd.DataFrame(empty) if tail else pd.Series(empty))
    dtype = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
    X = X.rechunk({1: -1})
    chunks = (X.chunks[0], *((n,) for n in tail))
    return X.map_blocks(values, dtype, dtype=dtype, chunks=chunks, drop_axis=[] if tail else 1)
