"""SubspaceDisplay: the loadings of the columns in each learned direction."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import subspace_angles

from hkrr._base.checks import check_int, check_matrix
from hkrr._base.linear_algebra import Array
from hkrr.estimators.fitted.importance import direction_weights, loadings
from hkrr.plotting._model_in_pipeline import unwrap
from hkrr.plotting._style import CATEGORIES, DIVERGING, SIZE, SMALL, axes, ink, legend, note, short

# Maximum number of bars. If there are more loadings or more than three directions, a heat map is drawn instead.
_MOST_BARS = 42
# Maximum number of directions in a plot.
_MOST_DIRECTIONS = 12


class SubspaceDisplay:
    """Loadings of the columns in each direction, drawn as bars, or as a heat map if there are many loadings.

    A loading is the coefficient of a standardized column. Each direction is normalized to length one, so the squared
    loadings of a direction sum to one. The columns are in decreasing order of the sum of ``(weight * loading)**2`` over
    the directions. Each of the first ``max_columns`` columns has a row in the plot. All other columns share the last
    row, which shows the square root of the sum of their squared loadings.

    If there are several directions and each uses a single column (``map_shape_`` "diagonal" or "identity"), the weights
    of the columns are drawn instead of loadings.

    Parameters
    ----------
    loadings : array (n_components, n_features) or (n_features,)
        Coefficients of the standardized columns. Each row has length one. A vector is the diagonal of a diagonal map.
    weights : array (n_components,)
        Weights of the directions, divided by the largest weight. They are the singular values of the map, or the
        lengths of its rows if the kernel is not rotation invariant.
    names : list of str
        Names of the columns.
    angles : array or None
        Principal angles between the learned and the true subspace, in degrees, in increasing order.
    said : str
        Remark to write above the axes.

    Attributes
    ----------
    bars_ : list of matplotlib BarContainer
        The bars of each direction; empty for a heat map.
    image_ : matplotlib AxesImage or None
        The heat map; None if bars are drawn.
    ax_ : matplotlib Axes
        The axes of the plot.
    figure_ : matplotlib Figure
        The figure that holds the axes.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import SubspaceDisplay
    >>> data = make_mim_sines(300, n_features=5, n_components=2, random_state=0)
    >>> model = HyperKernelRidge(2, random_state=0).fit(data.X, data.y)
    >>> display = SubspaceDisplay.from_estimator(model, B_true=data.B)
    >>> len(display.bars_), bool(max(display.angles) < 10)
    (2, True)
    """

    bars_: list[Any]
    image_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self, *, loadings: Array, weights: Array, names: list[str], angles: Array | None = None, said: str = ""
    ) -> None:
        self.loadings, self.weights, self.names, self.angles, self.said = loadings, weights, names, angles, said

    @classmethod
    def from_estimator(cls, estimator: Any, *, B_true: Any = None, max_columns: int = 20, ax: Any = None) -> Self:
        """Draw the directions of a fitted model.

        Parameters
        ----------
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble or HyperKernelClassifier
            The model, or a `TableRegressor`, a Pipeline or a GridSearchCV that contains such a model. For an ensemble
            or a classifier, the directions of its first member are drawn.
        B_true : array (d, n_features) or None, default=None
            The true map, if it is known, in the original units of the model's input. If given, the principal angles
            between the learned and the true subspace are written above the plot.
        max_columns : int, default=20
            Maximum number of columns of X that are shown one by one. The other columns are combined in one row of the
            plot.
        ax : matplotlib Axes or None, default=None
            Axes to draw into. If None, a new figure is created.

        Returns
        -------
        SubspaceDisplay
        """
        found = unwrap(estimator)
        model = found.with_map
        angles = None
        if B_true is not None:
            B_true = check_matrix("B_true", B_true, model.n_features_in_)
            angles = np.degrees(subspace_angles(model.components_.T, B_true.T))[::-1]
        weights = direction_weights(model)
        display = cls(loadings=loadings(model), weights=weights, names=found.names, angles=angles, said=found.member)
        return display.plot(max_columns=max_columns, ax=ax)

    def plot(self, *, max_columns: int = 20, ax: Any = None) -> Self:
        """Draw the loadings; see `from_estimator` for the parameters."""
        if self.loadings.ndim == 1:
            importance, single_columns = (self.weights * self.loadings) ** 2, True
        else:
            importance = np.sum((self.weights[:, None] * self.loadings) ** 2, axis=0)
            single_columns = bool(np.all(np.count_nonzero(self.loadings, axis=1) <= 1))
        own_axes = len(self.loadings) > 1 and single_columns
        values = np.sqrt(importance)[None, :] if own_axes else np.atleast_2d(self.loadings)[:_MOST_DIRECTIONS]
        order = np.argsort(-importance, kind="stable")
        top, rest = np.split(order, [check_int("max_columns", max_columns, 1)])
        labels = [short(self.names[j]) for j in top]
        if len(rest):
            labels.append(f"{len(rest)} others together")
            values = np.column_stack([values[:, top], np.sqrt(np.sum(values[:, rest] ** 2, axis=1))])
        else:
            values = values[:, top]
        shown, n_lines = values.shape
        as_bars = shown <= len(CATEGORIES[:3]) and shown * n_lines <= _MOST_BARS
        width = SIZE[0] if as_bars else max(SIZE[0], 1.8 + 0.42 * shown)
        ax = axes(ax, (width, max(1.8, 1.1 + (0.09 * shown + 0.08 if as_bars else 0.2) * n_lines)))
        self.bars_, self.image_ = [], None
        remarks = [self.said] if self.said else []
        if self.angles is not None:
            remarks.append("angles to the true subspace: " + ", ".join(f"{angle:.1f}°" for angle in self.angles))
        if not own_axes and shown < len(self.loadings):
            remarks.append(f"the first {shown} of {len(self.loadings)} directions")
        text = "; ".join(remarks)
        if as_bars:
            self._draw_bars(ax, values, bool(len(rest)), own_axes, text)
        else:
            self._draw_table(ax, values, bool(len(rest)))
            note(ax, text)
        ax.set_yticks(range(n_lines), labels, fontsize=SMALL)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_bars(self, ax: Any, values: Array, has_rest: bool, own_axes: bool, text: str) -> None:
        d, n_lines = values.shape
        height = 0.8 / d
        for k in range(d):
            places = np.arange(n_lines) + (k - (d - 1) / 2) * height
            label = "each direction is one column" if own_axes else f"direction {k + 1}, weight {self.weights[k]:.2f}"
            bars = ax.barh(places, values[k], height, color=CATEGORIES[k], label=label)
            if has_rest:
                bars[-1].set(facecolor="none", edgecolor=CATEGORIES[k], hatch="////")
            self.bars_.append(bars)
        ax.axvline(0.0, color=ink(), lw=0.8)
        ax.set_xlabel(f"{'weight' if own_axes else 'loading'} of the standardized column")
        ax.set_ylim(n_lines - 0.4, -0.6)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(d, 2), title=text, title_fontsize=SMALL)

    def _draw_table(self, ax: Any, values: Array, has_rest: bool) -> None:
        # If there are more than `max_columns` columns, the other columns share the last row of the plot. The entries of
        # this row are norms, which have no sign. They are therefore not coloured.
        coloured = np.where(np.arange(values.shape[1]) < values.shape[1] - has_rest, values, np.nan)
        most = float(np.nanmax(np.abs(coloured))) or 1.0
        self.image_ = ax.imshow(coloured.T, cmap=DIVERGING, vmin=-most, vmax=most, aspect="auto")
        for (k, line), value in np.ndenumerate(values):
            colour = "white" if abs(value) > 0.6 * most else "black"
            colour = ink() if np.isnan(coloured[k, line]) else colour
            ax.text(k, line, f"{round(value, 2) + 0.0:.2f}", ha="center", va="center", fontsize=SMALL - 2, color=colour)
        weights = ("<.01" if weight < 0.01 else f"{weight:.2f}" for weight in self.weights[: len(values)])
        ticks = [f"{k + 1}\n{weight}" for k, weight in enumerate(weights)]
        ax.set_xticks(range(len(values)), ticks, fontsize=SMALL)
        ax.set_xlabel("direction and its weight")
        bar = ax.figure.colorbar(self.image_, ax=ax)
        bar.set_label("loading of the standardized column", fontsize=SMALL)
        bar.ax.tick_params(labelsize=SMALL)
