"""What a search tells of its progress: what it tries now, and the best candidate so far.

`Report` is the search's end of it: it keeps the best candidates, which is what Ctrl-C leaves, and tells callbacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hkrr import journal
from hkrr._arrays import Array
from hkrr.candidates import Candidate
from hkrr.kernels import kernel_name


@dataclass(frozen=True)
class SearchState:
    """Where a search stands: what the callbacks of `HyperKernelRidgeCV` are given.

    Attributes
    ----------
    stage : str
        What is tried now, in words.
    seconds : float
        Since the fit began.
    n_components, kernel, shape, score
        Of the best candidate so far, as in ``path_``; None before there is one. Scores compare within a stage.
    n_found : int
        How many best candidates there were: another number is another one.
    """

    stage: str
    seconds: float
    n_components: int | None = None
    kernel: str | None = None
    shape: str | None = None
    score: float | None = None
    n_found: int = 0
    _predict: Callable[[Any], Array] | None = field(default=None, repr=False, compare=False)

    def predict(self, X: Any) -> Array:
        """Return the predictions of the best candidate so far, by a quick fit of its coefficients: 500 centers at most.

        The fit is made when it is asked for.
        """
        if self._predict is None:
            raise ValueError("nothing was found yet that could predict: n_components is None until then")
        return self._predict(X)


SearchCallback = Callable[[SearchState], Any]


class Enough(Exception):
    """Raised by a Report through a search, when a callback has ended it."""

    def __init__(self, best: Sequence[Candidate]) -> None:
        super().__init__("a callback ended the search")
        self.best = best


class Report:
    """Keeps the best candidates of a search, and tells callbacks of them.

    Parameters
    ----------
    callbacks : functions of a SearchState
    began : float
        When the fit began, by ``time.perf_counter``.
    fitted : function of a candidate
        Returns a fitted model of it, quickly.
    """

    def __init__(
        self,
        callbacks: Iterable[SearchCallback] = (),
        began: float = 0.0,
        fitted: Callable[[Candidate], Any] | None = None,
    ) -> None:
        self._callbacks, self._began, self._fitted = tuple(callbacks), began, fitted
        self._stage, self._over, self._ended = "starting", False, False
        self.best: list[Candidate] = []
        self._predict: Callable[[Any], Array] | None = None

    def trying(self, stage: str, last: bool = False) -> None:
        """Say what is tried from now on, and whether the search is over."""
        self._over |= last
        if stage != self._stage:
            self._stage = stage
            self._tell()

    def found(self, candidate: Candidate) -> None:
        """Say which candidate is the best so far."""
        if not self.best or candidate is not self.best[-1]:
            self.best.append(candidate)
            self._predict = self._predictor(candidate)
            self._tell()

    def _tell(self) -> None:
        if not self._callbacks:
            return
        state = self._state()
        with journal.paused():  # what a callback fits is no part of this fit
            answers = [callback(state) for callback in self._callbacks]
        self._ended |= any(isinstance(answer, bool | np.bool_) and answer for answer in answers)
        if self._ended and self.best and not self._over:  # as soon as there is something to end with
            raise Enough(self.best)

    def _state(self) -> SearchState:
        seconds = time.perf_counter() - self._began
        if not self.best:
            return SearchState(self._stage, seconds)
        best, n_found = self.best[-1], len(self.best)
        name, shape = kernel_name(best.kernel), best.shape.name
        return SearchState(self._stage, seconds, best.n_components, name, shape, best.score, n_found, self._predict)

    def _predictor(self, candidate: Candidate) -> Callable[[Any], Array]:
        """Return a function that predicts with the candidate, which is fitted when it is called first."""
        fitted, models = self._fitted, list[Any]()

        def predict(X: Any) -> Array:
            assert fitted is not None
            if not models:
                with journal.paused():
                    models.append(fitted(candidate))
            predicted: Array = models[0].predict(X)
            return predicted

        return predict


def in_words(starts: Sequence[Candidate]) -> str:
    """Return what a batch of runs tries: how many maps, of which shapes, with which kernels."""
    shapes = {"identity": "plain kernel ridge", "diagonal": "a scale for each column", "full": "directions"}
    kinds = list(dict.fromkeys(shapes[start.shape.name] for start in starts))
    kernels = list(dict.fromkeys(kernel_name(start.kernel) for start in starts))
    final = "finalists: " if all("finalist" in start.start for start in starts) else ""
    which = kernels[0] if len(kernels) == 1 else f"{len(kernels)} kernels"
    return f"{final}{' and '.join(kinds)}, {which}"
