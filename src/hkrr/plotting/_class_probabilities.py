"""Plots of the class probabilities of a classifier over one or two directions, with the rows coloured by class.

Each class has its own colour and marker. Over two directions, the background is a mixture of the colours of the
classes, weighted by their probabilities. Lines mark where the most probable class changes.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification.labels import check_labels
from hkrr.plotting._style import CATEGORIES, SMALL, ink, legend, short

_MARKERS = "os^Dv*PX"
# Contour levels of the probability of the second of two classes. The contour at 0.5 is drawn separately, as the line
# where the most probable class changes.
_LEVELS = (0.1, 0.25, 0.75, 0.9)
# Opacity of the class colours in the background, from 0 (invisible) to 1.
_PALE = 0.45
# Height of the strip that shows the rows of one class, in units of the probability axis.
_STRIP = 0.07


class ClassifierLink(Protocol):
    """The attributes of a `LinkDisplay` that this module reads. `LinkDisplay` documents them."""

    grid: tuple[Array, ...]
    values: Array
    points: Array
    y: Array | None
    labels: tuple[str, ...]
    classes: Array | None


def class_index(y: Any, classes: Array) -> Array:
    """Return the index of each label of `y` in `classes`. Raise ValueError if a label is not in `classes`."""
    if np.ndim(y) != 1:
        raise ValueError(f"y must hold one label for each row, as a one-dimensional array; got {np.ndim(y)} dimensions")
    labels = check_labels(np.asarray(y))
    known = np.isin(labels, classes)
    if not np.all(known):
        raise ValueError(f"y has the label {labels[~known].tolist()[0]!r}, which is not in classes_; drop such rows")
    return np.searchsorted(classes, labels)


def draw_curves(ax: Any, display: ClassifierLink) -> tuple[list[Any], list[Any]]:
    """Draw the class probabilities over one direction, and return the lines and the points.

    With two classes, only the probability of the second class is drawn.
    """
    (z,) = display.grid
    names = _class_names(display)
    # The grid z is decreasing if the direction is a single column with a negative coefficient.
    order, K = np.argsort(z), len(names)
    lines = [
        ax.plot(z[order], display.values[order, k], color=_colour(k), lw=2, label=f"p({names[k]})")[0]
        for k in ([1] if K == 2 else range(K))
    ]
    points = []
    for k in range(K) if display.y is not None else ():
        rows = display.points[display.y == k, 0]
        # The rows of each class are drawn in a strip. With two classes, one strip is below 0 and one is above 1. With
        # more classes, the strips are stacked below 0. Small vertical offsets separate the rows within a strip.
        offset = _STRIP * (0.2 + 0.6 * (np.arange(len(rows)) * 0.618 % 1.0))
        height = 1.0 + offset if K == 2 and k == 1 else -offset - (0 if K == 2 else k) * _STRIP
        points.append(_scatter(ax, names[k], k, rows, height))
        if K > 2:
            points[-1].set_label("")  # the line of the class already has a legend entry
    if display.y is None:
        marks = {"color": ink(), "alpha": 0.5, "transform": ax.get_xaxis_transform()}
        points = ax.plot(display.points[:, 0], np.full(len(display.points), 0.01), "|", **marks)
    for end in (0.0, 1.0):
        ax.axhline(end, color=ink(), lw=0.5)
    ax.set(xlabel=display.labels[0], ylabel="probability")
    ax.set_yticks(np.linspace(0.0, 1.0, 6))
    ax.xaxis.label.set_size(SMALL + 1)
    legend(ax)
    return lines, points


def draw_regions(ax: Any, display: ClassifierLink, near: Array) -> tuple[Any, list[Any]]:
    """Draw the class probabilities over two directions, and return the background image and the points.

    `near` holds one number for each grid point: 1 close to the rows, and less at a larger distance from the nearest
    row. The background is fainter where `near` is smaller.
    """
    import matplotlib as mpl
    from matplotlib.colors import to_rgb

    first, second = display.grid
    names = _class_names(display)
    p, K = display.values, len(names)
    background = np.array(to_rgb(mpl.rcParams["axes.facecolor"]))
    mixed = background + _PALE * near[..., None] * (p @ np.array([to_rgb(_colour(k)) for k in range(K)]) - background)
    # `imshow` needs increasing coordinates, but the coordinates of the grid may be decreasing.
    rows, columns = (np.argsort(side) for side in display.grid)
    extent = [float(end) for side in display.grid for end in (side.min(), side.max())]
    image = ax.imshow(
        np.swapaxes(mixed[np.ix_(rows, columns)], 0, 1),
        origin="lower",
        extent=extent,
        aspect="auto",
        interpolation="bilinear",
    )
    if K == 2 and np.ptp(p[..., 1]) > 0:
        lines = ax.contour(first, second, p[..., 1].T, levels=_LEVELS, colors=[ink()], linewidths=0.5, alpha=0.6)
        ax.clabel(lines, fontsize=SMALL - 2)
    for k in range(K if K > 2 else 1):
        margin = p[..., k] - np.max(np.delete(p, k, axis=-1), axis=-1)
        # The boundary is not drawn far from all rows, where the probabilities are extrapolated.
        margin = np.ma.masked_array(margin, near <= np.min(near) + 0.1 if np.ptp(near) > 0 else False)
        if np.ma.min(margin) < 0 < np.ma.max(margin):
            ax.contour(first, second, margin.T, levels=[0.0], colors=[ink()], linewidths=1.2)
    if display.y is not None:
        points = [_scatter(ax, names[k], k, *display.points[display.y == k].T) for k in range(K)]
        legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(K, 6), columnspacing=1.0, handletextpad=0.2)
    else:
        points = [ax.scatter(*display.points.T, color="white", edgecolors="black", linewidths=0.3, s=6)]
    ax.set(xlabel=display.labels[0], ylabel=display.labels[1])
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_size(SMALL)
    return image, points


def _scatter(ax: Any, name: str, k: int, x: Array, y: Array) -> Any:
    look = {"color": _colour(k), "marker": _MARKERS[k % len(_MARKERS)], "edgecolors": "white", "linewidths": 0.3}
    return ax.scatter(x, y, s=16, label=name, **look)


def _colour(k: int) -> str:
    return CATEGORIES[k % len(CATEGORIES)]


def _class_names(display: ClassifierLink) -> list[str]:
    return [] if display.classes is None else [short(str(label)) for label in display.classes]
