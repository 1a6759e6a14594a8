"""What a checkpoint belongs to: the class, its parameters and the data, as small values that can be compared.

Parameters that change how a fit is computed, and not what, are left out: `n_jobs`, `block_size`, `verbose`,
`checkpoint` and `checkpoint_every` (a fit that ran out of memory may go on with smaller blocks), `time_limit`, which
each call has for itself, and `callbacks`, functions that nobody can compare. The others are compared by what they mean.

Arrays in memory are compared by a digest of their bytes. Of other data there is no cheap one, so: their sizes, sums
over all rows that see which target goes with which inputs, and some rows, bit for bit. Sums may differ by rounding.
"""

from __future__ import annotations

import hashlib
from typing import Any

import joblib
import numpy as np

from hkrr._arrays import Array, array_namespace
from hkrr.exceptions import CheckpointError
from hkrr.kernels import get_kernel
from hkrr.meaning import digest
from hkrr.rows import InMemoryRows, Rows
from hkrr.solvers import get_solver

_LEFT_OUT = (
    "n_jobs",
    "block_size",
    "verbose",
    "checkpoint",
    "checkpoint_every",
    "time_limit",
    "callbacks",
)
_NAMED: dict[str, Any] = {"kernel": get_kernel, "solver": get_solver}  # what names stand for
_SOME_ROWS = 300
_ROUNDING = 1e-9  # of sums taken in another order, relative to the sum of sizes
_LONGEST = 80  # characters of a value, for messages
_BLOCK = 1 << 16


def fingerprint(model: Any, rows: Rows) -> dict[str, Any]:
    """Return the class, each parameter that matters (a digest, and the value for messages), and the data."""
    parameters = {
        name: [_digest_of(name, value), " ".join(repr(value).split())[:_LONGEST]]
        for name, value in sorted(model.get_params(deep=False).items())
        if name not in _LEFT_OUT
    }
    return {"class": type(model).__name__, "parameters": parameters, "data": _data(rows)}


def difference(found: Any, expected: dict[str, Any]) -> str | None:
    """Return what a fingerprint has otherwise than it should, in words, or None."""
    if found["class"] != expected["class"]:
        return f"it is of a {found['class']}, and this is a {expected['class']}"
    for name in sorted({*found["parameters"], *expected["parameters"]}):
        before, now = (each["parameters"].get(name, [None, "nothing"]) for each in (found, expected))
        if before[0] != now[0]:
            return f"its {name} was {before[1]}, and is now {'another such' if before[1] == now[1] else now[1]}"
    return _difference_of_data(found["data"], expected["data"])


def _digest_of(name: str, value: Any) -> str:
    """Return a digest of a parameter; of a `cv` that cannot be pickled (a generator, say), of its class.

    The splits that `cv` makes are in the keys of the journal, so there the class is enough.
    """
    if name in _NAMED and isinstance(value, str) and value != "auto":
        value = _NAMED[name](value)
    try:
        return digest(value, other=lambda one: str(joblib.hash(one)))
    except Exception as error:  # whatever a stranger's class raises when it is pickled
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if name == "cv":
            return kind
        raise CheckpointError(
            f"checkpoint needs a {name} that can be pickled, to know it again, and this {kind} cannot be ({error}): "
            "define its class in a module, without lambdas or open files in it, or fit with checkpoint=None"
        ) from error


def _data(rows: Rows) -> dict[str, Any]:
    sizes = [rows.n_rows, rows.n_features, rows.n_targets]
    if isinstance(rows, InMemoryRows):
        return {"sizes": sizes, "digest": _digest_of_arrays(*rows.arrays)}
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is the fit's to say
        sums, scales = (np.asarray(part, dtype=np.float64) for part in rows.fetch(*rows.sum(_sums)))
    n = min(rows.n_rows, _SOME_ROWS)
    X, Y, w = rows.subset(np.linspace(0, rows.n_rows - 1, n).astype(np.int64)).gather()
    place = str(getattr(rows, "device", None))  # on another one sums have other last bits
    return {"sizes": sizes, "place": place, "sums": sums, "scales": scales, "some": digest(X, Y, w)}


def _digest_of_arrays(*arrays: Array | None) -> str:
    """Return a digest of shapes, kinds and bytes: the same whatever the order of memory, and without a copy."""
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
    """Return the weight and the sums of x, x^2, y, y^2 and y x' (weighted), and the same of their sizes."""
    xp = array_namespace(X)
    W = xp.ones_like(Y[:, 0]) if w is None else w

    def moments(X: Array, Y: Array) -> Array:
        parts = (W @ X, W @ (X * X), W @ Y, W @ (Y * Y), xp.reshape((W[:, None] * Y).T @ X, (-1,)))
        return xp.concat([xp.reshape(xp.sum(W), (1,)), *parts])

    return moments(X, Y), moments(abs(X), abs(Y))


def _difference_of_data(found: Any, expected: dict[str, Any]) -> str | None:
    if found["sizes"] != expected["sizes"]:
        before, now = ("{} rows, {} columns and {} targets".format(*each["sizes"]) for each in (found, expected))
        return f"its data had {before}, and these have {now}"
    if set(found) != set(expected):
        return "its data were of another kind (arrays in memory, files, tensors, Dask collections)"
    if found.get("place") != expected.get("place"):
        return f"its data were on the device {found['place']}, and these are on {expected['place']}"
    if "digest" in expected:
        return None if found["digest"] == expected["digest"] else "its data were other ones"
    near = np.abs(found["sums"] - expected["sums"]) <= _ROUNDING * expected["scales"]
    if found["some"] == expected["some"] and np.all(near | ~np.isfinite(expected["sums"])):
        return None
    return "its data were other ones"
