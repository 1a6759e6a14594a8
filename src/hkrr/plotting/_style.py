"""What the pictures share: colours, axes, names that fit, and points that are not too many."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.utils import resample

from hkrr._arrays import Array
from hkrr._validation import check_installed, check_int

# Okabe and Ito's, which the colour-blind tell apart, less the black, which a dark background would swallow.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
CATEGORIES = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)
LEVELS, SIGNED = "viridis", "PuOr"
SIZE = (4.6, 3.5)  # inches: one column of a page
SMALL = 8  # points: of notes, ticks and legends
MOST_POINTS = 1_000
Coverage = float | None | Literal["auto"]
_LONGEST_NAME = 18


def axes(ax: Any, size: tuple[float, float] = SIZE, projection: str | None = None) -> Any:
    """Return the axes, or new ones in a figure of that size."""
    check_installed("matplotlib", "plot", "pictures")
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained", subplot_kw={"projection": projection})[1]


def ink() -> Any:
    """Return the colour that the style writes in."""
    import matplotlib as mpl

    return mpl.rcParams["text.color"]


def note(ax: Any, text: str) -> None:
    """Write a small line above the axes: what a reader must know of the picture."""
    ax.set_title(text, fontsize=SMALL, loc="left")


def legend(ax: Any, **options: Any) -> None:
    """Add a legend, small and see-through."""
    ax.legend(fontsize=SMALL, framealpha=0.8, **options)


def short(name: str) -> str:
    """Return a name that fits on an axis."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def regression_of(model: Any) -> Any:
    """Return the model, or, of a classifier, the regression on codes that its map began from."""
    return getattr(model, "regressor_", model)


def one_target(values: Any, target: int, name: str = "y") -> Array:
    """Return one column of targets, or the only one."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    if check_int("target", target, 0) >= values.shape[1]:
        raise ValueError(f"target={target} is none of the {values.shape[1]} targets of {name}: they count from 0")
    column: Array = values[:, target]
    return column


def some_rows(*arrays: Any, most: int = MOST_POINTS) -> tuple[Any, ...]:
    """Return the same rows of each array, all or so many of them, always the same ones."""
    if len(np.shape(arrays[0])) == 0 or np.shape(arrays[0])[0] <= most:
        return arrays
    drawn = resample(np.arange(np.shape(arrays[0])[0]), replace=False, n_samples=most, random_state=0)
    order = np.sort(drawn)
    return tuple(None if array is None else np.asarray(array)[order] for array in arrays)


def rows_shown(n_shown: int, n_rows: int) -> str:
    """Return how many rows there are in the picture."""
    return f"{n_rows:,} rows" if n_shown == n_rows else f"{n_shown:,} of {n_rows:,} rows"


def intervals(estimator: Any, X: Any, coverage: Coverage, target: int) -> Array | None:
    """Return the ends of the prediction intervals (n, 2), or None where the model has none."""
    if coverage is None or not hasattr(estimator, "predict_interval"):
        return None
    try:
        lower, upper = estimator.predict_interval(X, coverage=nominal(coverage))
    except ValueError:
        if coverage != "auto":
            raise
        return None  # of a model that was fitted, or saved, without them, or with too few rows
    return np.stack(
        [np.asarray(end, dtype=np.float64).reshape(len(end), -1)[:, target] for end in (lower, upper)], axis=1
    )


def nominal(coverage: Coverage) -> float | None:
    """Return the coverage that is meant."""
    return 0.9 if coverage == "auto" else coverage
