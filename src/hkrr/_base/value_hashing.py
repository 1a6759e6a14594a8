"""Type-independent hashes of values, used in the fingerprints of checkpoints and the keys of checkpoint entries.

Equal values of different types have the same hash: an integer, a float and a NumPy scalar; a list, a tuple, a range and
an array of the same numbers; a path and its string; a PyTorch device and its name. Two dataclass instances of the
library, such as kernels, have the same hash if they have the same class and equal fields.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array

# All integers up to this absolute value can be represented exactly as floats.
_EXACT = 2**53


def digest(*parts: Any, other: Callable[[Any], str] = repr) -> str:
    """Return a hash of the given values, in this order, as a short string.

    `other` converts to text every value that is neither None nor a boolean nor of a type listed in the module
    docstring.
    """
    found = hashlib.blake2b(digest_size=16)

    def feed(part: Any) -> None:
        array = _as_array(part)
        if array is not None and array.ndim > 0:
            exact = array.dtype.kind not in "iu" or np.all((array > -_EXACT) & (array < _EXACT))
            found.update(f"[{array.shape}".encode())
            found.update(np.ascontiguousarray(array, dtype=np.float64 if exact else array.dtype).data.cast("B"))
        elif isinstance(part, list | tuple | range) or (isinstance(part, np.ndarray) and part.ndim > 0):
            found.update(b"(")
            for each in part:
                feed(each)
            found.update(b")")
        elif type(part).__module__.startswith("hkrr.") and is_dataclass(part):
            feed((type(part).__qualname__, *((field.name, getattr(part, field.name)) for field in fields(part))))
        else:
            found.update(f"{_text(part, other)};".encode())

    feed(parts)
    return found.hexdigest()


def _as_array(part: Any) -> Array | None:
    """Return a non-empty array or sequence of numbers as an array, and None for any other value."""
    if isinstance(part, list | tuple | range):
        try:
            part = np.asarray(part)
        except ValueError:  # nested sequences of different lengths
            return None
    fits = isinstance(part, np.ndarray) and part.size > 0 and part.dtype.kind in "iufb"
    return part if fits else None


def _text(part: Any, other: Callable[[Any], str]) -> str:
    if part is None or isinstance(part, str | bool | np.bool_):
        return repr(bool(part) if isinstance(part, np.bool_) else part)
    if isinstance(part, np.ndarray):
        part = part[()]
    if isinstance(part, Integral):
        return str(int(part))
    if isinstance(part, Real):
        number = float(part)
        return str(int(number)) if number.is_integer() and abs(number) < _EXACT else number.hex()
    if isinstance(part, os.PathLike):
        return repr(os.fspath(part))
    if type(part).__module__ == "torch" and type(part).__name__ == "device":
        return repr(str(part))
    return other(part)
