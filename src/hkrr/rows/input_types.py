"""What `fit` and `predict` take beside arrays: tensors, files and Dask collections, each opened as Rows."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array, is_torch_array
from hkrr._validation import check_installed
from hkrr.rows import Rows
from hkrr.rows.files import FileRows
from hkrr.rows.sources import open_source


class Opened(NamedTuple):
    """Rows in the units of the data, whether there is one target, and the names of the columns where they have any."""

    rows: Rows
    one_target: bool
    names: list[str] | None


def is_file(X: Any) -> bool:
    """Whether X is a path, a list of paths, or a function that gives blocks."""
    if isinstance(X, Iterator):
        raise ValueError("X is an iterator, which is read only once: give a function that returns a new one each time")
    if isinstance(X, list | tuple):
        return all(isinstance(path, str | Path) for path in X)
    return isinstance(X, str | Path) or (callable(X) and not hasattr(X, "shape"))


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask."""
    return hasattr(X, "__dask_graph__")


def is_elsewhere(X: Any) -> bool:
    """Whether X is more than an array or a data frame in memory."""
    return is_torch_array(X) or is_dask(X) or is_file(X)


def open_rows(
    X: Any, y: Any, sample_weight: Any, *, device: Any, block_size: Any, n_threads: int, names: list[str] | None = None
) -> Opened:
    """Return the rows of tensors, files or Dask collections; of these columns in this order, where named."""
    if sample_weight is not None and not is_torch_array(X):
        raise ValueError("sample_weight goes with arrays and tensors in memory; leave it out for files and Dask")
    if is_torch_array(X):
        return _tensors(X, y, sample_weight, device, block_size)
    if is_dask(X):
        return _collections(X, y, device, block_size, names)
    if device is not None:
        raise ValueError(f"device={device!r} goes with arrays, tensors and Dask; leave it out for files")
    if not callable(X) and not isinstance(X, str | Path) and not X:
        raise ValueError("X is an empty list: give arrays, or the paths of files")
    is_name = isinstance(y, str | numbers.Integral) and not isinstance(y, bool)
    if not callable(X) and not is_name:
        raise ValueError(f"y must be the name or the index of the target's column for files, got {type(y).__name__}")
    if callable(X) and y is not None:
        raise ValueError("y must be None where X is a function: its blocks are pairs (X, y)")
    source = open_source(X, y, names)
    if source.n_targets == 0:
        raise ValueError("the blocks of X must be pairs (X, y)")
    rows = FileRows(source, block_size=block_size, n_threads=n_threads)
    return Opened(rows, source.n_targets == 1, source.names)


def _check_tensor(name: str, tensor: Any, n_rows: int, dimensions: tuple[int, ...]) -> None:
    """Raise unless it is a tensor of finite real numbers, of one of these dimensions and that many rows."""
    import torch

    if not is_torch_array(tensor) or tensor.ndim not in dimensions or len(tensor) != n_rows:
        raise ValueError(f"{name} must be a tensor with one entry for each of the {n_rows} rows of X")
    if tensor.is_complex():
        raise ValueError(f"{name} must hold real numbers, got complex ones")
    tensor = tensor.detach()
    # The sum first: it makes no copies.
    if not bool(torch.isfinite(tensor.sum(dtype=torch.float64))) and not bool(torch.isfinite(tensor).all()):
        what = "NaN" if bool(torch.isnan(tensor).any()) else "infinity"
        raise ValueError(f"{name} holds {what}; impute it or drop those rows first")


def _tensors(X: Any, y: Any, weight: Any, device: Any, block_size: Any) -> Opened:
    import torch

    from hkrr.rows.device import TorchRows

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
            raise ValueError("sample_weight must be positive for at least 2 rows: one row is nothing to learn from")
    rows = TorchRows(X, y, weight, device=X.device if device is None else device, block_size=block_size)
    return Opened(rows, y.ndim == 1, None)


def _collections(X: Any, y: Any, device: Any, block_size: Any, wanted: list[str] | None) -> Opened:
    check_installed("distributed", "dask", "Dask collections")
    from hkrr.rows.dask_collections import DaskRows

    if getattr(X, "ndim", 0) != 2:
        raise ValueError("X must be a Dask array or data frame of rows and columns")
    names = list(X.columns) if hasattr(X, "columns") else None
    if isinstance(y, str):
        if names is None or y not in names:
            raise ValueError(
                f"y={y!r} must be a column of X, a data frame; there are {', '.join(map(str, names or []))}"
            )
        X, y = X.drop(columns=[y]), X[y]
    if not is_dask(y):
        raise ValueError("y must be a Dask collection too, of the same rows as X, or the name of a column")
    if names is not None:
        X = X if wanted is None else _chosen(X, wanted)
        names = list(X.columns)
        for name, dtype in zip(names, X.dtypes, strict=True):
            if dtype.kind not in "fiub":
                raise ValueError(f"column {name!r} of X is no column of numbers ({dtype}): encode it first, or drop it")
    for name, collection in (("X", X), ("y", y)):
        kinds = [collection.dtype] if hasattr(collection, "dtype") else list(collection.dtypes)
        for kind in kinds:
            if kind.kind not in "fiubO":  # objects may be numbers: that is seen where they are
                raise ValueError(f"{name} holds no real numbers ({kind}): encode it first")
    rows = DaskRows(X, y, device=device, block_size=block_size)
    # As scikit-learn: names that are no text are none.
    names = names if names is not None and all(isinstance(name, str) for name in names) else None
    return Opened(rows, rows.n_targets == 1 and getattr(y, "ndim", 1) == 1, names)


def _chosen(X: Any, names: list[str]) -> Any:
    missing = [column for column in names if column not in list(X.columns)]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}, which the model was fitted with")
    return X[names]


def apply_elsewhere(model: Any, X: Any, name: str, tail: tuple[int, ...], of_rows: Any) -> Any:
    """Return the method of that name for tensors (a tensor), files (an array) or Dask collections (a collection).

    ``of_rows(rows)`` is what it does to rows, and ``tail`` the shape of one row's result.
    """
    if is_dask(X):
        return _apply_to_collection(model, X, name, tail)
    if is_torch_array(X):
        import torch

        from hkrr.rows.device import TorchRows

        if X.ndim != 2 or X.shape[1] != model.n_features_in_:
            raise ValueError(f"X must be a matrix of {model.n_features_in_} columns, got shape {tuple(X.shape)}")
        if len(X) == 0:
            raise ValueError("X has 0 rows; give one at least")
        _check_tensor("X", X, len(X), (2,))
        rows = TorchRows(X, torch.empty((len(X), 0), device=X.device), device=X.device, block_size=model.block_size)
        dtype = X.dtype if X.is_floating_point() else torch.float64
        return torch.as_tensor(of_rows(rows), dtype=dtype, device=X.device)
    names = getattr(model, "feature_names_in_", None)
    source = open_source(X, None, None if names is None else list(names))
    if source.n_features != model.n_features_in_:
        where = "" if callable(X) else f"{X if isinstance(X, str | Path) else X[0]}: "
        n, expected = source.n_features, model.n_features_in_
        remedy = "; leave the target out: a function can give blocks without it" if n == expected + 1 else ""
        raise ValueError(f"{where}X has {n} columns, and the model was fitted with {expected}{remedy}")
    return of_rows(FileRows(source, block_size=model.block_size, n_threads=model._n_threads))


def _apply_to_collection(model: Any, X: Any, name: str, tail: tuple[int, ...]) -> Any:
    """Return a collection that is computed when it is asked for, each partition where it is."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        X = _chosen(X, list(names))
    if X.shape[1] != model.n_features_in_:
        raise ValueError(f"X has {X.shape[1]} columns, and the model was fitted with {model.n_features_in_}")

    def values(block: Any, dtype: Any = np.float64) -> Array:
        return getattr(model, name)(block) if len(block) else np.empty((0, *tail), dtype=dtype)

    if hasattr(X, "columns"):
        import pandas as pd

        def of_frame(block: Any) -> Any:
            found = values(block if names is not None else block.to_numpy())
            return pd.DataFrame(found, index=block.index) if tail else pd.Series(found, index=block.index)

        nothing = np.empty((0, *tail))
        return X.map_partitions(of_frame, meta=pd.DataFrame(nothing) if tail else pd.Series(nothing))
    dtype = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
    X = X.rechunk({1: -1})
    chunks = (X.chunks[0], *((n,) for n in tail))
    return X.map_blocks(values, dtype, dtype=dtype, chunks=chunks, drop_axis=[] if tail else 1)
