"""Fingerprints of fits: small summaries of the estimator's class, its parameters and the data.

A checkpoint can be used only by a fit with the same fingerprint. Parameters that change how a fit is computed, but not
its result, are not part of the fingerprint: `n_jobs`, `block_size`, `verbose`, `checkpoint` and `checkpoint_every`. For
example, a fit that ran out of memory can resume with smaller blocks. Two more parameters are not part of the
fingerprint: `time_limit`, because it applies to each call separately, and `callbacks`, because functions cannot be
compared. All other parameters are compared by value: 3 equals 3.0, and a kernel equals its name (see
`hkrr._base.value_hashing`).

Arrays in memory are compared by a hash of their bytes. Data in files, tensors and Dask collections would be expensive
to hash. They are compared by their sizes, by sums over all rows, and by the bytes of at most 300 rows. The sums include
products of inputs and targets, so swapped targets are detected. Two sums are treated as equal if they differ by no
more than rounding errors.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Protocol

import joblib
import numpy as np

from hkrr._base.linear_algebra import Array, array_namespace
from hkrr._base.value_hashing import digest
from hkrr.exceptions import CheckpointError
from hkrr.kernels import get_kernel
from hkrr.rows import InMemoryRows, Rows
from hkrr.solvers import get_solver

# Parameters that are not part of the fingerprint. The docstring of this module gives the reasons.
_LEFT_OUT = (
    "n_jobs",
    "block_size",
    "verbose",
    "checkpoint",
    "checkpoint_every",
    "time_limit",
    "callbacks",
)
# For each parameter that can be given by name, the function that returns the object with that name.
_RESOLVE: dict[str, Any] = {"kernel": get_kernel, "solver": get_solver}
# Maximum number of rows whose bytes are compared, for data that are not arrays in memory.
_SOME_ROWS = 300
# Two sums are treated as equal if their difference, relative to the sum of the absolute values of the terms, is at
# most this number.
_ROUNDING = 1e-9
# Maximum number of characters of a parameter's value in error messages.
_MAX_CHARACTERS = 80
# Number of rows that are hashed at a time.
_BLOCK = 1 << 16


class CheckpointedModel(Protocol):
    """Protocol of estimators whose fit can be stored in a checkpoint."""

    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float
    random_state: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor and their values."""


def fingerprint(model: CheckpointedModel, rows: Rows) -> dict[str, Any]:
    """Return the fingerprint of a fit: the class, the parameters that affect the result, and a summary of the data.

    For each parameter, the fingerprint contains a hash of its value, and the start of its ``repr`` for error messages.
    """
    parameters = {
        name: [_digest_of(name, value), " ".join(repr(value).split())[:_MAX_CHARACTERS]]
        for name, value in sorted(model.get_params(deep=False).items())
        if name not in _LEFT_OUT
    }
    return {"class": type(model).__name__, "parameters": parameters, "data": _data(rows)}


def difference(found: Any, expected: dict[str, Any]) -> str | None:
    """Return a description of the first difference between two fingerprints, or None if they agree."""
    if found["class"] != expected["class"]:
        return f"it was written by a {found['class']}, and this is a {expected['class']}"
    for name in sorted({*found["parameters"], *expected["parameters"]}):
        before, now = (each["parameters"].get(name, [None, "nothing"]) for each in (found, expected))
        if before[0] != now[0]:
            return f"its {name} was {before[1]}, and is now {'a different value' if before[1] == now[1] else now[1]}"
    return _difference_of_data(found["data"], expected["data"])


def _digest_of(name: str, value: Any) -> str:
    """Return a hash of the value of a parameter.

    A value that cannot be pickled has no hash, and a CheckpointError is raised. The parameter `cv` is an exception: if
    it cannot be pickled, for example because it is a generator, the name of its class is returned. Different splits are
    still detected, because the keys of the journal (`hkrr._base.resume_journal`) contain the splits.
    """
    if name in _RESOLVE and isinstance(value, str) and value != "auto":
        value = _RESOLVE[name](value)
    try:
        return digest(value, other=lambda one: str(joblib.hash(one)))
    except Exception as error:  # pickling an object of a user's class can raise anything
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if name == "cv":
            return kind
        raise CheckpointError(
            f"{name} is a {kind} that cannot be pickled ({error}), but a fit with a checkpoint must pickle {name} to "
            "compare it on resuming; define the class in a module, without lambdas or open files, or fit with "
            "checkpoint=None"
        ) from error


def _data(rows: Rows) -> dict[str, Any]:
    sizes = [rows.n_rows, rows.n_features, rows.n_targets]
    if isinstance(rows, InMemoryRows):
        return {"sizes": sizes, "digest": _digest_of_arrays(*rows.arrays)}
    with np.errstate(over="ignore", invalid="ignore"):  # the fit itself reports numbers that are too large
        sums, scales = (np.asarray(part, dtype=np.float64) for part in rows.fetch(*rows.sum(_sums)))
    n = min(rows.n_rows, _SOME_ROWS)
    X, Y, w = rows.subset(np.linspace(0, rows.n_rows - 1, n).astype(np.int64)).gather()
    place = str(getattr(rows, "device", None))  # sums round differently on a different device
    return {"sizes": sizes, "place": place, "sums": sums, "scales": scales, "some": digest(X, Y, w)}


def _digest_of_arrays(*arrays: Array | None) -> str:
    """Return a hash of the shapes, dtypes and entries of arrays.

    The hash does not depend on the memory order of an array, and no complete copy of an array is made.
    """
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        if array is None:
            found.update(b"none;")
            continue
        found.update(f"{array.dtype}{array.shape};".encode())
        for begin in range(0, len(array), _BLOCK):
            found.update(np.ascontiguousarray(array[begin : begin + _BLOCK]).data.cast("B"))
    return found.hexdigest()


def _sums(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
    """Return the sums of w, w x, w x^2, w y, w y^2 and w y x' over the rows, and the same sums for |x| and |y|.

    Here x and y are the inputs and targets of a row and w is its weight. The weights are 1 if `w` is None. The sums for
    |x| and |y| are the scales of the rounding errors.
    """
    xp = array_namespace(X)
    W = xp.ones_like(Y[:, 0]) if w is None else w

    def moments(X: Array, Y: Array) -> Array:
        parts = (W @ X, W @ (X * X), W @ Y, W @ (Y * Y), xp.reshape((W[:, None] * Y).T @ X, (-1,)))
        return xp.concat([xp.reshape(xp.sum(W), (1,)), *parts])

    return moments(X, Y), moments(abs(X), abs(Y))


def _difference_of_data(found: Any, expected: dict[str, Any]) -> str | None:
    if found["sizes"] != expected["sizes"]:
        before, now = ("{} rows, {} columns and {} targets".format(*each["sizes"]) for each in (found, expected))
        return f"its data had {before}, and the data now have {now}"
    if set(found) != set(expected):
        return (
            "its data were of a different type (arrays in memory before, and files, tensors or Dask collections now, "
            "or vice versa)"
        )
    if found.get("place") != expected.get("place"):
        return f"its data were on the device {found['place']}, and are now on {expected['place']}"
    if "digest" in expected:
        return None if found["digest"] == expected["digest"] else "its data were different"
    near = np.abs(found["sums"] - expected["sums"]) <= _ROUNDING * expected["scales"]
    if found["some"] == expected["some"] and np.all(near | ~np.isfinite(expected["sums"])):
        return None
    return "its data were different"
