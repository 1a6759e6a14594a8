"""Checks of the fitted attributes of saved models: types, consistent shapes, and finite numbers.

A check is a function with three arguments: the name of an attribute, its value, and a dict of the sizes found so far.
It raises Refusal if the value is invalid. Shapes are written with letters, as in ``floats("c", "D")``. A letter stands
for the same size in all attributes of a model: "c" for the number of centers, "D" for the number of columns of X, and
"d" for the number of components. ``"*t"`` stands for the axis of the targets, which is absent for a single target.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from hkrr._base.checks import check_choice
from hkrr._storage.safetensors_format import Refusal
from hkrr.estimators.fitted.posterior import packed_length
from hkrr.kernels import Kernel
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.standardize import Moments
from hkrr.solvers import Result
from hkrr.tables import TableClassifier, TableRegressor
from hkrr.tables.encoding import DAY_FIRST, MONTH_FIRST, Column, Encoder, HeldOutClassScores, HeldOutScores, Kind

Sizes = dict[str, tuple[int, ...]]
Check = Callable[[str, Any, Sizes], None]

# Names of sizes in error messages, by letter.
_SIZE_NAMES = {"c": "n_centers", "D": "n_features", "d": "n_components", "K": "n_classes", "*t": "n_targets"}


def _bind(name: str, shape: tuple[int, ...], letters: tuple[str, ...], sizes: Sizes) -> None:
    rest = shape
    for letter in letters:
        n = len(rest) if letter.startswith("*") else 1
        part, rest = rest[:n], rest[n:]
        fits = len(part) == n and (n <= 1) and 0 not in part
        if not fits or sizes.setdefault(letter, part) != part:
            raise _wrong_shape(name, shape, letters, sizes)
    if rest:
        raise _wrong_shape(name, shape, letters, sizes)


def _wrong_shape(name: str, shape: tuple[int, ...], letters: tuple[str, ...], sizes: Sizes) -> Refusal:
    """Return an error that states the required shape. Known sizes are given as numbers, and other sizes by name."""
    expected = [str(size) for letter in letters for size in sizes.get(letter, (_SIZE_NAMES.get(letter, letter),))]
    comma = "," if len(expected) == 1 else ""
    return Refusal(f"{name} has the shape {shape}, but must have the shape ({', '.join(expected)}{comma})")


def _finite(name: str, value: Any) -> None:
    if not np.all(np.isfinite(value)):
        raise Refusal(f"{name} contains NaN or infinity")


def floats(*letters: str, positive: bool = False) -> Check:
    """Return a check for an array of finite floats with the given shape.

    With ``positive=True`` all entries must be positive.
    """

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray) or value.dtype not in (np.float64, np.float32):
            raise Refusal(f"{name} is not an array of floats")
        _bind(name, value.shape, letters, sizes)
        _finite(name, value)
        if positive and not np.all(value > 0):
            raise Refusal(f"{name} is not positive")

    return check


def numeric(*letters: str, kinds: str = "fiub") -> Check:
    """Return a check for an array of finite numbers with the given shape.

    `kinds` lists the allowed kinds of NumPy dtypes: floats, integers, unsigned integers and booleans by default.
    """

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise Refusal(f"{name} is not an array of numbers of a valid type")
        _bind(name, value.shape, letters, sizes)
        _finite(name, value)

    return check


def float_per_target(letters: str, *, at_least: float = -math.inf) -> Check:
    """Return a check for one finite float, or an array with one finite float for each target.

    `letters` is the axis of the targets, "*t". `at_least` is the smallest allowed value.
    """

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, float | np.floating) and not (
            isinstance(value, np.ndarray) and value.dtype.kind == "f"
        ):
            raise Refusal(f"{name} is not a float or an array of floats")
        _bind(name, np.shape(value), (letters,), sizes)
        _finite(name, value)
        if not np.all(value >= at_least):
            raise Refusal(f"{name} is below {at_least}")

    return check


def linear_map(name: str, value: Any, sizes: Sizes) -> None:
    """Check a map: a matrix of d rows and D columns, or the vector of a diagonal map, for which d = D."""
    if np.ndim(value) == 1:
        floats("D")(name, value, sizes)
        floats("d")(name, value, sizes)
    else:
        floats("d", "D")(name, value, sizes)


def scores(name: str, value: Any, sizes: Sizes) -> None:
    """Check the conformal scores of prediction intervals, which must be sorted and non-negative."""
    floats("scores", "*t")(name, value, sizes)
    if not np.all(value >= 0) or np.any(np.diff(value, axis=0) < 0):
        raise Refusal(f"{name} contains negative or unsorted values")


def packed(name: str, value: Any, sizes: Sizes) -> None:
    """Check a lower triangular float32 matrix with one row per center, stored as a vector of its entries."""
    floats("packed")(name, value, sizes)
    if value.dtype != np.float32 or len(value) != packed_length(sizes["c"][0]):
        raise Refusal(
            f"{name} must have {packed_length(sizes['c'][0])} float32 entries, because there are {sizes['c'][0]} "
            f"centers; it has {len(value)} entries of type {value.dtype}"
        )


def number(*, positive: bool = False) -> Check:
    """Return a check for a number.

    With ``positive=True`` the number must be positive and finite. Otherwise infinity and NaN are allowed, because the
    score of a failed fit is not finite.
    """

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise Refusal(f"{name} is not a number")
        if positive and not 0.0 < float(value) < math.inf:
            raise Refusal(f"{name} is not positive and finite")

    return check


def number_between(low: float, high: float) -> Check:
    """Return a check for a finite number that is at least `low` and at most `high`."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        finite_number(name, value, sizes)
        if not low <= float(value) <= high:
            raise Refusal(f"{name} is not between {low:g} and {high:g}")

    return check


def or_none(check: Check) -> Check:
    """Return a check for a value that is None or passes the given check."""

    def check_unless_none(name: str, value: Any, sizes: Sizes) -> None:
        if value is not None:
            check(name, value, sizes)

    return check_unless_none


def classes(name: str, value: Any, sizes: Sizes) -> None:
    """Check class labels. There must be at least two, distinct and sorted. Their number is the size K."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufU":
        raise Refusal(f"{name} is not an array of labels")
    if value.dtype.kind == "f":
        _finite(name, value)
    if len(value) < 2 or not np.array_equal(np.unique(value), value):
        raise Refusal(f"{name} must contain at least two distinct labels in sorted order")
    _bind(name, value.shape, ("K",), sizes)


def finite_number(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not a finite number."""
    number()(name, value, sizes)
    _finite(name, float(value))


def non_negative_int(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not a non-negative integer."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
        raise Refusal(f"{name} is not a non-negative integer")


def n_columns(name: str, value: Any, sizes: Sizes) -> None:
    """Check the number of columns of X, and store it as the size with the letter D."""
    non_negative_int(name, value, sizes)
    _bind(name, (int(value),), ("D",), sizes)


def names(name: str, value: Any, sizes: Sizes) -> None:
    """Check the names of the columns of X, which must be an object array of strings, as in scikit-learn."""
    if not isinstance(value, np.ndarray) or value.dtype != object or not all(isinstance(each, str) for each in value):
        raise Refusal(f"{name} is not an array of strings")
    _bind(name, value.shape, ("D",), sizes)


def flag(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not a boolean."""
    if not isinstance(value, bool):
        raise Refusal(f"{name} is neither True nor False")


def one_of(*choices: Any) -> Check:
    """Return a check for a value that must equal one of the choices and have the same type."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise Refusal(f"{name} is not one of {', '.join(map(repr, choices))}")

    return check


def kernel(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not a kernel."""
    if not isinstance(value, Kernel):
        raise Refusal(f"{name} is not a kernel")


def table(name: str, value: Any, sizes: Sizes) -> None:
    """Check a table: a dict of columns, which must be lists or vectors of the same length."""
    columns: list[Any] = list(value.values()) if isinstance(value, dict) else [None]
    if not all(isinstance(column, list) or (isinstance(column, np.ndarray) and column.ndim == 1) for column in columns):
        raise Refusal(f"{name} is not a table")
    if len({len(column) for column in columns}) > 1:
        raise Refusal(f"{name} has columns of different lengths")


def result(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not the `Result` of a solver with valid arrays."""
    if not isinstance(value, Result):
        raise Refusal(f"{name} is not a Result")
    linear_map(f"{name}.B", value.B, sizes)
    floats("c", "columns of alpha")(f"{name}.alpha", value.alpha, sizes)
    for field in ("objective", "reg_lambda"):
        number()(f"{name}.{field}", getattr(value, field), sizes)
    non_negative_int(f"{name}.n_iter", value.n_iter, sizes)
    for field in ("reason", "message"):
        if not isinstance(getattr(value, field), str):
            raise Refusal(f"{name}.{field} is not a string")
    table(f"{name}.history", value.history, sizes)
    for column in value.history.values():
        for each in column:
            number()(f"{name}.history", each, sizes)


def moments(name: str, value: Any, sizes: Sizes) -> None:
    """Check `Moments`: means and scales of the columns, a mask of the constant columns, and the mean of one target."""
    if not isinstance(value, Moments):
        raise Refusal(f"{name} is not an object of class Moments")
    floats("D")(f"{name}.x_mean", value.x_mean, sizes)
    floats("D", positive=True)(f"{name}.x_scale", value.x_scale, sizes)
    numeric("D", kinds="b")(f"{name}.constant", value.constant, sizes)
    floats("one target")(f"{name}.y_mean", value.y_mean, sizes)


def column_transform(name: str, value: Any, sizes: Sizes) -> None:
    """Check `ColumnTransform`: centers and scales, and knots and values in increasing order for some columns."""
    if not isinstance(value, ColumnTransform):
        raise Refusal(f"{name} is not an object of class ColumnTransform")
    floats("D")(f"{name}.center", value.center, sizes)
    floats("D", positive=True)(f"{name}.scale", value.scale, sizes)
    numeric("ranked", kinds="i")(f"{name}.ranked", value.ranked, sizes)
    for each in ("knots", "values"):
        floats("ranked", "knots")(f"{name}.{each}", getattr(value, each), sizes)
    if np.any(np.diff(value.ranked, prepend=-1, append=len(value.center)) <= 0):
        raise Refusal(f"{name}.ranked does not contain increasing indices of columns")
    steps = np.diff(value.knots, axis=1), np.diff(value.values, axis=1)
    if value.knots.shape[1] < 2 or any(np.any(step < 0) for step in steps):
        raise Refusal(f"{name} is not monotone")


def record(cls: Any) -> Check:
    """Return a check for an instance of the dataclass `cls`, whose fields must have the annotated types.

    The annotations may contain plain types, None, unions and tuples.
    """
    hints = get_type_hints(cls)

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if type(value) is not cls:
            raise Refusal(f"{name} is not a {cls.__name__}")
        for each in fields(cls):
            if not _is_a(getattr(value, each.name), hints[each.name]):
                raise Refusal(f"{name}.{each.name} is not of type {each.type}")

    return check


# For each annotated type, the class whose instances are accepted. For example, integers and NumPy scalars are accepted
# for float.
_KINDS: dict[Any, Any] = {float: numbers.Real, int: numbers.Integral, bool: bool | np.bool_, Kind: str}


def _is_a(value: Any, hint: Any) -> bool:
    """Return whether a value is of the annotated type. Integers are valid as float. Booleans are valid only as bool."""
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
    """Check the output configuration that scikit-learn's method `set_output` stores in an estimator."""
    if not isinstance(value, dict) or set(value) != {"transform"}:
        raise Refusal(f"{name} is not a scikit-learn output configuration")
    one_of("default", "pandas", "polars", None)(name, value["transform"], sizes)


_column, _encoder, _scores, _class_scores = (
    record(cls) for cls in (Column, Encoder, HeldOutScores, HeldOutClassScores)
)


def encoder(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not an `Encoder` with valid columns."""
    _encoder(name, value, sizes)
    for column in value.columns:
        _column(f"{name}.columns", column, sizes)
        if column.kind not in get_args(Kind):
            raise Refusal(f"{name} has a column of unknown kind {column.kind[:40]!r}")
        if not math.isfinite(column.fill):
            raise Refusal(
                f"the fill value of the column {column.name[:40]!r} in {name} must be finite, got {column.fill}"
            )
        if column.kind == "truth" and len(column.values) != 2:
            raise Refusal(
                f"the boolean column {column.name[:40]!r} in {name} must have two values; it has {len(column.values)}"
            )
        if column.kind == "date" and column.values not in ((), (DAY_FIRST,), (MONTH_FIRST,)):
            raise Refusal(
                f"the order of the date column {column.name[:40]!r} in {name} must be empty, {DAY_FIRST!r} or "
                f"{MONTH_FIRST!r}"
            )


def text(name: str, value: Any, sizes: Sizes) -> None:
    """Raise Refusal if the value is not a string."""
    if not isinstance(value, str):
        raise Refusal(f"{name} is not a string")


def variances(name: str, value: Any, sizes: Sizes) -> None:
    """Check variances: a vector of finite, non-negative floats."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype != np.float64:
        raise Refusal(f"{name} is not a vector of floats")
    if not np.all(np.isfinite(value)) or np.any(value < 0):
        raise Refusal(f"{name} contains numbers that are negative or not finite")


def held_out(name: str, value: Any, sizes: Sizes) -> None:
    """Check `HeldOutScores`, whose lists must have one entry for each method."""
    _scores(name, value, sizes)
    if len({len(each) for each in (value.methods, value.r2, value.low, value.high)}) != 1:
        raise Refusal(
            f"the lists r2, low and high of {name} must have one entry for each of its {len(value.methods)} methods"
        )


def held_out_classes(name: str, value: Any, sizes: Sizes) -> None:
    """Check `HeldOutClassScores`, whose lists must have one entry for each method or for each class."""
    _class_scores(name, value, sizes)
    scores = [getattr(value, score + end) for score in ("accuracy", "log_loss") for end in ("", "_low", "_high")]
    if any(len(each) != len(value.methods) for each in scores):
        raise Refusal(f"the scores of {name} must have one entry for each of its {len(value.methods)} methods")
    if any(len(each) != len(value.classes) for each in (value.confusion, *value.confusion)):
        raise Refusal(f"the confusion matrix of {name} must have one row and column for each class")


def table_model(model: TableRegressor | TableClassifier) -> None:
    """Check the parameters of a table model, and that its model was fitted to the columns that its encoder gives."""
    check_choice("missing", model.missing, ("impute", "refuse"))
    check_choice("missing", model.encoder_.missing, ("impute", "refuse"))
    name = "regressor" if isinstance(model, TableRegressor) else "classifier"
    inner = getattr(model, name)
    if not isinstance(inner, bool | None) and not hasattr(inner, "get_params"):
        raise Refusal(f"{name} is not an estimator")
    names = [column.name for column in model.encoder_.columns]
    if names != list(getattr(model, "feature_names_in_", ())):
        raise Refusal("the columns of encoder_ must have the names in feature_names_in_, in the same order")
    if len(getattr(model, "missing_variances_", names)) != len(names):
        raise Refusal(
            f"missing_variances_ has {len(model.missing_variances_)} entries, but encoder_ has {len(names)} columns"
        )
    if len(model.encoder_.names_out) != model.model_.n_features_in_:
        raise Refusal(
            f"model_ was fitted with {model.model_.n_features_in_} columns, but encoder_ gives "
            f"{len(model.encoder_.names_out)} columns"
        )
