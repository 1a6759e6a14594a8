"""A criterion over groups of rows, each by itself: most of what many rows say, for the price of few."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from hkrr._arrays import Array
from hkrr.criteria.base import Criterion
from hkrr.kernels import Kernel
from hkrr.objective import Reduced
from hkrr.rows import InMemoryRows
from hkrr.threads import in_threads


class Grouped:
    """The mean over G disjoint groups of rows of an exact criterion, at the same map and the same noise nu.

    Exact criteria cost n^3: G groups of n rows cost G n^3 where one of G n rows would cost G^3 n^3, and they are
    independent, so threads share them. As the evidence of the groups it is a composite likelihood, the one that
    Deisenroth and Ng (2015) train distributed Gaussian processes by. Lambda counts over all the rows: nu = lambda W.

    Parameters
    ----------
    make : type of Criterion
    rows : InMemoryRows
        All the rows of the groups, the groups one after another.
    n_groups : int
    kernel : Kernel
    reg_lambda : float
        Where lambda begins; it is learned.
    n_threads : int

    Examples
    --------
    >>> from hkrr.criteria import Evidence, Grouped
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> data = make_mim_sines(100, n_features=5, n_components=2, random_state=0)
    >>> grouped = Grouped(Evidence, InMemoryRows(data.X, data.y), 4, Gaussian(gamma=1.0), 1e-3)
    >>> grouped.reduced(data.B).grad.shape
    (2, 5)
    """

    learn_lambda = True

    def __init__(
        self,
        make: type[Criterion],
        rows: InMemoryRows,
        n_groups: int,
        kernel: Kernel,
        reg_lambda: float,
        n_threads: int = 1,
    ) -> None:
        self.rows, self.kernel, self.reg_lambda, self._n_threads = rows, kernel, reg_lambda, n_threads
        self.n_groups = n_groups
        groups = [rows.subset(indices) for indices in np.array_split(np.arange(rows.n_rows), n_groups)]
        self._parts = [make(group, None, kernel, 1.0, True) for group in groups]
        self.squares = np.sum([part.squares for part in self._parts], axis=0)
        self.n_centers = max(part.n_centers for part in self._parts)
        self.loss_at_zero = float(np.mean([part.loss_at_zero for part in self._parts]))

    def at(self, reg_lambda: float, kernel: Kernel | None = None) -> Self:
        """Return the same criterion with another lambda to begin at, or another kernel."""
        other = copy.copy(self)
        other.reg_lambda = reg_lambda
        if kernel is not None:
            other.kernel = kernel
            other._parts = [part.at(1.0, kernel) for part in self._parts]
        return other

    @property
    def content(self) -> tuple[Any, ...]:
        """What its values depend on, for the keys of a journal."""
        return ("grouped", self.reg_lambda, *(part.content for part in self._parts))

    def on_threads(self, n_threads: int) -> Self:
        """Return the same criterion, its groups shared by this many threads."""
        other = copy.copy(self)
        other._n_threads = n_threads
        return other

    def first(self, n_groups: int) -> Self:
        """Return the criterion over the first so many groups."""
        if n_groups >= self.n_groups:
            return self
        other = copy.copy(self)
        other.n_groups, other._parts = n_groups, self._parts[:n_groups]
        n_rows = sum(part.rows.n_rows for part in other._parts)
        other.rows = self.rows.subset(np.arange(n_rows))
        other.squares = np.sum([part.squares for part in other._parts], axis=0)
        other.loss_at_zero = float(np.mean([part.loss_at_zero for part in other._parts]))
        return other

    def nats(self, value: float) -> float:
        """Return the criterion as minus a log likelihood for each row."""
        return self._parts[0].nats(value)

    def reduced(self, B: Array, reg_lambda: float | None = None) -> Reduced:
        """Return the mean of the groups' criteria and of their gradients in B and log lambda; no coefficients."""
        nu = (self.reg_lambda if reg_lambda is None else reg_lambda) * self.rows.total_weight

        def one(part: Criterion) -> Reduced:
            return part.reduced(B, nu / part.rows.total_weight)

        each = in_threads(one, self._parts, self._n_threads)
        shares = np.array([part.rows.total_weight for part in self._parts]) / self.rows.total_weight
        value = float(shares @ [part.value for part in each])
        slope = float(shares @ [part.grad_log_lambda for part in each])
        grad = np.tensordot(shares, np.stack([part.grad for part in each]), axes=1)
        return Reduced(value, grad, np.zeros((0, self.rows.n_targets)), slope)
