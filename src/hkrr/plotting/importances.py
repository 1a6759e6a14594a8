"""ImportanceDisplay: a bar chart of the feature importances."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr.plotting._model_in_pipeline import unwrap
from hkrr.plotting._style import BLUE, SIZE, SMALL, axes, note, short


class ImportanceDisplay:
    """Bar chart of ``feature_importances_``, in decreasing order.

    If there are more than ``max_columns`` columns, a note gives the total importance of the columns that are not shown.

    Parameters
    ----------
    importances : array (n_features,)
        Importances of the columns. The importances sum to one, or are all zero if the predictions are constant.
    names : list of str
        Names of the columns.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        The bars.
    ax_ : matplotlib Axes
        The axes of the plot.
    figure_ : matplotlib Figure
        The figure that holds the axes.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import ImportanceDisplay
    >>> data = make_mim_sines(200, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelRidge(1, random_state=0).fit(data.X, data.y)
    >>> len(ImportanceDisplay.from_estimator(model).bars_)
    5
    """

    bars_: Any
    ax_: Any
    figure_: Any

    def __init__(self, *, importances: Array, names: list[str]) -> None:
        self.importances, self.names = importances, names

    @classmethod
    def from_estimator(cls, estimator: Any, *, max_columns: int = 20, ax: Any = None) -> Self:
        """Draw the importances of a fitted model.

        Parameters
        ----------
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble or HyperKernelClassifier
            The model, or a `TableRegressor`, a Pipeline or a GridSearchCV that contains such a model.
        max_columns : int, default=20
            Maximum number of bars.
        ax : matplotlib Axes or None, default=None
            Axes to draw into. If None, a new figure is created.

        Returns
        -------
        ImportanceDisplay
        """
        found = unwrap(estimator)
        display = cls(importances=found.model.feature_importances_, names=found.names)
        return display.plot(max_columns=max_columns, ax=ax)

    def plot(self, *, max_columns: int = 20, ax: Any = None) -> Self:
        """Draw the bars; see `from_estimator` for the parameters."""
        order = np.argsort(-self.importances, kind="stable")
        top, rest = np.split(order, [check_int("max_columns", max_columns, 1)])
        lengths = self.importances[top]
        ax = axes(ax, (SIZE[0], max(1.6, 0.9 + 0.2 * len(lengths))))
        self.bars_ = ax.barh(range(len(lengths)), lengths, color=BLUE)
        ax.bar_label(self.bars_, [f"{length:.2g}" for length in lengths], padding=2, fontsize=SMALL)
        ax.set_yticks(range(len(lengths)), [short(self.names[j]) for j in top], fontsize=SMALL)
        ax.set(xlabel="importance (fraction of the total)", xlim=(0.0, 1.14 * float(np.max(lengths)) or 1.0))
        ax.xaxis.get_major_locator().set_params(nbins=6)
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
        if not np.any(self.importances):
            note(ax, "The prediction is constant: no column matters.")
        elif len(rest):
            total = float(np.sum(self.importances[rest]))
            note(ax, f"not shown: {len(rest)} other columns, total importance {total:.2f}")
        self.ax_, self.figure_ = ax, ax.figure
        return self
