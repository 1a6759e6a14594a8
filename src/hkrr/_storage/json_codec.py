"""Conversion of values to JSON and back, for parameters, fitted attributes and the entries of checkpoints.

None, booleans, strings, integers, finite floats and lists are represented by the corresponding JSON values. Every other
value is represented by a JSON object whose only key names the type of the value. For example:

- ``{"tensor": name}`` is an array, stored in the file as the tensor with this name.
- ``{"stack": name}`` is a long list of arrays of one shape, stored as one tensor.
- ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}`` and ``{"float": "inf"}`` are a tuple, a dict and infinity.
- ``{"object": {"class": "Gaussian", "gamma": 0.5}}`` is an instance of a registered class: a kernel, a solver, or a
  dataclass or NamedTuple with the decorator `storable`.

When a file is read, classes that are not registered are never looked up, and no tensor is used twice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit

from hkrr import kernels
from hkrr._base.linear_algebra import Array
from hkrr._base.resume_journal import RunRecord
from hkrr._storage.safetensors_format import Refusal
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.standardize import Moments
from hkrr.solvers import SOLVERS, Result, State

Arrays = dict[str, Array]
T = TypeVar("T")

_SETTINGS: tuple[Any, ...] = (*map(type, kernels.KERNELS.values()), *SOLVERS.values())
# The classes that a file may contain, by name: kernels and solvers (`_SETTINGS`), whose fields are plain values, and
# records of results, whose fields can be of any storable type. `storable` adds further classes.
_RECORDS: tuple[Any, ...] = (Result, State, RunRecord, Moments, ColumnTransform)
_OBJECTS: dict[str, Any] = {cls.__name__: cls for cls in (*_SETTINGS, *_RECORDS)}
_SPLITTERS: dict[str, Any] = {
    "KFold": (KFold, ("n_splits", "shuffle", "random_state")),
    "ShuffleSplit": (ShuffleSplit, ("n_splits", "test_size", "train_size", "random_state")),
}
_SCALARS = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
_NOT_FINITE = ("inf", "-inf", "nan")
# Lists of floats up to this length are stored in the JSON text, where they are readable. Longer lists of floats, and
# longer lists of arrays of one shape, are stored as one tensor.
_SHORT = 64
# Maximum number of characters in an array of strings. NumPy pads all strings to the length of the longest one, so a
# short forged list could become a huge array.
_MAX_CHARACTERS = 1 << 20


def storable(cls: type[T]) -> type[T]:
    """Class decorator that registers a dataclass or a NamedTuple under its name. Files can then contain its instances.

    If a later version adds a field to the class, the field needs a default value, because files of earlier versions do
    not contain it.
    """
    _OBJECTS[cls.__name__] = cls
    return cls


def encode(value: Any, name: str, arrays: Arrays) -> Any:
    """Return the JSON representation of a value, and add its arrays to `arrays` under names that start with `name`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic):
        return _encode_scalar(value, name)
    if type(value) is int:
        if not -(2**63) <= value < 2**63:
            raise Refusal(f"{name}={value!r} is too large for a file, in which integers have at most 64 bits")
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is np.ndarray:
        return _encode_array(value, name, arrays)
    if type(value) is list:
        return _encode_list(value, name, arrays)
    if type(value) is tuple:
        return {"tuple": [encode(each, f"{name}.{i}", arrays) for i, each in enumerate(value)]}
    if type(value) is range:
        return {"range": [value.start, value.stop, value.step]}
    if type(value) is dict:
        return _encode_dict(value, name, arrays)
    if _OBJECTS.get(type(value).__name__) is type(value):
        settings = {name: getattr(value, name) for name in _field_names(value)}
        return {"object": _named(type(value).__name__, settings, name, arrays)}
    if _SPLITTERS.get(type(value).__name__, (None,))[0] is type(value):
        settings = {field: getattr(value, field) for field in _SPLITTERS[type(value).__name__][1]}
        return {"splitter": _named(type(value).__name__, settings, name, arrays)}
    if isinstance(value, np.random.RandomState):
        return {"random_state": _encode_random_state(value, name, arrays)}
    if type(value).__module__ == "torch" and type(value).__name__ == "device":
        return str(value)  # estimators also accept the name of a device
    if isinstance(value, os.PathLike) and isinstance(os.fspath(value), str):
        return os.fspath(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise Refusal(f"{name} is a {kind}, but files can contain only plain values, arrays and hkrr objects")


def _field_names(value: Any) -> tuple[str, ...]:
    """Return the names of the constructor arguments of a dataclass or a NamedTuple."""
    if isinstance(value, tuple):
        return value._fields  # type: ignore[attr-defined, no-any-return]  # a registered tuple is a NamedTuple
    return tuple(field.name for field in fields(value) if field.init)


def _put(name: str, array: Array, arrays: Arrays) -> str:
    if name in arrays:
        raise Refusal(f"two of its arrays have the name {name!r}")
    arrays[name] = array
    return name


def _encode_scalar(value: Any, name: str) -> Any:
    if isinstance(value, np.bool_):
        return {"scalar": ["bool", bool(value)]}
    if value.dtype.name not in _SCALARS:
        raise Refusal(f"{name} is a number of type {value.dtype}, which cannot be stored; convert it to a float")
    number = value.item()
    return {"scalar": [value.dtype.name, encode(number, name, {}) if isinstance(number, float) else number]}


def _encode_array(value: Array, name: str, arrays: Arrays) -> Any:
    if value.dtype.kind == "U" and value.ndim == 1 and value.dtype.itemsize // 4 * len(value) <= _MAX_CHARACTERS:
        return {"texts": value.tolist()}
    return {"tensor": _put(name, value, arrays)}


def _encode_list(value: list[Any], name: str, arrays: Arrays) -> Any:
    for kind in (float, np.float64):
        if len(value) > _SHORT and all(type(each) is kind for each in value):
            return {"column": [_put(name, np.array(value, dtype=np.float64), arrays), kind.__name__]}
    if len(value) > _SHORT and all(type(each) is np.ndarray for each in value):
        first = value[0]
        if first.dtype.kind == "f" and all(each.dtype == first.dtype and each.shape == first.shape for each in value):
            return {"stack": _put(name, np.stack(value), arrays)}
    return [encode(each, f"{name}.{i}", arrays) for i, each in enumerate(value)]


def _encode_dict(value: dict[Any, Any], name: str, arrays: Arrays) -> Any:
    if all(isinstance(key, str) for key in value):
        return {"dict": [[str(key), encode(each, f"{name}.{key}", arrays)] for key, each in value.items()]}
    # The attribute cells_ of PiecewisePolynomial maps the number of each grid cell to an array of coefficients.
    if all(type(key) is np.int64 and type(row) is np.ndarray for key, row in value.items()):
        keys, rows = np.array(list(value)), np.stack(list(value.values()))
        return {"cells": [_put(f"{name}.keys", keys, arrays), _put(f"{name}.rows", rows, arrays)]}
    value = {key.item() if isinstance(key, np.generic) else key: each for key, each in value.items()}
    if all(type(key) in (bool, int, str) for key in value):  # for example class weights
        return {"pairs": [[key, encode(each, f"{name}.{key!r}", arrays)] for key, each in value.items()]}
    raise Refusal(f"{name} is a dict with keys that cannot be stored; use strings, integers or booleans as keys")


def _named(cls: str, settings: dict[str, Any], name: str, arrays: Arrays) -> dict[str, Any]:
    return {"class": cls, **{field: encode(value, f"{name}.{field}", arrays) for field, value in settings.items()}}


def _encode_random_state(value: np.random.RandomState, name: str, arrays: Arrays) -> dict[str, Any]:
    state: Any = value.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise Refusal(f"{name} is a RandomState of {state['bit_generator']}, which cannot be stored; use a seed")
    return {
        "key": _put(name, state["state"]["key"], arrays),
        "position": int(state["state"]["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }


def decode(value: Any, arrays: Arrays) -> Any:
    """Return the value that `encode` has converted to JSON.

    The arrays that the value uses are removed from `arrays`.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [decode(each, arrays) for each in value]
    if isinstance(value, dict) and len(value) == 1:
        ((tag, content),) = value.items()
        if tag in _DECODERS:
            return _DECODERS[tag](content, arrays)
        raise Refusal(f"it contains a value of unknown type {tag[:40]!r}; install a newer hkrr", remedied=True)
    raise Refusal("it contains an invalid value, so it is damaged or not an hkrr file")


def _take(name: Any, arrays: Arrays) -> Array:
    if not isinstance(name, str) or name not in arrays:
        raise Refusal("it refers to a missing tensor, or to the same tensor twice")
    return arrays.pop(name)


def _expect(valid: bool) -> None:
    if not valid:
        raise Refusal("it contains an invalid value, so it is damaged or not an hkrr file")


def _decode_float(content: Any, arrays: Arrays) -> float:
    _expect(isinstance(content, str) and content in _NOT_FINITE)
    return float(content)


def _decode_scalar(content: Any, arrays: Arrays) -> Any:
    _expect(isinstance(content, list) and len(content) == 2 and isinstance(content[0], str))
    kind, number = content[0], decode(content[1], arrays) if not isinstance(content[1], int) else content[1]
    if kind == "bool":
        _expect(isinstance(number, bool))
        return np.bool_(number)
    _expect(kind in _SCALARS and type(number) is (float if kind.startswith("float") else int))
    if not kind.startswith("float"):
        limits = np.iinfo(kind)
        _expect(limits.min <= number <= limits.max)
    elif math.isfinite(number):
        _expect(abs(number) <= float(np.finfo(kind).max))
    return np.dtype(kind).type(number)


def _decode_tuple(content: Any, arrays: Arrays) -> tuple[Any, ...]:
    _expect(isinstance(content, list))
    return tuple(decode(each, arrays) for each in content)


def _decode_range(content: Any, arrays: Arrays) -> range:
    _expect(isinstance(content, list) and len(content) == 3 and all(type(each) is int for each in content))
    _expect(content[2] != 0)
    return range(*content)


def _decode_dict(content: Any, arrays: Arrays) -> dict[str, Any]:
    _expect(isinstance(content, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in content))
    _expect(all(isinstance(key, str) for key, _ in content) and len({key for key, _ in content}) == len(content))
    return {key: decode(each, arrays) for key, each in content}


def _decode_pairs(content: Any, arrays: Arrays) -> dict[Any, Any]:
    _expect(isinstance(content, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in content))
    _expect(all(isinstance(key, bool | int | str) for key, _ in content) and len(dict(content)) == len(content))
    return {key: decode(each, arrays) for key, each in content}


def _decode_texts(content: Any, arrays: Arrays) -> Array:
    _expect(isinstance(content, list) and len(content) > 0 and all(isinstance(each, str) for each in content))
    _expect(len(content) * max(map(len, content)) <= _MAX_CHARACTERS)
    return np.array(content)


def _decode_column(content: Any, arrays: Arrays) -> list[Any]:
    _expect(isinstance(content, list) and len(content) == 2)
    column = _take(content[0], arrays)
    _expect(column.dtype == np.float64 and column.ndim == 1 and content[1] in ("float", "float64"))
    return column.tolist() if content[1] == "float" else list(column)


def _decode_stack(content: Any, arrays: Arrays) -> list[Array]:
    stack = _take(content, arrays)
    _expect(stack.ndim >= 1 and len(stack) > _SHORT)
    return [each.copy() for each in stack]


def _decode_cells(content: Any, arrays: Arrays) -> dict[Any, Array]:
    _expect(isinstance(content, list) and len(content) == 2)
    keys, rows = _take(content[0], arrays), _take(content[1], arrays)
    _expect(keys.dtype == np.int64 and keys.ndim == 1 and rows.ndim == 2 and len(keys) == len(rows))
    _expect(len(np.unique(keys)) == len(keys))
    return {key: row.copy() for key, row in zip(keys, rows, strict=True)}


def _decode_named(
    content: Any, arrays: Arrays, known: dict[str, Any], make: Callable[[str, dict[str, Any]], Any]
) -> Any:
    _expect(isinstance(content, dict) and isinstance(content.get("class"), str))
    name = content["class"]
    if name not in known:
        raise Refusal(f"it contains an object of unknown class {name[:40]!r}; install a newer hkrr", remedied=True)
    settings = {key: decode(each, arrays) for key, each in content.items() if key != "class"}
    try:
        return make(name, settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refusal(f"it contains an invalid {name} ({error})") from None


def _decode_object(content: Any, arrays: Arrays) -> Any:
    def make(name: str, settings: dict[str, Any]) -> Any:
        plain = (type(None), bool, int, float, str, np.generic)
        _expect(_OBJECTS[name] not in _SETTINGS or all(isinstance(each, plain) for each in settings.values()))
        return _OBJECTS[name](**settings)

    return _decode_named(content, arrays, _OBJECTS, make)


def _decode_splitter(content: Any, arrays: Arrays) -> Any:
    return _decode_named(content, arrays, _SPLITTERS, lambda name, settings: _SPLITTERS[name][0](**settings))


def _decode_random_state(content: Any, arrays: Arrays) -> np.random.RandomState:
    _expect(isinstance(content, dict) and set(content) == {"key", "position", "has_gauss", "gauss"})
    key, position, gauss = _take(content["key"], arrays), content["position"], content["gauss"]
    _expect(key.dtype == np.uint32 and key.shape == (624,))
    _expect(type(position) is int and 0 <= position <= 624 and type(gauss) is float and math.isfinite(gauss))
    _expect(type(content["has_gauss"]) is int and content["has_gauss"] in (0, 1))
    state = np.random.RandomState(0)
    state.set_state(("MT19937", key, position, content["has_gauss"], gauss))
    return state


def _decode_tensor(content: Any, arrays: Arrays) -> Array:
    return _take(content, arrays)


_DECODERS: dict[str, Callable[[Any, Arrays], Any]] = {
    "float": _decode_float,
    "scalar": _decode_scalar,
    "tuple": _decode_tuple,
    "range": _decode_range,
    "dict": _decode_dict,
    "pairs": _decode_pairs,
    "texts": _decode_texts,
    "tensor": _decode_tensor,
    "column": _decode_column,
    "stack": _decode_stack,
    "cells": _decode_cells,
    "object": _decode_object,
    "splitter": _decode_splitter,
    "random_state": _decode_random_state,
}
