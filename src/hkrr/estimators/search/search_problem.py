"""The input of a search, and the resources that all stages of the search share.

A candidate of the search is a kernel, a map and a noise level. A run is one optimization that improves a candidate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.criteria import Criterion, Grouped
from hkrr.estimators.search.candidates import Candidate, count_workers, improve_each
from hkrr.estimators.search.progress import Progress
from hkrr.estimators.search.stacking import Stacking
from hkrr.kernels import Kernel
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.in_memory import in_memory


@dataclass(frozen=True)
class SearchProblem:
    """The input of a search: rows, criterion, dimensions to try, and resources.

    Attributes
    ----------
    rows : InMemoryRows
        The rows on which the search runs, standardized.
    make : type of Criterion
        Class of the criterion.
    dimensions : sequence of int
        Dimensions to try, that is, values for the number of directions, in increasing order.
    choose_dimension : bool
        Whether the number of directions is selected automatically (``n_components="auto"``). If True, the search
        need not try all `dimensions`, and plain kernel ridge regression or a diagonal map may be selected.
    n_starts : int
        Number of random starting maps.
    rng : RandomState
        Random number generator of the search.
    represented_weight : float or None
        Total weight of all rows of the fit. None means that `rows` contains all rows, not only a sample.
    n_jobs, n_threads : int
        Numbers of joblib workers (see `count_workers`) and of threads.
    deadline : float
        Time (of ``time.perf_counter``) at which the search stops.
    progress : Progress
        Object whose methods are called for each stage and for each new best candidate.
    place : callable
        Function that moves rows to the device on which the criteria are evaluated.
    stacking : Stacking or None
        How the weights of an ensemble are computed after the search. None if the result is a single model.
    ranks : ColumnTransform or None
        The transform of the columns to normal scores, for candidates that use it. None if there are no such candidates.
    """

    rows: InMemoryRows
    make: type[Criterion]
    dimensions: Sequence[int]
    choose_dimension: bool
    n_starts: int
    rng: np.random.RandomState
    represented_weight: float | None = None
    n_jobs: int | None = None
    n_threads: int = 1
    deadline: float = math.inf
    progress: Progress = field(default_factory=Progress)
    place: Callable[[InMemoryRows], Rows] = in_memory
    stacking: Stacking | None = None
    ranks: ColumnTransform | None = None

    @cached_property
    def on_ranks(self) -> SearchProblem:
        """The same problem on rows whose columns are transformed to normal scores."""
        return replace(self, rows=self.with_columns(self.rows, True).count_free_columns())

    def with_columns(self, rows: InMemoryRows, ranked: bool) -> InMemoryRows:
        """Return rows of the problem, with transformed columns if `ranked` is True."""
        return rows.with_coordinates(None, None, rows.y_offset, self.ranks) if ranked else rows

    def of(self, candidate: Candidate) -> SearchProblem:
        """Return the problem on the rows that a candidate uses: with or without transformed columns."""
        return self.on_ranks if candidate.ranked else self

    def improve_each(self, on: Criterion | Grouped, starts: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Improve each candidate in `starts` by at most `max_iter` iterations on a criterion.

        The improved candidates are returned in the same order. The runs use the workers and threads of the search, and
        stop at its deadline.
        """
        return improve_each(on, starts, max_iter, self.deadline, n_jobs=self.n_jobs, n_threads=self.n_threads)

    def criterion(self, rows: InMemoryRows, centers: Array | None, kernel: Kernel) -> Criterion:
        """Return the criterion on rows, moved to the device. All rows are centers if `centers` is None."""
        return self.make(self.place(rows), centers, kernel, 1.0, True)

    @property
    def total_weight(self) -> float:
        """The total weight of all rows of the fit, even if the search uses only a sample of these rows."""
        return self.rows.total_weight if self.represented_weight is None else self.represented_weight

    def with_share(self, share: float) -> SearchProblem:
        """Return the same problem with a new deadline, at which the fraction `share` of the time left has passed."""
        return replace(self, deadline=time.perf_counter() + share * self.seconds_left)

    @property
    def of_classes(self) -> bool:
        """Whether the targets are indicators of classes."""
        return self.stacking is not None and self.stacking.of_classes

    @property
    def on_gpu(self) -> bool:
        """Whether the criteria are evaluated on a GPU."""
        return self.place(self.rows.subset(np.arange(1))).pays_to_batch

    @property
    def n_parallel(self) -> int:
        """The number of runs that are made at the same time."""
        n_workers = count_workers(self.n_jobs)
        return n_workers if n_workers > 1 else self.n_threads

    @property
    def seconds_left(self) -> float:
        """The number of seconds before the deadline."""
        return self.deadline - time.perf_counter()

    @property
    def in_time(self) -> bool:
        """Whether there is time left before the deadline."""
        return self.seconds_left > 0.0
