"""What fitted attributes must be for a model to predict: kinds, shapes that agree with each other, finite numbers.

A check is a function of an attribute's name, its value and the sizes seen so far, and raises Refusal. Shapes are
written with letters, as ``floats("c", "D")``: the same letter is the same size wherever it stands in one model.
``"*t"`` is whatever axes are left, none or one: a single target has none.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from hkrr.kernels import Kernel
from hkrr.posterior import packed_length
from hkrr.records.format import Refusal
from hkrr.scaling import Moments
from hkrr.solvers import Result

Sizes = dict[str, tuple[int, ...]]
Check = Callable[[str, Any, Sizes], None]


def _bind(name: str, shape: tuple[int, ...], letters: tuple[str, ...], sizes: Sizes) -> None:
    rest = shape
    for letter in letters:
        n = len(rest) if letter.startswith("*") else 1
        part, rest = rest[:n], rest[n:]
        fits = len(part) == n and (n <= 1) and 0 not in part
        if not fits or sizes.setdefault(letter, part) != part:
            raise Refusal(f"{name} has the shape {shape}, which does not fit the rest of the model")
    if rest:
        raise Refusal(f"{name} has the shape {shape}, which does not fit the rest of the model")


def _finite(name: str, value: Any) -> None:
    if not np.all(np.isfinite(value)):
        raise Refusal(f"{name} holds NaN or infinity")


def floats(*letters: str, positive: bool = False) -> Check:
    """An array of finite floats of that shape."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray) or value.dtype not in (np.float64, np.float32):
            raise Refusal(f"{name} is no array of floats")
        _bind(name, value.shape, letters, sizes)
        _finite(name, value)
        if positive and not np.all(value > 0):
            raise Refusal(f"{name} is not positive")

    return check


def numeric(*letters: str, kinds: str = "fiub") -> Check:
    """An array of finite numbers of that shape, which may be whole or booleans, as targets may."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise Refusal(f"{name} is no array of such numbers")
        _bind(name, value.shape, letters, sizes)
        _finite(name, value)

    return check


def level(letters: str, *, at_least: float = -math.inf) -> Check:
    """One finite number, or an array of one for each target."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, float | np.floating) and not (
            isinstance(value, np.ndarray) and value.dtype.kind == "f"
        ):
            raise Refusal(f"{name} is no number, nor an array of them")
        _bind(name, np.shape(value), (letters,), sizes)
        _finite(name, value)
        if not np.all(value >= at_least):
            raise Refusal(f"{name} is below {at_least}")

    return check


def scores(name: str, value: Any, sizes: Sizes) -> None:
    """What intervals are made of: sorted, and not negative."""
    floats("scores", "*t")(name, value, sizes)
    if not np.all(value >= 0) or np.any(np.diff(value, axis=0) < 0):
        raise Refusal(f"{name} are negative, or not sorted")


def packed(name: str, value: Any, sizes: Sizes) -> None:
    """A lower triangular matrix of c rows, as a vector."""
    floats("packed")(name, value, sizes)
    if value.dtype != np.float32 or len(value) != packed_length(sizes["c"][0]):
        raise Refusal(f"{name} does not fit centers_")


def number(*, positive: bool = False) -> Check:
    """A number; finite where it must be positive, as other ones may say that something failed."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise Refusal(f"{name} is no number")
        if positive and not 0.0 < float(value) < math.inf:
            raise Refusal(f"{name} is not positive and finite")

    return check


def positive_or_none(name: str, value: Any, sizes: Sizes) -> None:
    """A positive finite number, or None."""
    if value is not None:
        number(positive=True)(name, value, sizes)


def classes(name: str, value: Any, sizes: Sizes) -> None:
    """Labels: at least two, different and sorted."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufU":
        raise Refusal(f"{name} is no array of labels")
    if value.dtype.kind == "f":
        _finite(name, value)
    if len(value) < 2 or not np.array_equal(np.unique(value), value):
        raise Refusal(f"{name} are not different, sorted labels")


def finite_number(name: str, value: Any, sizes: Sizes) -> None:
    """A finite float."""
    number()(name, value, sizes)
    _finite(name, float(value))


def whole(name: str, value: Any, sizes: Sizes) -> None:
    """A whole number that is not negative."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
        raise Refusal(f"{name} is no whole number")


def n_columns(name: str, value: Any, sizes: Sizes) -> None:
    """The number of columns, which is D."""
    whole(name, value, sizes)
    _bind(name, (int(value),), ("D",), sizes)


def names(name: str, value: Any, sizes: Sizes) -> None:
    """The names of the columns, as scikit-learn keeps them."""
    if not isinstance(value, np.ndarray) or value.dtype != object or not all(isinstance(each, str) for each in value):
        raise Refusal(f"{name} are no texts")
    _bind(name, value.shape, ("D",), sizes)


def flag(name: str, value: Any, sizes: Sizes) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise Refusal(f"{name} is neither true nor false")


def one_of(*choices: Any) -> Check:
    """One of these values."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise Refusal(f"{name} is none of {', '.join(map(repr, choices))}")

    return check


def kernel(name: str, value: Any, sizes: Sizes) -> None:
    """A kernel."""
    if not isinstance(value, Kernel):
        raise Refusal(f"{name} is no kernel")


def table(name: str, value: Any, sizes: Sizes) -> None:
    """Columns of equal lengths."""
    columns: list[Any] = list(value.values()) if isinstance(value, dict) else [None]
    if not all(isinstance(column, list) or (isinstance(column, np.ndarray) and column.ndim == 1) for column in columns):
        raise Refusal(f"{name} is no table")
    if len({len(column) for column in columns}) > 1:
        raise Refusal(f"{name} has columns of different lengths")


def result(name: str, value: Any, sizes: Sizes) -> None:
    """How a run of the solver ended."""
    if not isinstance(value, Result):
        raise Refusal(f"{name} is no Result")
    floats("d", "D")(f"{name}.B", value.B, sizes)
    floats("c", "columns of alpha")(f"{name}.alpha", value.alpha, sizes)
    for field in ("objective", "reg_lambda"):
        number()(f"{name}.{field}", getattr(value, field), sizes)
    whole(f"{name}.n_iter", value.n_iter, sizes)
    for field in ("reason", "message"):
        if not isinstance(getattr(value, field), str):
            raise Refusal(f"{name}.{field} is no text")
    table(f"{name}.history", value.history, sizes)
    for column in value.history.values():
        for each in column:
            number()(f"{name}.history", each, sizes)


def moments(name: str, value: Any, sizes: Sizes) -> None:
    """Means and scales of the columns, and the mean of one target."""
    if not isinstance(value, Moments):
        raise Refusal(f"{name} are no Moments")
    floats("D")(f"{name}.x_mean", value.x_mean, sizes)
    floats("D", positive=True)(f"{name}.x_scale", value.x_scale, sizes)
    numeric("D", kinds="b")(f"{name}.constant", value.constant, sizes)
    floats("one target")(f"{name}.y_mean", value.y_mean, sizes)


def record(cls: Any) -> Check:
    """A dataclass whose fields are what their annotations say: plain values, None, and tuples of them."""
    hints = get_type_hints(cls)

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if type(value) is not cls:
            raise Refusal(f"{name} is no {cls.__name__}")
        for each in fields(cls):
            if not _is_a(getattr(value, each.name), hints[each.name]):
                raise Refusal(f"{name}.{each.name} is no {each.type}")

    return check


_KINDS: dict[Any, Any] = {float: numbers.Real, int: numbers.Integral, bool: bool | np.bool_}


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; whole numbers are floats too, and truths are no numbers."""
    if isinstance(hint, UnionType):
        return any(_is_a(value, each) for each in get_args(hint))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if not isinstance(value, tuple):
            return False
        each_hint = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(each_hint) and all(map(_is_a, value, each_hint))
    if isinstance(value, bool | np.bool_) and hint is not bool:
        return False
    return isinstance(value, _KINDS.get(hint, hint))


def output_config(name: str, value: Any, sizes: Sizes) -> None:
    """What `set_output` was told."""
    if not isinstance(value, dict) or set(value) != {"transform"}:
        raise Refusal(f"{name} is none of scikit-learn's")
    one_of("default", "pandas", "polars", None)(name, value["transform"], sizes)
