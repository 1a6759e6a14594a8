"""TrainingDisplay: the objective and its gradient norm over the iterations of the solver."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from hkrr._base.checks import check_choice
from hkrr.estimators.fitted.diagnostics import STOP_REASONS
from hkrr.plotting._model_in_pipeline import unwrap
from hkrr.plotting._style import BLUE, SMALL, VERMILION, axes, ink, note

# The axis of the objective is logarithmic if the largest objective exceeds this multiple of the smallest objective.
_WIDE = 20.0


class TrainingDisplay:
    """The objective and the norm of its gradient, over the iterations of the solver or over seconds.

    The objective is the criterion that B was optimized for: the training objective, the leave-one-out error, or the
    negative log evidence per row. The negative log evidence can be below zero. For a `HyperKernelRidgeCV`, the plot
    shows the final run of the solver. For a classifier, it shows the fit of the first member as a
    regression on the indicators of the classes.

    Parameters
    ----------
    history : dict of lists
        Columns "time", "objective" and "grad_norm", as in ``history_``.
    reason : str
        Why the solver stopped, as in ``result_.reason``.
    said : str
        Remark to write above the axes.

    Attributes
    ----------
    objective_, gradient_ : matplotlib Line2D or None
        The curves of the objective and of the gradient norm; None if no iterations were recorded.
    ax_ : matplotlib Axes
        The axes of the objective. The axes of the gradient norm are ``gradient_.axes``.
    figure_ : matplotlib Figure
        The figure that holds the axes.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import TrainingDisplay
    >>> data = make_mim_sines(200, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelRidge(1, random_state=0).fit(data.X, data.y)
    >>> TrainingDisplay.from_estimator(model).ax_.get_xlabel()
    'iteration'
    """

    objective_: Any
    gradient_: Any
    ax_: Any
    figure_: Any

    def __init__(self, *, history: dict[str, list[float]], reason: str, said: str = "") -> None:
        self.history, self.reason, self.said = history, reason, said

    @classmethod
    def from_estimator(cls, estimator: Any, *, x: Literal["iteration", "time"] = "iteration", ax: Any = None) -> Self:
        """Draw the history of a fitted model's solver.

        Parameters
        ----------
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble or HyperKernelClassifier
            The model, or a `TableRegressor`, a Pipeline or a GridSearchCV that contains such a model. For an ensemble
            or a classifier, the history of its first member is drawn.
        x : {"iteration", "time"}, default="iteration"
            Quantity on the horizontal axis.
        ax : matplotlib Axes or None, default=None
            Axes to draw into. If None, a new figure is created.

        Returns
        -------
        TrainingDisplay
        """
        found = unwrap(estimator)
        result = found.with_map.result_
        return cls(history=result.history, reason=result.reason, said=found.member).plot(x=x, ax=ax)

    def plot(self, *, x: Literal["iteration", "time"] = "iteration", ax: Any = None) -> Self:
        """Draw the objective and the gradient norm; see `from_estimator` for the parameters."""
        check_choice("x", x, ("iteration", "time"))
        ax = self.ax_ = axes(ax)
        self.figure_ = ax.figure
        self.objective_ = self.gradient_ = None
        ax.set(xlabel="iteration" if x == "iteration" else "seconds", ylabel="objective")
        reason = STOP_REASONS.get(self.reason, "see result_.message")
        said = f"{self.said}; " if self.said else ""
        note(ax, f"{said}{self.reason}: {reason}")
        objective = np.asarray(self.history["objective"], dtype=np.float64)
        if len(objective) == 0:
            ax.text(0.5, 0.5, "no iterations were recorded", ha="center", va="center", transform=ax.transAxes)
            ax.set(xticks=[], yticks=[])
            return self
        at = np.arange(len(objective)) if x == "iteration" else np.asarray(self.history["time"])
        self.objective_ = ax.plot(at, objective, color=BLUE, lw=2)[0]
        ax.plot(at[:1], objective[:1], "o", color=BLUE, ms=5)
        ax.annotate(
            "start", (at[0], objective[0]), xytext=(7, 0), textcoords="offset points", va="center", fontsize=SMALL
        )
        if np.all(objective > 0) and np.max(objective) > _WIDE * np.min(objective):
            ax.set_yscale("log")
        if x == "iteration":
            ax.xaxis.get_major_locator().set_params(integer=True)
        ax.yaxis.label.set_color(_legible(BLUE))

        right = ax.twinx()
        slopes = np.asarray(self.history["grad_norm"], dtype=np.float64)
        positive = np.where(slopes > 0, slopes, np.nan)  # a logarithmic axis cannot show zero
        marker = "." if len(at) == 1 else ""  # a line through a single point is invisible
        self.gradient_ = right.plot(at, positive, color=VERMILION, lw=1.2, ls="--", marker=marker)[0]
        if np.any(np.isfinite(positive)):
            right.set_yscale("log")
        right.set_ylabel("gradient norm (dashed)", color=_legible(VERMILION))
        right.tick_params(which="both", labelsize=SMALL)
        ax.tick_params(which="both", labelsize=SMALL)
        ax.spines["top"].set_visible(False)
        right.spines["top"].set_visible(False)
        return self


def _legible(colour: str) -> Any:
    """Return the colour of a curve for its axis label, or the text colour if the background is dark."""
    from matplotlib.colors import to_rgb

    return colour if sum(to_rgb(ink())) < 1.5 else ink()
