"""PredictionErrorDisplay: predictions against observed targets, with R2 and prediction intervals."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import PredictionErrorDisplay as _Display
from sklearn.metrics import r2_score

from hkrr._base.linear_algebra import Array
from hkrr.plotting._model_in_pipeline import unwrap
from hkrr.plotting._plot_data import Coverage, intervals, nominal, one_target, rows_shown, sample_rows
from hkrr.plotting._style import BLUE, SMALL, axes, ink, legend, note


class PredictionErrorDisplay(_Display):
    """Actual values or residuals, plotted against predicted values.

    This class extends scikit-learn's `PredictionErrorDisplay`: it also shows R2 and prediction intervals, and supports
    models with several targets. It accepts any regressor, including pipelines. Intervals are drawn for estimators with
    a method ``predict_interval``, and for pipelines and parameter searches that contain a model of this library.

    Parameters
    ----------
    y_true, y_pred : arrays (n_samples,)
        Observed and predicted targets of the rows to draw. `from_estimator` and `from_predictions` pass at most 1,000
        rows.
    interval : array (n_samples, 2) or None
        Bounds of the prediction intervals.
    r2 : float or None
        R2 over all rows.
    covered : float or None
        Fraction of all rows whose target lies in the prediction interval of the row.
    n_rows : int or None
        Number of rows before sampling. None means that `y_true` holds all rows.
    coverage : float or None
        Nominal coverage of the intervals.

    Attributes
    ----------
    scatter_, line_ : matplotlib artists
        The points and the reference line, as in scikit-learn.
    intervals_ : matplotlib LineCollection or None
        The prediction intervals.
    ax_ : matplotlib Axes
        The axes of the plot.
    figure_ : matplotlib Figure
        The figure that holds the axes.

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
        """Draw the predictions of a fitted model, preferably on held-out rows.

        Parameters
        ----------
        estimator : fitted regressor
            A regressor, or a pipeline or a parameter search that contains a regressor.
        X : array or data frame
            Rows to predict, as in the estimator's `predict`.
        y : array (n_samples,) or (n_samples, n_targets)
            Observed targets of the rows.
        kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
            Quantity to draw against the predicted values: the actual values or the residuals.
        target : int, default=0
            Index of the target to draw if there are several targets.
        coverage : float, "auto" or None, default="auto"
            Coverage of the intervals that ``predict_interval`` computes. "auto" means 0.9, or no intervals if the model
            cannot compute intervals. None means that no intervals are drawn.
        ax : matplotlib Axes or None, default=None
            Axes to draw into. If None, a new figure is created.

        Returns
        -------
        PredictionErrorDisplay
        """
        if is_classifier(estimator):
            raise TypeError(
                f"estimator must be a regressor, got a {type(estimator).__name__}; for a classifier use "
                "sklearn.metrics.ConfusionMatrixDisplay or sklearn.calibration.CalibrationDisplay"
            )
        interval = intervals(*_interval_source(estimator, X), coverage, target)
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
        """Draw predictions that have already been computed.

        Parameters
        ----------
        y_true, y_pred : arrays (n_samples,) or (n_samples, n_targets)
            Observed and predicted targets.
        interval : array (n_samples, 2) or None, default=None
            Bounds of the prediction intervals.
        kind, target, coverage, ax
            As in `from_estimator`.

        Returns
        -------
        PredictionErrorDisplay
        """
        y_true, y_pred = (one_target(values, target, name) for name, values in (("y", y_true), ("y_pred", y_pred)))
        if len(y_true) != len(y_pred):
            raise ValueError(
                f"y has {len(y_true)} entries, but there are {len(y_pred)} predictions; pass one prediction per entry"
            )
        covered = None
        if interval is not None:
            interval = np.asarray(interval, dtype=np.float64)
            covered = float(np.mean((interval[:, 0] <= y_true) & (y_true <= interval[:, 1])))
        r2 = float(r2_score(y_true, y_pred)) if len(y_true) > 1 else None  # R2 is undefined for a single row
        shown_true, shown_pred, interval = sample_rows(y_true, y_pred, interval)
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
        """Draw the points; see `from_estimator` for `ax` and `kind`.

        The options ``scatter_kwargs`` and ``line_kwargs`` are the same as in scikit-learn's `PredictionErrorDisplay`.
        """
        from matplotlib.ticker import MaxNLocator

        ax = axes(ax)
        self.intervals_ = None
        if self.interval is not None:
            level = 0.0 if kind == "actual_vs_predicted" else self.y_pred
            label = "intervals" if self.coverage is None else f"{100 * self.coverage:.0f}% intervals"
            if self.covered is not None:
                label += f", covering {100 * self.covered:.0f}%"
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
            # scikit-learn places ticks at fifths of the range. Use round numbers instead, which are easier to read.
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(5))
        ax.tick_params(labelsize=SMALL)
        if np.ptp(self.y_pred) == 0:
            note(ax, "The prediction is constant.")
        legend(ax)
        return self


def _interval_source(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator that predicts intervals, and the rows in the form that this estimator expects.

    If `estimator` has no method ``predict_interval``, the hkrr model inside it is returned. If there is no hkrr model,
    `estimator` and the rows are returned unchanged.
    """
    if hasattr(estimator, "predict_interval"):
        return estimator, X
    try:
        found = unwrap(estimator)
    except TypeError:
        return estimator, X  # a regressor of another library, which has no intervals
    return found.model, found.transform_rows(X)
