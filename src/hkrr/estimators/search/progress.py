"""Progress of a search: its current stage and its best candidate so far.

A candidate is a kernel, a map and a noise level that the search has optimized.

`Progress` calls the user's callbacks and records each new best candidate. After Ctrl-C, the best candidate so far
becomes the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Protocol

import numpy as np

from hkrr._base import resume_journal as journal
from hkrr._base.linear_algebra import Array
from hkrr._maps import Diagonal, Full
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.kernels import kernel_name


class Phase(Enum):
    """What a search does in a stage. Several stages can have the same phase, for example with different kernels."""

    STARTS = auto()  # optimization of starting maps with many directions
    CUT = auto()  # truncation to the directions that matter
    WIDENING = auto()  # search for further directions, in addition to those of the best map
    POLISHING = auto()  # refinement of the best directions on all rows of the search
    AGAINST_PLAIN = auto()  # comparison with plain kernel ridge regression
    KERNELS = auto()  # first round of the comparison of kernels and shapes of the map
    FINALISTS = auto()  # later rounds of the comparison of kernels and shapes, on more rows
    WEIGHTS = auto()  # weights of the members of an ensemble
    HELD_OUT_CHECK = auto()  # check of the directions on held-out rows
    FINAL_FIT = auto()  # fit on all rows


# Phases in which the best candidate of a search has been found, and is refined or checked.
_LATE_PHASES = (
    Phase.POLISHING,
    Phase.AGAINST_PLAIN,
    Phase.FINALISTS,
    Phase.HELD_OUT_CHECK,
    Phase.WEIGHTS,
    Phase.FINAL_FIT,
)


@dataclass(frozen=True)
class SearchState:
    """The state of a search, which is passed to the callbacks of `HyperKernelRidgeCV` and `HyperKernelEnsemble`.

    `stage` is the name of the current stage, and `seconds` is the time since the start of the fit. `n_components`,
    `kernel`, `shape` and `score` describe the best candidate so far, as in ``path_``. They are None until the first
    candidate is found. Scores are comparable only within a stage. `n_found` counts how often a new best candidate was
    found. `phase` is what the search does in the current stage. It is None before the first stage.
    """

    stage: str
    seconds: float
    n_components: int | None = None
    kernel: str | None = None
    shape: str | None = None
    score: float | None = None
    n_found: int = 0
    phase: Phase | None = None
    _predict: Callable[[Any], Array] | None = field(default=None, repr=False, compare=False)

    def predict(self, X: Any) -> Array:
        """Return the predictions of the best candidate so far.

        The coefficients of the candidate are fitted on the first call, with at most 500 centers.
        """
        if self._predict is None:
            raise ValueError("no candidate was found yet: call predict only if n_components is not None")
        return self._predict(X)


SearchCallback = Callable[[SearchState], Any]


class SearchStopped(Exception):
    """Raised by `Progress` when a callback has returned True.

    The attribute ``best`` is the list `Progress.best`. The last entry of this list is the best candidate so far.
    """

    def __init__(self, best: Sequence[Candidate]) -> None:
        super().__init__("a callback stopped the search")
        self.best = best


class Predictor(Protocol):
    """Any fitted model with a method `predict`."""

    def predict(self, X: Any) -> Array:
        """Return the predictions."""


class Progress:
    """Records each new best candidate of a search and calls the callbacks.

    The callbacks are called at the start of each stage and for each new best candidate. `began` is the time (of
    ``time.perf_counter``) at which the fit started. ``fit_candidate(candidate, omega)`` returns a model with the map of
    a candidate. It should be fast. Its argument omega contains the weights of heavy-tailed noise, or is None for normal
    noise. If `fit_candidate` is None, callbacks cannot call ``SearchState.predict``. If `verbose` is above 0, a line is
    printed for each stage, and when the description of the best candidate changes.
    """

    def __init__(
        self,
        callbacks: Iterable[SearchCallback] = (),
        began: float = 0.0,
        fit_candidate: Callable[[Candidate, Array | None], Predictor] | None = None,
        verbose: int = 0,
    ) -> None:
        self._verbose, self._described, self._on_hold = verbose, "", False
        self._callbacks, self._began, self._fit_candidate = tuple(callbacks), began, fit_candidate
        self._current, self._stop = SearchState("starting", 0.0), False
        self.best: list[Candidate] = []  # each new best candidate, in the order of discovery
        # Weights of the heavy-tailed (Student-t) noise in this search; None for normal noise.
        self.omega: Array | None = None
        self.omega_of_best: Array | None = None  # the value of `omega` when the best candidate was found
        self._predict: Callable[[Any], Array] | None = None

    def begin(self, stage: str, phase: Phase) -> None:
        """Start a stage and call the callbacks. In the phase FINAL_FIT, callbacks can no longer stop the search."""
        if phase in _LATE_PHASES:
            self._on_hold = False
        if (stage, phase) != (self._current.stage, self._current.phase):
            self._current = SearchState(stage, 0.0, phase=phase)
            self.print(stage)
            self._notify()

    def hold(self) -> None:
        """Record no further candidates until this search begins to refine or check its best candidate.

        Until then, the best candidate is that of an earlier search. If there was no earlier search, do nothing.
        """
        self._on_hold = bool(self.best)

    def found(self, candidate: Candidate) -> None:
        """Record a new best candidate and call the callbacks."""
        if self._on_hold:
            return
        if not self.best or candidate is not self.best[-1]:
            self.best.append(candidate)
            self.omega_of_best = self.omega
            self._predict = self._predictor(candidate)
            if (described := _describe(candidate)) != self._described:
                self.print(f"    best so far: {described}")
            self._described = described
            self._notify()

    def print(self, text: str) -> None:
        """Print a line with the time since the start of the fit, if the search is verbose."""
        if self._verbose:
            print(f"{time.perf_counter() - self._began:7.1f} s  {text}", flush=True)

    def _notify(self) -> None:
        if not self._callbacks:
            return
        state = self._state()
        # If a callback fits a model, its fit must not be recorded in the checkpoint of the current fit
        # (`hkrr._base.resume_journal`).
        with journal.paused():
            answers = [callback(state) for callback in self._callbacks]
        self._stop |= any(isinstance(answer, bool | np.bool_) and answer for answer in answers)
        # If a callback returns True before there is a candidate, the search continues until it has found one.
        if self._stop and self.best and self._current.phase is not Phase.FINAL_FIT:
            raise SearchStopped(self.best)

    def _state(self) -> SearchState:
        state = replace(self._current, seconds=time.perf_counter() - self._began)
        if not self.best:
            return state
        best = self.best[-1]
        return replace(
            state,
            n_components=best.n_components,
            kernel=kernel_name(best.kernel),
            shape=best.shape.name.value,
            score=best.score,
            n_found=len(self.best),
            _predict=self._predict,
        )

    def _predictor(self, candidate: Candidate) -> Callable[[Any], Array]:
        """Return a function that maps rows X to the predictions of a candidate.

        The returned function fits the coefficients of the candidate when it is first called.
        """
        fit_candidate, omega, models = self._fit_candidate, self.omega, list[Predictor]()

        def predict(X: Any) -> Array:
            assert fit_candidate is not None
            if not models:
                with journal.paused():
                    models.append(fit_candidate(candidate, omega))
            return models[0].predict(X)

        return predict


def _describe(candidate: Candidate) -> str:
    """Return a description of a candidate, with the singular values before the cut if directions were cut off."""
    if isinstance(candidate.shape, Full):
        d = candidate.n_components
        text = f"{d} direction{'s' if d > 1 else ''}"
        if candidate.spectrum is not None:
            text += f" of {len(candidate.spectrum)}"
    elif candidate.origin is Origin.MEAN:
        return "the mean of y"
    else:
        text = "one scale per column" if isinstance(candidate.shape, Diagonal) else "plain kernel ridge regression"
    text += f", {kernel_name(candidate.kernel)} kernel"
    if candidate.spectrum is not None:
        sizes = [f"{value:.2f}" for value in candidate.spectrum]
        sizes.insert(candidate.n_components, "|")
        text += f"; singular values before the cut: {' '.join(sizes)}"
    return text
