"""PathDisplay: the candidates (models) that a search compared."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import ShapeName
from hkrr.estimators.fitted.fitted_attributes import KernelAndMap
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.estimators.search.path_table import comparable_runs, race_rows
from hkrr.plotting._model_in_pipeline import unwrap
from hkrr.plotting._style import BLUE, GREY, ORANGE, SEQUENTIAL, SIZE, SMALL, VERMILION, axes, ink, legend, note

# Maximum number of combinations of a kernel and a map in the plot. Chosen combinations are always shown.
_MOST_LINES = 16


class PathDisplay:
    """The candidates of a search, with a star at each chosen candidate.

    The model is a `HyperKernelRidgeCV`, a `HyperKernelEnsemble` or a `HyperKernelClassifier`.

    The plot depends on how the model was chosen:

    - With `cv`, the plot shows the held-out error over the grid of the number of directions d and the regularization
      lambda. If lambda has a single value or is learned, the error is shown over d alone.
    - Without `cv`, the plot shows the directions of the map. Bars show the singular values of the map before
      superfluous directions were cut off. A singular value measures how much a direction matters. The directions to the
      right of the cut were removed. There are no bars if the chosen map was not cut from a larger one. For each number
      of directions d, the line shows the best score (BIC in nats) minus the lowest score over all d. Lower is better.
    - For an ensemble or a classifier, and with ``kernel="auto"``, the search compares combinations of a kernel and a
      map in several rounds. Each round uses more rows than the round before, and eliminates the worst combinations. The
      plot shows one score for each combination: its best score in the last round that it reached, minus the best score
      of all combinations in that round. Scores of different rounds are not comparable. If a few directions are far
      better than all other maps, there are no rounds, and the plot shows the directions.

    Parameters
    ----------
    table : dict of lists or arrays
        The attribute ``cv_results_`` or ``path_`` of the model.
    n_components : int
        Chosen number of directions.
    reg_lambda : float
        Chosen regularization.
    chosen : dict of (str, str, int) to float
        The chosen combinations and their weights. A key contains the name of the kernel, the shape of the map and the
        number of directions. For a single model, there is one key, with the weight 1. For an ensemble, there is a key
        for each member. Members with the same key share an entry, with the sum of their weights.
    spectrum : array or None, default=None
        The attribute ``spectrum_`` of the model, or None if the model has no such attribute.
    given : bool, default=False
        Whether the number of directions was given by the user.

    Attributes
    ----------
    image_ : matplotlib AxesImage or None
        The errors on the grid.
    scatter_ : matplotlib PathCollection or None
        The best score for each d, or for each combination of a kernel and a map.
    bars_ : matplotlib BarContainer or None
        The singular values.
    chosen_ : matplotlib artist or None
        The stars at the chosen candidates; None if they are not in the plot.
    ax_ : matplotlib Axes
        The axes of the plot.
    figure_ : matplotlib Figure
        The figure that holds the axes.

    Examples
    --------
    >>> from hkrr import HyperKernelRidgeCV
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.plotting import PathDisplay
    >>> data = make_mim_sines(100, n_features=5, n_components=2, random_state=0)
    >>> model = HyperKernelRidgeCV([1, 2, 3], cv="holdout", reg_lambdas=[1e-1, 1e-2, 1e-3, 1e-4], criterion="training",
    ...                            n_init=1, random_state=0).fit(data.X, data.y)
    >>> PathDisplay.from_estimator(model).image_.get_array().shape
    (3, 4)
    """

    image_: Any
    scatter_: Any
    bars_: Any
    chosen_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        *,
        table: dict[str, Any],
        n_components: int,
        reg_lambda: float,
        chosen: dict[KernelAndMap, float],
        spectrum: Any = None,
        given: bool = False,
    ) -> None:
        self.table, self.n_components, self.reg_lambda, self.chosen = table, n_components, reg_lambda, chosen
        self.spectrum, self.given = spectrum, given

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the candidates of the search of a fitted model.

        Parameters
        ----------
        estimator : fitted HyperKernelRidgeCV, HyperKernelEnsemble or HyperKernelClassifier
            The model, or a `TableRegressor`, a Pipeline or a GridSearchCV that contains such a model.
        ax : matplotlib Axes or None, default=None
            Axes to draw into. If None, a new figure is created.

        Returns
        -------
        PathDisplay
        """
        found = unwrap(estimator)
        first, ensemble = found.with_map, found.ensemble
        model = first if ensemble is None else ensemble
        table = getattr(model, "cv_results_", getattr(model, "path_", None))
        if table is None or not isinstance(first, HyperKernelRidgeCV):
            raise TypeError(
                "estimator must be a HyperKernelRidgeCV, a HyperKernelEnsemble or a HyperKernelClassifier; "
                f"a {type(model).__name__} has no search to draw"
            )
        chosen: dict[KernelAndMap, float] = {}
        members, weights = ([first], [1.0]) if ensemble is None else (ensemble.members_, ensemble.weights_)
        for member, weight in zip(members, weights, strict=True):
            key = KernelAndMap.of(member)
            chosen[key] = chosen.get(key, 0.0) + float(weight)
        display = cls(
            table=table,
            n_components=first.n_components_,
            reg_lambda=first.reg_lambda_,
            chosen=chosen,
            spectrum=getattr(first, "spectrum_", None),
            given=not isinstance(first.n_components, str) and np.size(first.n_components) == 1,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the candidates; see `from_estimator` for the parameters."""
        self.image_ = self.scatter_ = self.bars_ = self.chosen_ = None
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
        errors = np.where(np.isfinite(errors), errors, np.nan)  # the cell of a failed fit stays empty
        ax = axes(ax)
        # A logarithmic colour scale separates the small errors, which decide the choice.
        self.image_ = ax.imshow(errors, cmap=f"{SEQUENTIAL}_r", norm=_norm(errors), aspect="auto", origin="lower")
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
        """Draw the held-out errors over d. This plot is used if lambda has a single value or is learned."""
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
        """Draw the singular values of the kept and the removed directions, and the best score for each d."""
        d, score = self._best_scores()
        ax = axes(ax)
        scores = ax
        if self.spectrum is not None:
            k = np.arange(1, len(self.spectrum) + 1)
            colours = [BLUE if one <= self.n_components else GREY for one in k]
            self.bars_ = ax.bar(k, self.spectrum, color=colours, width=0.7, alpha=0.8)
            ax.axvline(self.n_components + 0.5, color=VERMILION, ls="--", lw=1.2)
            ax.annotate(
                f"cut: {self.n_components} of {len(self.spectrum)} kept",
                (self.n_components + 0.5, 1.03),
                xytext=(4, 2),
                textcoords="offset points",
                color=VERMILION,
                fontsize=SMALL,
            )
            ax.set(ylabel="bars: size of each direction", ylim=(0.0, 1.12))
            scores = ax.twinx()
            scores.grid(visible=False)
        above = score - np.min(score, initial=np.inf)
        scores.plot(d, above, color=ORANGE, lw=1.5, zorder=3)
        self.scatter_ = scores.scatter(d, above, s=20, color=ORANGE, zorder=3)
        # If the search chose a map without directions, n_components is the number of columns, and no point of the line
        # belongs to the chosen map.
        at = (d == self.n_components) & self._chose_directions
        if np.any(at):
            self.chosen_ = scores.plot(d[at], above[at], "*", ms=14, color=ORANGE, mec=ink(), mew=0.6, zorder=4)[0]
        label = "score above the lowest (BIC, in nats)"
        scores.set_ylabel(label if self.spectrum is None else f"line: {label}", color=ORANGE)
        top = 1.5 * np.max(above, initial=0.0) or 1.0
        if top > 10.0:
            scores.set_yscale("symlog", linthresh=10.0)
        scores.set_ylim(-min(2.0, 0.1 * top), top)
        n_bars = 0 if self.spectrum is None else len(self.spectrum)
        places = [*d, *range(1, n_bars + 1)] or [self.n_components]
        ax.set(xlabel="directions d", xlim=(min(places) - 0.6, max(places) + 0.6))
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        note(ax, self._note_on_directions(d))
        return ax

    @property
    def _chose_directions(self) -> bool:
        """Whether the chosen map has the shape "full". Use this property only if the search tried a single kernel."""
        return (self.table["kernel"][0], ShapeName.FULL, self.n_components) in self.chosen

    def _note_on_directions(self, d: Array) -> str:
        """Return a note on the chosen map. `d` holds the tried numbers of directions for which there is a score."""
        name = KernelAndMap(*next(iter(self.chosen)))
        if len(d) == 0:
            text = f"chosen: {name}; no scores to compare"
        elif not self._chose_directions:
            text = f"chosen: {name} map of all {self.n_components} columns, better than any d shown"
        elif self.given:
            text = f"d = {self.n_components} was given (star)"
            text += "; larger maps only served as starts" if len(d) > 1 else ""
        else:
            text = f"chosen (star): {name}"
            text += "; no other d was tried" if len(d) == 1 else ""
        n_failed = int(np.sum(~np.isfinite(self._column("score"))))
        if n_failed:
            text += f"; {n_failed} run{'s' if n_failed > 1 else ''} failed"
        return text

    def _best_scores(self) -> tuple[Array, Array]:
        """Return each number of directions d that the search tried, and the best score for each d.

        Only scores of runs with the same number of centers are comparable, so only the runs with the most centers are
        used.
        """
        d, scores = self._column("n_components"), self._column("score")
        counted = comparable_runs(self.table)
        tried = np.unique(d[counted])
        return tried, np.array([np.min(scores[counted & (d == k)]) for k in tried])

    def _column(self, name: str) -> Array:
        return np.asarray(self.table[name])

    def _draw_kernels(self, ax: Any) -> Any:
        """Draw the best score of each combination of a kernel and a map.

        The score is taken from the last round that the combination reached. The best score of all candidates in that
        round is subtracted.
        """
        scores, n_rows = self._column("score"), race_rows(self.table)
        columns = (self.table[name] for name in ("kernel", "shape", "n_components"))
        keys = [KernelAndMap(*run) for run in zip(*columns, strict=True)]
        found: dict[KernelAndMap, tuple[int, float]] = {}
        for number in np.unique(n_rows[n_rows > 0]).tolist():
            runs = np.flatnonzero(np.isfinite(scores) & (n_rows == number))
            worst_first = runs[np.argsort(-scores[runs], kind="stable")].tolist()
            found |= {keys[k]: (number, float(scores[k] - scores[worst_first[-1]])) for k in worst_first}
        order = sorted(found, key=lambda key: (-found[key][0], found[key][1]))
        shown = [key for place, key in enumerate(order) if place < _MOST_LINES or key in self.chosen]
        ax = axes(ax, (SIZE[0], max(2.2, 1.0 + 0.2 * len(shown))))
        last = max((number for number, _ in found.values()), default=0)
        for is_last, colour, label in ((True, BLUE, "in the last round"), (False, VERMILION, "eliminated earlier")):
            lines = [line for line, key in enumerate(shown) if (found[key][0] == last) == is_last]
            values = [found[shown[line]][1] for line in lines]
            if lines or is_last:
                drawn = ax.scatter(values, lines, s=22, color=colour, marker="o" if is_last else "x", label=label)
                self.scatter_ = drawn if is_last else self.scatter_
        stars = [(found[key][1], line) for line, key in enumerate(shown) if key in self.chosen]
        several = len(self.chosen) > 1
        if stars:
            label = "member, weight" if several else "chosen"
            self.chosen_ = ax.plot(
                *zip(*stars, strict=True), "*", ms=13, color=ORANGE, mec=ink(), mew=0.6, label=label
            )[0]
        for star in stars if several else ():
            beside = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "fontsize": SMALL}
            ax.annotate(f"{self.chosen[shown[star[1]]]:.2f}", star, **beside)
        ax.set_yticks(range(len(shown)), map(str, shown), fontsize=SMALL)
        ax.set_xscale("symlog", linthresh=1.0)
        most = max((above for _, above in found.values()), default=1.0)
        ax.set(xlabel="score minus best of its round (nats)", xlim=(-0.2, 3.0 * most + 0.5))
        ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
        ax.grid(axis="y", lw=0.3)
        first = KernelAndMap(*next(iter(self.chosen)))
        text = f"chosen: {len(self.chosen)} members of an ensemble" if several else f"chosen: {first}"
        text += f"; {len(order) - len(shown)} more not shown" if len(order) > len(shown) else ""
        title = {"title": text, "title_fontsize": SMALL, "ncols": 3}
        legend(ax, loc="lower right", bbox_to_anchor=(1.0, 1.0), columnspacing=1.0, handletextpad=0.3, **title)
        return ax


def _norm(errors: Array) -> Any:
    """Return a logarithmic colour norm, or a linear norm if an error is not positive or all errors are equal."""
    from matplotlib.colors import LogNorm, Normalize

    low, high = float(np.nanmin(errors)), float(np.nanmax(errors))
    if low > 0 and high > low:
        return LogNorm(low, high)
    return Normalize(low, high if high > low else low + 1.0)
