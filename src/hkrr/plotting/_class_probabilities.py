"""The link of a classifier: probabilities of the classes over one direction or two, with rows coloured by their class.

A class has a colour and a marker of its own. Over two directions every place has the colours of the classes mixed by
their probabilities, and lines go where the most probable class changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.classification.classes import labels_of
from hkrr.plotting._style import CATEGORIES, SMALL, ink, legend, short

_MARKERS = "os^Dv*PX"
_LEVELS = (0.1, 0.25, 0.75, 0.9)  # of the probability of the second of two classes; 0.5 is where the class changes
_PALE = 0.45  # how far the colours of places are from those of the rows, on the way to the ground
_STRIP = 0.07  # of the height, for the rows of a class


def class_index(y: Any, classes: Array) -> Array:
    """Return which class each label is, or raise where one is none of them."""
    if np.ndim(y) != 1:
        raise ValueError(f"y must be labels, one for each row; got an array of {np.ndim(y)} axes")
    labels = labels_of(np.asarray(y))
    known = np.isin(labels, classes)
    if not np.all(known):
        raise ValueError(f"y has the label {labels[~known].tolist()[0]!r}, which is none of the model's classes_")
    return np.searchsorted(classes, labels)


def draw_curves(ax: Any, display: Any) -> tuple[list[Any], list[Any]]:
    """Draw the probabilities over one direction; return the lines and the points. Two classes need one line."""
    (z,) = display.grid
    order, K = np.argsort(z), len(display.classes)  # in the units of a column it may run backwards
    lines = [
        ax.plot(z[order], display.values[order, k], color=_colour(k), lw=2, label=f"p({_name(display, k)})")[0]
        for k in ([1] if K == 2 else range(K))
    ]
    points = []
    for k in range(K) if display.y is not None else ():
        rows = display.points[display.y == k, 0]
        # Rows of a class lie in a strip: of two, beside 0 and 1; of more, under each other. Some are lifted a little.
        lifted = _STRIP * (0.2 + 0.6 * (np.arange(len(rows)) * 0.618 % 1.0))
        at = 1.0 + lifted if K == 2 and k == 1 else -lifted - (0 if K == 2 else k) * _STRIP
        points.append(_scatter(ax, display, k, rows, at))
        if K > 2:
            points[-1].set_label("")  # the line of its colour says it
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


def draw_places(ax: Any, display: Any, near: Array) -> tuple[Any, list[Any]]:
    """Draw the probabilities over two directions; `near` is 1 among the rows, and less the further from them."""
    import matplotlib as mpl
    from matplotlib.colors import to_rgb

    first, second = display.grid
    p, K = display.values, len(display.classes)
    ground = np.array(to_rgb(mpl.rcParams["axes.facecolor"]))
    mixed = ground + _PALE * near[..., None] * (p @ np.array([to_rgb(_colour(k)) for k in range(K)]) - ground)
    rows, columns = (np.argsort(side) for side in display.grid)  # a side may run backwards
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
        ahead = p[..., k] - np.max(np.delete(p, k, axis=-1), axis=-1)
        ahead = np.ma.masked_array(ahead, near <= np.min(near) + 0.1 if np.ptp(near) > 0 else False)  # a guess there
        if np.ma.min(ahead) < 0 < np.ma.max(ahead):
            ax.contour(first, second, ahead.T, levels=[0.0], colors=[ink()], linewidths=1.2)
    if display.y is not None:
        points = [_scatter(ax, display, k, *display.points[display.y == k].T) for k in range(K)]
        legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(K, 6), columnspacing=1.0, handletextpad=0.2)
    else:
        points = [ax.scatter(*display.points.T, color="white", edgecolors="black", linewidths=0.3, s=6)]
    ax.set(xlabel=display.labels[0], ylabel=display.labels[1])
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_size(SMALL)
    return image, points


def _scatter(ax: Any, display: Any, k: int, x: Array, y: Array) -> Any:
    look = {"color": _colour(k), "marker": _MARKERS[k % len(_MARKERS)], "edgecolors": "white", "linewidths": 0.3}
    return ax.scatter(x, y, s=16, label=_name(display, k), **look)


def _colour(k: int) -> str:
    return CATEGORIES[k % len(CATEGORIES)]


def _name(display: Any, k: int) -> str:
    return short(str(display.classes[k]))
