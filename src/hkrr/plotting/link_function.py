"""LinkDisplay: the function g over one or two of the directions, with the data."""

from __future__ import annotations

import copy
from typing import Any, Literal, Self

import numpy as np
from scipy.spatial import cKDTree

from hkrr._arrays import Array
from hkrr._validation import check_choice
from hkrr.plotting._classes import class_index, draw_curves, draw_places
from hkrr.plotting._latent import chosen_directions, direction_axis, rows_at, side_of
from hkrr.plotting._style import (
    BLUE,
    LEVELS,
    ORANGE,
    SMALL,
    Coverage,
    axes,
    intervals,
    legend,
    note,
    one_target,
    rows_shown,
    some_rows,
)
from hkrr.plotting._subject import subject_of

_CURVE, _SQUARE = 200, 60  # points of the curve, and along each side of the surface
_NEAR = 0.08  # of the range of the data: what is further from every row is faded
_N_LEVELS = 12


class LinkDisplay:
    """The learned function g: a curve over one direction, or a surface over two, with the data.

    Of a classifier it is the probabilities: a curve for each class (of two, for the second), or, over two directions,
    places in the mixed colours of the classes, with lines where the most probable class changes. All other
    directions are held at their medians. Where there are no data the surface is faded: the function is a guess there.
    A direction of a single column is drawn in the units of that column.

    Parameters
    ----------
    grid : tuple of one or two arrays
        Where g was evaluated.
    values : array (n,) or (n_first, n_second)
        Of a classifier with one more axis, of the classes.
    points : array (n_rows, 1 or 2)
        The rows, in the same coordinates.
    y : array (n_rows,) or None
        Of a classifier: which class each is, from 0.
    labels : tuple of str
    band : array (n, 2) or None
        Ends of the prediction intervals along the curve.
    said : str
        What the picture leaves out.
    n_rows : int or None
        How many rows there were, where `points` are some of them.
    classes : array (n_classes,) or None
        The labels of a classifier.

    Attributes
    ----------
    line_ : matplotlib Line2D, of a classifier a list of them, or None
        The curve.
    surface_ : matplotlib QuadContourSet, Poly3DCollection, AxesImage or None
    scatter_ : matplotlib artist, of a classifier a list of them
        The data.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import LinkDisplay
    >>> data = make_mim_sines(200, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelRidge(1, random_state=0).fit(data.X, data.y)
    >>> LinkDisplay.from_estimator(model, data.X, data.y).values.shape
    (200,)
    """

    line_: Any
    surface_: Any
    scatter_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        *,
        grid: tuple[Array, ...],
        values: Array,
        points: Array,
        y: Array | None,
        labels: tuple[str, ...],
        band: Array | None = None,
        said: str = "",
        n_rows: int | None = None,
        classes: Array | None = None,
    ) -> None:
        self.grid, self.values, self.points, self.y, self.labels = grid, values, points, y, labels
        self.band, self.said, self.classes = band, said, classes
        self.n_rows = len(points) if n_rows is None else n_rows

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        directions: tuple[int, ...] | None = None,
        target: int = 0,
        coverage: Coverage = "auto",
        kind: Literal["contour", "surface"] = "contour",
        ax: Any = None,
    ) -> Self:
        """Draw the function of a fitted model, with rows of data.

        Parameters
        ----------
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier
            Or a `TableRegressor`, a Pipeline or a GridSearchCV around one.
        X : array or data frame (n_samples, n_features)
            1,000 of its rows are drawn at most.
        y : array (n_samples,) or (n_samples, n_targets), or None, default=None
            None: predictions, along a curve; nothing, on a surface. Of a classifier: labels.
        directions : tuple of one or two int, or None, default=None
            Which directions, counted from 0. None: the one there is, or the two that move predictions most.
        target : int, default=0
            Which target, where a regressor has several.
        coverage : float, "auto" or None, default="auto"
            Of the band about a curve, by ``predict_interval``; "auto": 0.9 where the model can tell; None: no band.
        kind : {"contour", "surface"}, default="contour"
            Of two directions: lines of equal value, or a surface in space, of a regressor.
        ax : matplotlib Axes or None, default=None
            None: of a new figure. A surface needs axes with ``projection="3d"``.
        """
        subject = subject_of(estimator)
        model = subject.model
        latent = np.asarray(model.transform(subject.rows(X)), dtype=np.float64)
        classes = getattr(model, "classes_", None)
        if classes is not None and (target != 0 or coverage not in ("auto", None) or kind != "contour"):
            raise ValueError("target, coverage and kind are for regressors: leave them out for a classifier")
        if classes is not None and y is not None:
            Y = class_index(y, classes)
        else:
            Y = None if y is None else one_target(y, target)
        if Y is not None and len(Y) != len(latent):
            raise ValueError(f"y has {len(Y)} entries and X has {len(latent)} rows: give one entry for each row")
        chosen = chosen_directions(model, latent, directions)
        unit, labels = zip(*(direction_axis(model, subject.names, k) for k in chosen), strict=True)
        shown, Y = some_rows(latent[:, chosen], Y)
        sides = [side_of(latent[:, k], _CURVE if len(chosen) == 1 else _SQUARE) for k in chosen]
        Z = np.tile(np.median(latent, axis=0), (int(np.prod([len(side) for side in sides])), 1))
        Z[:, chosen] = np.column_stack([part.ravel() for part in np.meshgrid(*sides, indexing="ij")])
        rows = rows_at(model, Z)
        nameless = copy.copy(model)  # these rows are arrays, whatever X is
        vars(nameless).pop("feature_names_in_", None)
        if classes is not None:
            values = nameless.predict_proba(rows)
        else:
            values = one_target(nameless.predict(rows), target, "the model")
        band = intervals(nameless, rows, coverage, target) if len(chosen) == 1 else None
        held = latent.shape[1] - len(chosen)
        own_axes = bool(np.all(np.count_nonzero(model.components_, axis=1) <= 1))
        kind_of_axis = "column" if own_axes else "direction"
        display = cls(
            grid=tuple(side / u for side, u in zip(sides, unit, strict=True)),
            values=values.reshape(*(len(side) for side in sides), *values.shape[1:]),
            points=shown / np.array(unit),
            y=Y,
            labels=labels,
            band=band,
            said="" if held == 0 else f"{held} other {kind_of_axis}{'s' if held > 1 else ''} held at the median",
            n_rows=len(latent),
            classes=classes,
        )
        return display.plot(kind=kind, ax=ax)

    def plot(self, *, kind: Literal["contour", "surface"] = "contour", ax: Any = None) -> Self:
        """Draw; see `from_estimator`."""
        check_choice("kind", kind, ("contour", "surface"))
        in_space = kind == "surface" and len(self.grid) == 2
        if in_space and ax is not None and not hasattr(ax, "plot_surface"):
            raise ValueError(
                "ax must have projection='3d' for kind='surface': plt.subplots(subplot_kw={...}) makes one"
            )
        ax = self.ax_ = axes(ax, projection="3d" if in_space else None)
        self.figure_ = ax.figure
        self.line_ = self.surface_ = self.scatter_ = None
        if self.classes is not None and len(self.grid) == 1:
            self.line_, self.scatter_ = draw_curves(ax, self)
        elif self.classes is not None:
            self.surface_, self.scatter_ = draw_places(ax, self, np.clip(2.0 - self._distances(), 0.2, 1.0))
        elif len(self.grid) == 1:
            self._draw_curve(ax)
        elif in_space:
            self._draw_surface(ax)
        else:
            self._draw_contour(ax)
        rows = "" if self.n_rows == len(self.points) else rows_shown(len(self.points), self.n_rows)
        said = "; ".join(part for part in (self.said, rows) if part)
        above = ax.get_legend() if self.classes is not None and len(self.grid) == 2 else None
        if said and above is not None:
            above.set_title(said, {"size": SMALL})
        elif said:
            note(ax, said)
        return self

    def _draw_curve(self, ax: Any) -> None:
        (z,) = self.grid
        order = np.argsort(z)  # in the units of a column it may run backwards
        if self.y is not None:
            self.scatter_ = ax.scatter(self.points[:, 0], self.y, s=9, color=ORANGE, alpha=0.6, lw=0, label="data")
        if self.band is not None:
            low, high = self.band[order].T
            ax.fill_between(z[order], low, high, color=BLUE, alpha=0.2, lw=0, label="prediction interval")
        self.line_ = ax.plot(z[order], self.values[order], color=BLUE, lw=2, label="g")[0]
        if self.y is None:
            self.scatter_ = ax.plot(
                self.points[:, 0],
                np.full(len(self.points), 0.01),
                "|",
                color=ORANGE,
                transform=ax.get_xaxis_transform(),
            )[0]
        ax.set(xlabel=self.labels[0], ylabel="y")
        ax.xaxis.label.set_size(SMALL + 1)
        legend(ax)

    def _limits(self) -> tuple[float, float]:
        """Return what the colours range over: the function where there are data, and nearly all of the data."""
        near = self.values[self._distances() <= 1.0]
        parts = [near if near.size else self.values.ravel()]
        if self.y is not None:
            parts.append(np.percentile(self.y, [2, 98]))
        low, high = (float(end(np.concatenate(parts))) for end in (np.min, np.max))
        return (low, high) if high - low > 1e-9 * max(abs(low), abs(high)) else (low - 0.5, high + 0.5)

    def _distances(self) -> Array:
        """Return how far the points of the grid are from the nearest row, in units of what is near."""
        width = [float(np.ptp(side)) or 1.0 for side in self.grid]
        places = np.stack(np.meshgrid(*self.grid, indexing="ij"), axis=-1) / width
        tree = cKDTree(self.points / width)
        # Few rows are further apart: what lies between them is still among them.
        neighbours = tree.query(self.points / width, k=[min(2, len(self.points))])[0]
        apart = float(np.quantile(neighbours, 0.9))
        distances: Array = tree.query(places)[0]
        return distances / max(_NEAR, 2.0 * apart)

    def _draw_contour(self, ax: Any) -> None:
        import matplotlib as mpl
        from matplotlib.ticker import MaxNLocator

        low, high = self._limits()
        levels = MaxNLocator(_N_LEVELS).tick_values(low, high)
        options = {"vmin": low, "vmax": high, "cmap": LEVELS}
        values = self.values.T
        self.surface_ = ax.contourf(*self.grid, values, levels=levels, extend="both", **options)
        far = self._distances().T
        if np.any(far > 1.0):
            ground = mpl.rcParams["axes.facecolor"]
            ax.contourf(*self.grid, far, levels=[1.0, 2.0 * float(np.max(far))], colors=[ground], alpha=0.8)
        edges = {"edgecolors": "white", "linewidths": 0.3, "s": 11}
        if self.y is not None:
            self.scatter_ = ax.scatter(*self.points.T, c=self.y, **options, **edges)
        else:
            self.scatter_ = ax.scatter(*self.points.T, color="white", edgecolors="black", linewidths=0.3, s=6)
        bar = ax.figure.colorbar(self.surface_, ax=ax)
        bar.set_label("g (points: y)" if self.y is not None else "g", fontsize=SMALL)
        bar.ax.tick_params(labelsize=SMALL)
        ax.set(xlabel=self.labels[0], ylabel=self.labels[1])
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set_size(SMALL)

    def _draw_surface(self, ax: Any) -> None:
        low, high = self._limits()
        options = {"vmin": low, "vmax": high, "cmap": LEVELS}
        first, second = np.meshgrid(*self.grid, indexing="ij")
        values = np.where(self._distances() > 1.0, np.nan, self.values)
        self.surface_ = ax.plot_surface(first, second, values, alpha=0.75, lw=0, rstride=1, cstride=1, **options)
        if self.y is not None:
            self.scatter_ = ax.scatter(*self.points.T, self.y, c=self.y, s=6, depthshade=False, **options)
        # What a direction is made of would not fit along a side.
        first_lines = (label.split("\n")[0] for label in self.labels)
        ax.set(**dict(zip(("xlabel", "ylabel"), first_lines, strict=True)), zlabel="y")
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.label.set_size(SMALL - 1)
            axis.set_tick_params(labelsize=SMALL - 1, pad=-2)
        ax.set_box_aspect(None, zoom=0.85)
