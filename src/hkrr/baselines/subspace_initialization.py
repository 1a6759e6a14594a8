"""A classical estimate of the subspace as the start of HyperKernelRidge: ``init="sir"`` and its like."""

from __future__ import annotations

import numpy as np

from hkrr._arrays import Array
from hkrr.baselines.inverse_moments import PHD, SAVE, SIR
from hkrr.baselines.local_linear import MAVE, OPG
from hkrr.rows import InMemoryRows

# Rows that the estimate is made from, at most: a start need not be exact.
_ROWS = 4000


def starting_map(name: str, rows: InMemoryRows, n_components: int, rng: np.random.RandomState) -> Array:
    """Return the estimate of that name ("sir", "save", "phd", "opg" or "mave"), divided by its spectral norm.

    From at most 4,000 rows, those with a weight of zero left out; other weights do not count. Several targets are
    refused: each would have directions of its own.
    """
    if rows.n_targets > 1:
        raise ValueError(f"init={name!r} needs one target, and y has {rows.n_targets}; use init='random' or an array")
    X, Y, _ = rows.subset(rows.draw(_ROWS, rng)).gather()
    y = Y[:, 0]
    if name in ("opg", "mave"):
        B = {"opg": OPG, "mave": MAVE}[name](n_components, random_state=rng).fit(X, y).components_
    else:
        B = {"sir": SIR, "save": SAVE, "phd": PHD}[name](n_components).fit(X, y).components_
    return np.asarray(B / np.linalg.norm(B, 2))
