"""TrainingDisplay: how the solver went."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from hkrr._validation import check_choice
from hkrr.diagnostics import ENDS
from hkrr.plotting._style import BLUE, SMALL, VERMILION, axes, ink, note, regression_of
from hkrr.plotting._subject import subject_of

_WIDE = 20.0  # ratio of the objective's first value to its last beyond which the axis is logarithmic


class TrainingDisplay:
    """The objective and the norm of its gradient, over the iterations of the solver or its seconds.

    The objective is what B was chosen by: the training objective, the leave-one-out error, or minus the log evidence a
    row, which may be negative. Of a `HyperKernelRidgeCV` it is that of the last long run; of a classifier that of
    its regression on codes.

    Parameters
    ----------
    history : dict of lists
        "time", "objective" and "grad_norm", as ``history_``.
    reason : str
        Why it stopped, as ``result_.reason``.

    Attributes
    ----------
    objective_, gradient_ : matplotlib Line2D, or None where nothing was recorded
    ax_ : matplotlib Axes
        The objective's; ``gradient_.axes`` is that of the gradient.
    figure_ : matplotlib Figure

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

    def __init__(self, *, history: dict[str, list[float]], reason: str) -> None:
        self.history, self.reason = history, reason

    @classmethod
    def from_estimator(cls, estimator: Any, *, x: Literal["iteration", "time"] = "iteration", ax: Any = None) -> Self:
        """Draw the run that a fitted model ended with.

        Parameters
        ----------
        estimator : fitted HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier
            Or a `TableRegressor`, a Pipeline or a GridSearchCV around one.
        x : {"iteration", "time"}, default="iteration"
        ax : matplotlib Axes or None, default=None
            None: of a new figure.
        """
        result = regression_of(subject_of(estimator).model).result_
        return cls(history=result.history, reason=result.reason).plot(x=x, ax=ax)

    def plot(self, *, x: Literal["iteration", "time"] = "iteration", ax: Any = None) -> Self:
        """Draw; see `from_estimator`."""
        check_choice("x", x, ("iteration", "time"))
        ax = self.ax_ = axes(ax)
        self.figure_ = ax.figure
        self.objective_ = self.gradient_ = None
        ax.set(xlabel="iteration" if x == "iteration" else "seconds", ylabel="objective")
        note(ax, f"{self.reason}: {ENDS.get(self.reason, 'see result_.message')}")
        objective = np.asarray(self.history["objective"], dtype=np.float64)
        if len(objective) == 0:
            ax.text(0.5, 0.5, "no iterations were recorded", ha="center", va="center", transform=ax.transAxes)
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
        positive = np.where(slopes > 0, slopes, np.nan)  # zero has no place on a logarithmic axis
        marker = "." if len(at) == 1 else ""  # one point is no line
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
    """Return the colour of a curve for its label, or the style's own where that is light, on a dark ground."""
    from matplotlib.colors import to_rgb

    return colour if sum(to_rgb(ink())) < 1.5 else ink()
