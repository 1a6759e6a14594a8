"""The mean of an exact criterion over disjoint groups of rows, which costs far less than the criterion on all rows."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import in_threads
from hkrr.criteria.base import Criterion
from hkrr.kernels import Kernel
from hkrr.objective import Reduced
from hkrr.rows import InMemoryRows


class Grouped:
    """Mean of an exact criterion over G disjoint groups of rows, evaluated at the same map and the same nu.

    A criterion is exact if all rows are centers. Its cost is then cubic in the number of rows: G groups of n rows cost
    G n^3, while one group of all G n rows would cost G^3 n^3. The groups are independent and can be processed by
    several threads. For the evidence, the mean is the composite likelihood with which Deisenroth and Ng (2015) train
    distributed Gaussian processes. Lambda refers to all rows together: nu = lambda W, where W is the total weight of
    all groups. (nu is the ratio of the noise variance to the signal variance.)

    Parameters
    ----------
    make : subclass of Criterion
        The class of the criterion that is evaluated on each group.
    rows : InMemoryRows
        The rows of all groups. They are split into consecutive groups of (almost) equal size.
    n_groups : int
        Number of groups.
    kernel : Kernel
        The kernel k of latent points.
    reg_lambda : float
        Starting value of lambda. Lambda is always learned.
    n_threads : int, default=1
        Number of threads that process the groups.

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
    profiles_lambda = False

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
        """Return a copy that learns lambda, starting from ``reg_lambda``, with the given kernel if it is not None."""
        other = copy.copy(self)
        other.reg_lambda = reg_lambda
        if kernel is not None:
            other.kernel = kernel
            other._parts = [part.at(1.0, kernel) for part in self._parts]
        return other

    @property
    def content(self) -> tuple[Any, ...]:
        """Values that identify the criterion in the journal of a checkpoint (`hkrr._base.resume_journal`)."""
        return ("grouped", self.reg_lambda, *(part.content for part in self._parts))

    def nats(self, value: float) -> float:
        """Convert a value of the criterion to a negative log likelihood per row, in nats."""
        return self._parts[0].nats(value)

    def reduced(self, B: Array, reg_lambda: float | None = None) -> Reduced:
        """Return the mean of the criterion and of its gradient over the groups.

        Each group is weighted by the sum of its sample weights. The groups have no common coefficients, so ``alpha`` of
        the result is empty. If `reg_lambda` is None, the lambda of this object is used.
        """
        nu = (self.reg_lambda if reg_lambda is None else reg_lambda) * self.rows.total_weight

        def one(part: Criterion) -> Reduced:
            return part.reduced(B, nu / part.rows.total_weight)

        each = in_threads(one, self._parts, self._n_threads)
        shares = np.array([part.rows.total_weight for part in self._parts]) / self.rows.total_weight
        value = float(shares @ [part.value for part in each])
        slope = float(shares @ [part.grad_log_lambda for part in each])
        grad = np.tensordot(shares, np.stack([part.grad for part in each]), axes=1)
        return Reduced(value, grad, np.zeros((0, self.rows.n_targets)), slope)
