"""PredictionErrorDisplay: predictions beside what was seen. scikit-learn's, with R2, intervals and several targets."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import PredictionErrorDisplay as _Display
from sklearn.metrics import r2_score

from hkrr._arrays import Array
from hkrr.plotting._style import (
    BLUE,
    SMALL,
    Coverage,
    axes,
    ink,
    intervals,
    legend,
    nominal,
    note,
    one_target,
    rows_shown,
    some_rows,
)
from hkrr.plotting._subject import subject_of


class PredictionErrorDisplay(_Display):
    """Actual values, or residuals, over predicted ones: scikit-learn's, with R2, and intervals where there are any.

    Works with any regressor, pipelines too; intervals need a model of this library, or a pipeline or search around one.

    Parameters
    ----------
    y_true, y_pred : arrays (n_samples,)
        The points; at most 1,000 of the rows.
    interval : array (n_samples, 2) or None
        The ends of the prediction intervals.
    r2, covered : float or None
        R2, and the share of the rows within their interval, over all rows.
    n_rows : int or None
        How many rows there were, where the points are some of them.
    coverage : float or None
        Nominal, of the intervals.

    Attributes
    ----------
    scatter_, line_ : matplotlib artists
        As scikit-learn's.
    intervals_ : matplotlib LineCollection or None
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import PredictionErrorDisplay
    >>> data = make_mim_sines(300, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelRidge(1, random_state=0).fit(data.X[:200], data.y[:200])
    >>> bool(PredictionErrorDisplay.from_estimator(model, data.X[200:], data.y[200:]).r2 > 0.9)
    True
    """

    intervals_: Any

    def __init__(
        self,
        *,
        y_true: Array,
        y_pred: Array,
        interval: Array | None = None,
        r2: float | None = None,
        covered: float | None = None,
        n_rows: int | None = None,
        coverage: float | None = None,
    ) -> None:
        super().__init__(y_true=y_true, y_pred=y_pred)
        self.interval, self.r2, self.covered, self.coverage = interval, r2, covered, coverage
        self.n_rows = len(y_true) if n_rows is None else n_rows

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        kind: Literal["actual_vs_predicted", "residual_vs_predicted"] = "actual_vs_predicted",
        target: int = 0,
        coverage: Coverage = "auto",
        ax: Any = None,
    ) -> Self:
        """Draw the predictions of a fitted model, best on rows that it has not seen.

        Parameters
        ----------
        estimator : fitted regressor
        X : as in its `predict`
        y : array (n_samples,) or (n_samples, n_targets)
        kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
        target : int, default=0
            Which target, where there are several.
        coverage : float, "auto" or None, default="auto"
            Of the intervals, by ``predict_interval``; "auto": 0.9 where the model can tell; None: none.
        ax : matplotlib Axes or None, default=None
            None: of a new figure.
        """
        if is_classifier(estimator):
            raise TypeError(
                f"estimator must be a regressor, got a {type(estimator).__name__}; for classes use "
                "sklearn.metrics.ConfusionMatrixDisplay or sklearn.calibration.CalibrationDisplay"
            )
        interval = intervals(*_who_knows_intervals(estimator, X), coverage, target)
        return cls.from_predictions(
            y, estimator.predict(X), kind=kind, target=target, interval=interval, coverage=nominal(coverage), ax=ax
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        kind: Literal["actual_vs_predicted", "residual_vs_predicted"] = "actual_vs_predicted",
        target: int = 0,
        interval: Any = None,
        coverage: float | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw predictions that are there already.

        Parameters
        ----------
        y_true, y_pred : arrays (n_samples,) or (n_samples, n_targets)
        interval : array (n_samples, 2) or None, default=None
        kind, target, coverage, ax
            As in `from_estimator`.
        """
        y_true, y_pred = (one_target(values, target, name) for name, values in (("y", y_true), ("y_pred", y_pred)))
        if len(y_true) != len(y_pred):
            raise ValueError(f"y has {len(y_true)} entries, and there are {len(y_pred)} predictions")
        covered = None
        if interval is not None:
            interval = np.asarray(interval, dtype=np.float64)
            covered = float(np.mean((interval[:, 0] <= y_true) & (y_true <= interval[:, 1])))
        r2 = float(r2_score(y_true, y_pred)) if len(y_true) > 1 else None  # which one row has none of
        shown_true, shown_pred, interval = some_rows(y_true, y_pred, interval)
        display = cls(
            y_true=shown_true,
            y_pred=shown_pred,
            interval=interval,
            r2=r2,
            covered=covered,
            n_rows=len(y_true),
            coverage=coverage,
        )
        return display.plot(kind=kind, ax=ax)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: Literal["actual_vs_predicted", "residual_vs_predicted"] = "actual_vs_predicted",
        **styles: Any,
    ) -> Self:
        """Draw; see `from_estimator`. ``scatter_kwargs`` and ``line_kwargs`` are scikit-learn's."""
        from matplotlib.ticker import MaxNLocator

        ax = axes(ax)
        self.intervals_ = None
        if self.interval is not None:
            level = 0.0 if kind == "actual_vs_predicted" else self.y_pred
            label = "intervals" if self.coverage is None else f"{100 * self.coverage:.0f}% intervals"
            if self.covered is not None:
                label += f", holding {100 * self.covered:.0f}%"
            low, high = self.interval.T
            self.intervals_ = ax.vlines(
                self.y_pred, low - level, high - level, color="gray", lw=0.8, alpha=0.3, label=label
            )
        r2 = "" if self.r2 is None else f", R2 {self.r2:.3f}"
        points = {"s": 12, "color": BLUE, "alpha": 0.8, "linewidths": 0, "zorder": 3}
        points["label"] = f"{rows_shown(len(self.y_true), self.n_rows)}{r2}"
        super().plot(
            ax,
            kind=kind,
            scatter_kwargs={**points, **(styles.pop("scatter_kwargs", None) or {})},
            line_kwargs={"color": ink(), "lw": 1.0, "alpha": 0.8, **(styles.pop("line_kwargs", None) or {})},
            **styles,
        )
        if kind == "actual_vs_predicted":
            # scikit-learn's ticks are at fifths of the range, whatever numbers these are.
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(5))
        ax.tick_params(labelsize=SMALL)
        if np.ptp(self.y_pred) == 0:
            note(ax, "The prediction is constant.")
        legend(ax)
        return self


def _who_knows_intervals(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator and its rows, or those of the model at the end of a pipeline or a search."""
    if hasattr(estimator, "predict_interval"):
        return estimator, X
    try:
        subject = subject_of(estimator)
    except TypeError:
        return estimator, X  # any other regressor, which has none
    return subject.model, subject.rows(X)
