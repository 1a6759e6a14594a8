"""PathDisplay: what a HyperKernelRidgeCV chose from."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from hkrr._arrays import Array
from hkrr.plotting._style import (
    BLUE,
    LEVELS,
    ORANGE,
    SIZE,
    SMALL,
    VERMILION,
    axes,
    ink,
    legend,
    note,
    regression_of,
)
from hkrr.plotting._subject import subject_of

_OF_DIRECTIONS = ("random", "moments", "grown", "shrunk")
_STAGES = ("half", "kernels", "finalists")  # of the search for a kernel, in their order
_MOST_LINES = 16


class PathDisplay:
    """The choice of a `HyperKernelRidgeCV`, the chosen one marked.

    With `cv`, the held-out error over the grid of (d, lambda). Without, the scores (BIC, in nats: lower is better) over
    the number of directions, a point for each run of the search; or, with ``kernel="auto"``, those of each kernel and
    shape of the map, above the best of its stage, as scores compare within a stage alone.

    Parameters
    ----------
    table : dict of lists or arrays
        ``cv_results_`` or ``path_``.
    n_components : int
        Chosen.
    reg_lambda : float
        Chosen.
    chosen : str
        The kernel and the shape of the map that were chosen, as "gaussian, full".

    Attributes
    ----------
    image_ : matplotlib AxesImage or None
        The grid's.
    scatter_ : matplotlib PathCollection or None
        The runs'.
    chosen_ : matplotlib artist
        The mark.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from hkrr import HyperKernelRidgeCV
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import PathDisplay
    >>> data = make_mim_sines(200, n_features=5, n_components=2, random_state=0)
    >>> model = HyperKernelRidgeCV([1, 2, 3], cv=2, reg_lambdas=[1e-1, 1e-2, 1e-3, 1e-4], criterion="training",
    ...                            n_init=2, random_state=0).fit(data.X, data.y)
    >>> PathDisplay.from_estimator(model).image_.get_array().shape
    (3, 4)
    """

    image_: Any
    scatter_: Any
    chosen_: Any
    ax_: Any
    figure_: Any

    def __init__(self, *, table: dict[str, Any], n_components: int, reg_lambda: float, chosen: str) -> None:
        self.table, self.n_components, self.reg_lambda, self.chosen = table, n_components, reg_lambda, chosen

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw what a fitted HyperKernelRidgeCV chose from.

        Parameters
        ----------
        estimator : fitted HyperKernelRidgeCV or HyperKernelClassifier
            Of a classifier it is what its regression on codes chose from. Or a `TableRegressor`, a Pipeline or a
            GridSearchCV around one.
        ax : matplotlib Axes or None, default=None
            None: of a new figure.
        """
        from hkrr.kernels import kernel_name

        estimator = regression_of(subject_of(estimator).model)
        table = getattr(estimator, "cv_results_", getattr(estimator, "path_", None))
        if table is None:
            raise TypeError(f"estimator must be a HyperKernelRidgeCV: a {type(estimator).__name__} chooses nothing")
        chosen = f"{kernel_name(estimator.kernel_)}, {getattr(estimator, 'map_shape_', 'full')}"
        found = {"n_components": estimator.n_components_, "reg_lambda": estimator.reg_lambda_}
        return cls(table=table, chosen=chosen, **found).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw; see `from_estimator`."""
        self.image_ = self.scatter_ = self.chosen_ = None
        if "mean_error" in self.table:
            several = len(set(np.asarray(self.table["reg_lambda"]).tolist())) > 1
            draw = self._draw_grid if several else self._draw_errors
        else:
            draw = self._draw_directions if len(set(self.table["kernel"])) == 1 else self._draw_kernels
        self.ax_ = draw(ax)
        self.figure_ = self.ax_.figure
        return self

    def _draw_grid(self, ax: Any) -> Any:
        dimensions = np.unique(self.table["n_components"])
        lambdas = np.asarray(self.table["reg_lambda"], dtype=np.float64)
        columns = np.unique(lambdas)
        errors = np.full((len(dimensions), len(columns)), np.nan)
        places = np.searchsorted(dimensions, self.table["n_components"]), np.searchsorted(columns, lambdas)
        errors[places] = self.table["mean_error"]
        errors = np.where(np.isfinite(errors), errors, np.nan)  # a pair that could not be fitted stays empty
        ax = axes(ax)
        # Small errors are what the choice is between: the logarithm tells them apart.
        self.image_ = ax.imshow(errors, cmap=f"{LEVELS}_r", norm=_norm(errors), aspect="auto", origin="lower")
        step = -(-len(columns) // 7)
        ax.set_xticks(range(0, len(columns), step), [f"{value:.2g}" for value in columns[::step]], fontsize=SMALL)
        ax.set_yticks(range(len(dimensions)), [str(d) for d in dimensions], fontsize=SMALL)
        ax.set(xlabel="lambda", ylabel="directions d")
        i, j = int(np.searchsorted(dimensions, self.n_components)), int(np.argmin(np.abs(columns - self.reg_lambda)))
        self.chosen_ = ax.plot(j, i, "*", ms=14, color="white", mec="black", mew=0.8)[0]
        bar = ax.figure.colorbar(self.image_, ax=ax)
        bar.set_label("held-out mean squared error", fontsize=SMALL)
        bar.ax.tick_params(which="both", labelsize=SMALL)
        error = f", error {errors[i, j]:.3g}"
        note(ax, f"chosen (star): d = {self.n_components}, lambda = {self.reg_lambda:.2g}{error}")
        return ax

    def _draw_errors(self, ax: Any) -> Any:
        """Of a lambda that was learned, or the only one: errors over d."""
        d = np.asarray(self.table["n_components"])
        mean, spread = (np.asarray(self.table[name], dtype=np.float64) for name in ("mean_error", "std_error"))
        ax = axes(ax)
        ax.errorbar(d, mean, spread, color=BLUE, marker="o", ms=4, capsize=3, lw=1.5)
        at = d == self.n_components
        self.chosen_ = ax.plot(d[at], mean[at], "*", ms=14, color=ORANGE, mec=ink(), mew=0.6, zorder=3)[0]
        ax.set(xlabel="directions d", ylabel="held-out mean squared error")
        ax.set_xticks(d)
        note(ax, f"chosen (star): d = {self.n_components}; bars: one standard deviation over the splits")
        return ax

    def _draw_directions(self, ax: Any) -> Any:
        starts, d, scores = self._runs()
        of_search = np.array([start.split(",")[0] in _OF_DIRECTIONS for start in starts]) & np.isfinite(scores)
        dropped = np.array(["dropped" in start for start in starts])
        ax = axes(ax)
        ended, given_up = of_search & ~dropped, of_search & dropped
        self.scatter_ = ax.scatter(
            d[ended], scores[ended], s=18, color=BLUE, alpha=0.7, lw=0, label="a run of the search"
        )
        if np.any(given_up):
            ax.scatter(d[given_up], scores[given_up], s=16, marker="x", color=VERMILION, lw=1, label="given up early")
        tried = np.unique(d[ended])
        best = np.array([np.min(scores[ended & (d == k)]) for k in tried])
        ax.plot(tried, best, color=BLUE, lw=1.5, label="the best")
        at = tried == self.n_components
        if np.any(at):
            self.chosen_ = ax.plot(
                tried[at], best[at], "*", ms=14, color=ORANGE, mec=ink(), mew=0.6, zorder=3, label="chosen"
            )[0]
        ax.set(xlabel="directions d", ylabel="score (BIC, in nats; lower is better)")
        ax.xaxis.get_major_locator().set_params(integer=True)
        legend(ax)
        n_failed = int(np.sum(~np.isfinite(scores)))
        said = [f"chosen: d = {self.n_components}, {self.chosen} map"]
        if not np.any(at):
            said = [f"chosen: {self.chosen} map, all {self.n_components} columns, which did better than any d here"]
        note(ax, "; ".join(said + ([f"{n_failed} run{'s' if n_failed > 1 else ''} failed"] if n_failed else [])))
        return ax

    def _runs(self) -> tuple[list[str], Array, Array]:
        return list(self.table["start"]), np.asarray(self.table["n_components"]), np.asarray(self.table["score"], float)

    def _draw_kernels(self, ax: Any) -> Any:
        """Of each kernel and shape the best run in the last stage that it came to, above the best of that stage."""
        starts, _, scores = self._runs()
        stages = np.array([_stage(start) for start in starts])
        names = [f"{kernel}, {shape}" for kernel, shape in zip(self.table["kernel"], self.table["shape"], strict=True)]
        found: dict[str, tuple[int, float]] = {}
        for rank, stage in enumerate(_STAGES):
            counted = np.isfinite(scores) & (stages == stage)
            for k in np.flatnonzero(counted):
                above = float(scores[k] - np.min(scores[counted]))
                if names[k] not in found or found[names[k]][0] < rank or above < found[names[k]][1]:
                    found[names[k]] = (rank, above)
        order = sorted(found, key=lambda name: (-found[name][0], found[name][1]))
        shown = order[:_MOST_LINES]
        ax = axes(ax, (SIZE[0], max(2.2, 1.0 + 0.2 * len(shown))))
        last = max((rank for rank, _ in found.values()), default=0)
        for is_last, colour, label in ((True, BLUE, "in the last stage"), (False, VERMILION, "left behind")):
            lines = [line for line, name in enumerate(shown) if (found[name][0] == last) == is_last]
            values = [found[shown[line]][1] for line in lines]
            drawn = ax.scatter(values, lines, s=22, color=colour, marker="o" if is_last else "x", label=label)
            if is_last:
                self.scatter_ = drawn
        if self.chosen in shown:
            line = shown.index(self.chosen)
            self.chosen_ = ax.plot(
                found[self.chosen][1], line, "*", ms=13, color=ORANGE, mec=ink(), mew=0.6, label="chosen"
            )[0]
        ax.set_yticks(range(len(shown)), shown, fontsize=SMALL)
        ax.set_xscale("symlog", linthresh=1.0)
        most = max((above for _, above in found.values()), default=1.0)
        ax.set(xlabel="score above the best of its stage (nats)", xlim=(-0.2, 1.5 * most + 0.5))
        ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
        ax.grid(axis="y", lw=0.3)
        left = f"; {len(order) - len(shown)} more were tried" if len(order) > len(shown) else ""
        told = {"title": f"chosen: {self.chosen} map{left}", "title_fontsize": SMALL, "ncols": 3}
        legend(ax, loc="lower right", bbox_to_anchor=(1.0, 1.0), columnspacing=1.0, handletextpad=0.3, **told)
        return ax


def _stage(start: str) -> str:
    """Return which runs a run compares with."""
    if start.split(",")[0] in _OF_DIRECTIONS:
        return "directions"
    if start.endswith("finalist"):
        return "finalists"
    if start.endswith("half"):
        return "half"
    return "other" if start in ("polished", "rescaled", "compared", "held out") else "kernels"


def _norm(errors: Array) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = float(np.nanmin(errors)), float(np.nanmax(errors))
    if low > 0 and high > low:
        return LogNorm(low, high)
    return Normalize(low, high if high > low else low + 1.0)
