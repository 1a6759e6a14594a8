"""LinkDisplay: the learned function g over one or two directions, with the data."""

from __future__ import annotations

import copy
from typing import Any, Literal, Self

import numpy as np
from scipy.spatial import cKDTree

from hkrr._base.checks import check_choice
from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification.labels import check_labels
from hkrr.estimators.fitted.importance import has_single_columns
from hkrr.plotting._latent_axes import chosen_directions, direction_axis, grid_side, rows_at
from hkrr.plotting._model_in_pipeline import unwrap
from hkrr.plotting._plot_data import Coverage, intervals, one_target, rows_shown, sample_rows
from hkrr.plotting._style import BLUE, CATEGORIES, ORANGE, SEQUENTIAL, SMALL, axes, ink, legend, note, short

# Number of grid points of a curve, and along each side of a surface.
_N_CURVE, _N_SIDE = 200, 60
# A grid point is far from the data if its distance to the nearest row exceeds this fraction of the range of the grid.
# The threshold is larger if the rows are far apart; see `LinkDisplay._distances`.
_NEAR = 0.08
# Maximum number of contour bands.
_N_LEVELS = 12
# Markers of the classes.
_MARKERS = "os^Dv*PX"
# Contour levels of the probability of the second of two classes. The contour at 0.5 is drawn separately, as the line
# where the most probable class changes.
_LEVELS = (0.1, 0.25, 0.75, 0.9)
# Opacity of the class colours in the background, from 0 (invisible) to 1.
_PALE = 0.45
# Height of the strip that shows the rows of one class, in units of the probability axis.
_STRIP = 0.07


class LinkDisplay:
    """The learned function g and the data, as a curve over one direction or a surface over two directions.

    For a classifier, the plot shows class probabilities. Over one direction, each class has a curve, except that with
    two classes, only the curve of the second class is drawn. Over two directions, the background is a mixture of the
    colours of the classes, and lines mark where the most probable class changes.

    Directions that are not drawn are fixed at their medians. Far from the data, the function is extrapolated. There,
    contours and backgrounds are faded, and three-dimensional surfaces have holes. If a direction uses a single column,
    its axis has the units of that column.

    Parameters
    ----------
    grid : tuple of one or two arrays
        Coordinates of the grid on which g is evaluated, one array for each direction.
    values : array (n,) or (n_first, n_second)
        Values of g on the grid. For a classifier, class probabilities on the grid, with an additional last axis of
        length n_classes.
    points : array (n_rows, 1 or 2)
        Coordinates of the rows.
    y : array (n_rows,) or None
        Targets of the rows. For a classifier, the index of the class of each row.
    labels : tuple of str
        Labels of the axes.
    band : array (n, 2) or None
        Bounds of the prediction intervals along the curve.
    said : str
        Note to write above the axes.
    n_rows : int or None
        Number of rows before sampling. None means that `points` holds all rows.
    classes : array (n_classes,) or None
        Class labels of a classifier.

    Attributes
    ----------
    line_ : matplotlib Line2D, list of Line2D, or None
        The curve, or the list of curves of a classifier. None over two directions.
    surface_ : matplotlib QuadContourSet, Poly3DCollection, AxesImage or None
        The surface over two directions. None over one direction.
    scatter_ : matplotlib artist, list of artists, or None
        The points of the data, as a list for a classifier. None for a three-dimensional surface without `y`.
    ax_ : matplotlib Axes
        The axes of the plot.
    figure_ : matplotlib Figure
        The figure that holds the axes.

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
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble or HyperKernelClassifier
            The model, or a `TableRegressor`, a Pipeline or a GridSearchCV that contains such a model. For an ensemble,
            the function of its first member is drawn. For a classifier with several members, the probabilities are
            those of a classifier whose only member is the first one, with the weights of all members.
        X : array or data frame (n_samples, n_features)
            Rows of data. At most 1,000 of them are drawn.
        y : array (n_samples,) or (n_samples, n_targets), or None, default=None
            Targets of the rows, or class labels for a classifier. If None, only the positions of the rows are drawn;
            a three-dimensional surface then shows no rows.
        directions : tuple of one or two int, or None, default=None
            Directions to draw, counted from 0. None draws the two directions that change the predictions most, or the
            only direction if there is just one.
        target : int, default=0
            Index of the target to draw if the regressor has several targets.
        coverage : float, "auto" or None, default="auto"
            Coverage of the prediction intervals. They are drawn as a band around a curve over one direction. "auto"
            means 0.9, or no band if the model has no intervals. None means no band.
        kind : {"contour", "surface"}, default="contour"
            How to draw a regressor over two directions: filled contours or a three-dimensional surface.
        ax : matplotlib Axes or None, default=None
            Axes to draw into. If None, a new figure is created. A surface needs axes with ``projection="3d"``.

        Returns
        -------
        LinkDisplay
        """
        found = unwrap(estimator)
        model, predictor = found.with_map, found.with_link
        latent = np.asarray(predictor.transform(found.transform_rows(X)), dtype=np.float64)
        classes = getattr(predictor, "classes_", None)
        if classes is not None and (target != 0 or coverage not in ("auto", None) or kind != "contour"):
            raise ValueError("target, coverage and kind apply only to regressors; omit them for a classifier")
        if classes is not None and y is not None:
            Y = _class_index(y, classes)
        else:
            Y = None if y is None else one_target(y, target)
        if Y is not None and len(Y) != len(latent):
            raise ValueError(f"y has {len(Y)} entries, but X has {len(latent)} rows; pass one entry per row")
        chosen = chosen_directions(model, latent, directions)
        unit, labels = zip(*(direction_axis(model, found.names, k) for k in chosen), strict=True)
        shown, Y = sample_rows(latent[:, chosen], Y)
        sides = [grid_side(latent[:, k], _N_CURVE if len(chosen) == 1 else _N_SIDE) for k in chosen]
        Z = np.tile(np.median(latent, axis=0), (int(np.prod([len(side) for side in sides])), 1))
        Z[:, chosen] = np.column_stack([part.ravel() for part in np.meshgrid(*sides, indexing="ij")])
        rows = rows_at(model, Z)
        # The rows have no column names. scikit-learn warns about such rows if the model has column names, so a copy of
        # the model without column names is used.
        nameless: Any = copy.copy(predictor)
        vars(nameless).pop("feature_names_in_", None)
        if classes is not None:
            values = nameless.predict_proba(rows)
        else:
            values = one_target(nameless.predict(rows), target, "the model")
        band = intervals(nameless, rows, coverage, target) if len(chosen) == 1 else None
        n_fixed = latent.shape[1] - len(chosen)
        axis_name = "column" if has_single_columns(model) else "direction"
        fixed = f"1 other {axis_name} fixed at its median" if n_fixed == 1 else ""
        if n_fixed > 1:
            fixed = f"{n_fixed} other {axis_name}s fixed at their medians"
        display = cls(
            grid=tuple(side / u for side, u in zip(sides, unit, strict=True)),
            values=values.reshape(*(len(side) for side in sides), *values.shape[1:]),
            points=shown / np.array(unit),
            y=Y,
            labels=labels,
            band=band,
            said="; ".join(part for part in (found.member, fixed) if part),
            n_rows=len(latent),
            classes=classes,
        )
        return display.plot(kind=kind, ax=ax)

    def plot(self, *, kind: Literal["contour", "surface"] = "contour", ax: Any = None) -> Self:
        """Draw the function and the data; see `from_estimator` for the parameters."""
        check_choice("kind", kind, ("contour", "surface"))
        in_space = kind == "surface" and len(self.grid) == 2
        if in_space and ax is not None and not hasattr(ax, "plot_surface"):
            raise ValueError(
                "ax must have projection='3d' for kind='surface'; "
                "create it with plt.subplots(subplot_kw={'projection': '3d'})"
            )
        ax = self.ax_ = axes(ax, projection="3d" if in_space else None)
        self.figure_ = ax.figure
        self.line_ = self.surface_ = self.scatter_ = None
        if self.classes is not None and len(self.grid) == 1:
            self._draw_class_curves(ax)
        elif self.classes is not None:
            self._draw_class_regions(ax)
        elif len(self.grid) == 1:
            self._draw_curve(ax)
        elif in_space:
            self._draw_surface(ax)
        else:
            self._draw_contour(ax)
        rows = "" if self.n_rows == len(self.points) else rows_shown(len(self.points), self.n_rows)
        text = "; ".join(part for part in (self.said, rows) if part)
        above = ax.get_legend() if self.classes is not None and len(self.grid) == 2 else None
        if text and above is not None:
            above.set_title(text, {"size": SMALL})
        elif text:
            note(ax, text)
        return self

    def _draw_curve(self, ax: Any) -> None:
        (z,) = self.grid
        order = np.argsort(z)  # z is decreasing if the direction is a single column with a negative coefficient
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
        """Return the colour range, which covers the values of g near the data and the middle 96% of the targets."""
        near = self.values[self._distances() <= 1.0]
        parts = [near if near.size else self.values.ravel()]
        if self.y is not None:
            parts.append(np.percentile(self.y, [2, 98]))
        low, high = (float(end(np.concatenate(parts))) for end in (np.min, np.max))
        return (low, high) if high - low > 1e-9 * max(abs(low), abs(high)) else (low - 0.5, high + 0.5)

    def _distances(self) -> Array:
        """Return the distance from each grid point to the nearest row, divided by a threshold.

        Grid points with a result above 1 are far from the data.
        """
        width = [float(np.ptp(side)) or 1.0 for side in self.grid]
        places = np.stack(np.meshgrid(*self.grid, indexing="ij"), axis=-1) / width
        tree = cKDTree(self.points / width)
        # If the rows are far apart, the threshold is larger: twice the 90% quantile of the distances between a row and
        # its nearest neighbour.
        neighbours = tree.query(self.points / width, k=[min(2, len(self.points))])[0]
        apart = float(np.quantile(neighbours, 0.9))
        distances: Array = tree.query(places)[0]
        return distances / max(_NEAR, 2.0 * apart)

    def _draw_contour(self, ax: Any) -> None:
        import matplotlib as mpl
        from matplotlib.ticker import MaxNLocator

        low, high = self._limits()
        levels = MaxNLocator(_N_LEVELS).tick_values(low, high)
        options = {"vmin": low, "vmax": high, "cmap": SEQUENTIAL}
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
        options = {"vmin": low, "vmax": high, "cmap": SEQUENTIAL}
        first, second = np.meshgrid(*self.grid, indexing="ij")
        values = np.where(self._distances() > 1.0, np.nan, self.values)
        self.surface_ = ax.plot_surface(first, second, values, alpha=0.75, lw=0, rstride=1, cstride=1, **options)
        if self.y is not None:
            self.scatter_ = ax.scatter(*self.points.T, self.y, c=self.y, s=6, depthshade=False, **options)
        # The full label of a direction does not fit along the axis. Only its first line is used, the number of the
        # direction.
        first_lines = (label.split("\n")[0] for label in self.labels)
        ax.set(**dict(zip(("xlabel", "ylabel"), first_lines, strict=True)), zlabel="y")
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.label.set_size(SMALL - 1)
            axis.set_tick_params(labelsize=SMALL - 1, pad=-2)
        ax.set_box_aspect(None, zoom=0.85)

    def _draw_class_curves(self, ax: Any) -> None:
        """Draw the class probabilities over one direction. With two classes, only that of the second class is drawn."""
        (z,) = self.grid
        names = self._class_names()
        # The grid z is decreasing if the direction is a single column with a negative coefficient.
        order, K = np.argsort(z), len(names)
        self.line_ = [
            ax.plot(z[order], self.values[order, k], color=_colour(k), lw=2, label=f"p({names[k]})")[0]
            for k in ([1] if K == 2 else range(K))
        ]
        points = []
        for k in range(K) if self.y is not None else ():
            rows = self.points[self.y == k, 0]
            # The rows of each class are drawn in a strip. With two classes, one strip is below 0 and one is above 1.
            # With more classes, the strips are stacked below 0. Small vertical offsets separate the rows within a
            # strip.
            offset = _STRIP * (0.2 + 0.6 * (np.arange(len(rows)) * 0.618 % 1.0))
            height = 1.0 + offset if K == 2 and k == 1 else -offset - (0 if K == 2 else k) * _STRIP
            points.append(_scatter(ax, names[k], k, rows, height))
            if K > 2:
                points[-1].set_label("")  # the line of the class already has a legend entry
        if self.y is None:
            marks = {"color": ink(), "alpha": 0.5, "transform": ax.get_xaxis_transform()}
            points = ax.plot(self.points[:, 0], np.full(len(self.points), 0.01), "|", **marks)
        self.scatter_ = points
        for end in (0.0, 1.0):
            ax.axhline(end, color=ink(), lw=0.5)
        ax.set(xlabel=self.labels[0], ylabel="probability")
        ax.set_yticks(np.linspace(0.0, 1.0, 6))
        ax.xaxis.label.set_size(SMALL + 1)
        legend(ax)

    def _draw_class_regions(self, ax: Any) -> None:
        """Draw the class probabilities over two directions, with a fainter background far from the rows."""
        import matplotlib as mpl
        from matplotlib.colors import to_rgb

        first, second = self.grid
        names = self._class_names()
        p, K = self.values, len(names)
        # 1 at grid points close to the rows, and less at a larger distance from the nearest row.
        near = np.clip(2.0 - self._distances(), 0.2, 1.0)
        background = np.array(to_rgb(mpl.rcParams["axes.facecolor"]))
        colours = np.array([to_rgb(_colour(k)) for k in range(K)])
        mixed = background + _PALE * near[..., None] * (p @ colours - background)
        # `imshow` needs increasing coordinates, but the coordinates of the grid may be decreasing.
        rows, columns = (np.argsort(side) for side in self.grid)
        extent = [float(end) for side in self.grid for end in (side.min(), side.max())]
        self.surface_ = ax.imshow(
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
        if self.y is not None:
            self.scatter_ = [_scatter(ax, names[k], k, *self.points[self.y == k].T) for k in range(K)]
            space = {"columnspacing": 1.0, "handletextpad": 0.2}
            legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(K, 6), **space)
        else:
            self.scatter_ = [ax.scatter(*self.points.T, color="white", edgecolors="black", linewidths=0.3, s=6)]
        ax.set(xlabel=self.labels[0], ylabel=self.labels[1])
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set_size(SMALL)

    def _class_names(self) -> list[str]:
        return [] if self.classes is None else [short(str(label)) for label in self.classes]


def _class_index(y: Any, classes: Array) -> Array:
    """Return the index of each label of `y` in `classes`. Raise ValueError if a label is not in `classes`."""
    if np.ndim(y) != 1:
        raise ValueError(f"y must hold one label for each row, as a one-dimensional array; got {np.ndim(y)} dimensions")
    labels = check_labels(np.asarray(y))
    known = np.isin(labels, classes)
    if not np.all(known):
        raise ValueError(f"y has the label {labels[~known].tolist()[0]!r}, which is not in classes_; drop such rows")
    return np.searchsorted(classes, labels)


def _scatter(ax: Any, name: str, k: int, x: Array, y: Array) -> Any:
    look = {"color": _colour(k), "marker": _MARKERS[k % len(_MARKERS)], "edgecolors": "white", "linewidths": 0.3}
    return ax.scatter(x, y, s=16, label=name, **look)


def _colour(k: int) -> str:
    return CATEGORIES[k % len(CATEGORIES)]
