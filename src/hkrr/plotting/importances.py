"""ImportanceDisplay: which columns move the prediction."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from hkrr._arrays import Array
from hkrr._validation import check_int
from hkrr.plotting._style import BLUE, SIZE, SMALL, axes, note, short
from hkrr.plotting._subject import subject_of


class ImportanceDisplay:
    """Bars of ``feature_importances_``, the longest first; what the columns sum to that there is no room for is said.

    Parameters
    ----------
    importances : array (n_features,)
        Shares that sum to one.
    names : list of str

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

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
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier
            Or a `TableRegressor`, a Pipeline or a GridSearchCV around one.
        max_columns : int, default=20
            Bars at most.
        ax : matplotlib Axes or None, default=None
            None: of a new figure.
        """
        subject = subject_of(estimator)
        display = cls(importances=subject.model.feature_importances_, names=subject.names)
        return display.plot(max_columns=max_columns, ax=ax)

    def plot(self, *, max_columns: int = 20, ax: Any = None) -> Self:
        """Draw; see `from_estimator`."""
        order = np.argsort(-self.importances, kind="stable")
        top, rest = np.split(order, [check_int("max_columns", max_columns, 1)])
        lengths = self.importances[top]
        ax = axes(ax, (SIZE[0], max(1.6, 0.9 + 0.2 * len(lengths))))
        self.bars_ = ax.barh(range(len(lengths)), lengths, color=BLUE)
        ax.bar_label(self.bars_, [f"{length:.2g}" for length in lengths], padding=2, fontsize=SMALL)
        ax.set_yticks(range(len(lengths)), [short(self.names[j]) for j in top], fontsize=SMALL)
        ax.set(xlabel="importance (shares of 1)", xlim=(0.0, 1.14 * float(np.max(lengths)) or 1.0))
        ax.xaxis.get_major_locator().set_params(nbins=6)
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
        if not np.any(self.importances):
            note(ax, "The prediction is constant: no column matters.")
        elif len(rest):
            note(ax, f"not shown: {len(rest)} others, {float(np.sum(self.importances[rest])):.2f} in all")
        self.ax_, self.figure_ = ax, ax.figure
        return self
