"""Initial maps from classical subspace estimators, for ``HyperKernelRidge(init="sir")`` and similar options."""

from __future__ import annotations

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.baselines._subspace_estimator import SubspaceEstimator
from hkrr.baselines.inverse_regression import PHD, SAVE, SIR
from hkrr.baselines.local_linear_gradients import MAVE, OPG
from hkrr.rows import InMemoryRows

# Maximum number of rows to which the estimators are fitted. More rows are not needed, because an initial map need not
# be accurate.
_MAX_ROWS = 4000


def subspace_map(name: str, rows: InMemoryRows, n_components: int, rng: np.random.RandomState) -> Array:
    """Return the map (n_components, n_features) of a subspace estimator, divided by its spectral norm.

    The estimator is fitted to at most 4,000 rows. Rows with weight zero are excluded. The weights of all other rows are
    ignored. A ValueError is raised if there are several targets, because the estimators support only one.

    Parameters
    ----------
    name : {"sir", "save", "phd", "opg", "mave"}
        Name of the subspace estimator.
    rows : InMemoryRows
        The training rows.
    n_components : int
        Number of directions.
    rng : RandomState
        Random generator that draws the subsample of rows, and the anchor rows of OPG and MAVE.
    """
    if rows.n_targets > 1:
        raise ValueError(
            f"init={name!r} needs one target, but y has {rows.n_targets} targets; use init='random' or an array"
        )
    X, Y, _ = rows.sample(_MAX_ROWS, rng).gather()
    estimator: SubspaceEstimator
    if name in ("opg", "mave"):
        estimator = {"opg": OPG, "mave": MAVE}[name](n_components, random_state=rng)
    else:
        estimator = {"sir": SIR, "save": SAVE, "phd": PHD}[name](n_components)
    B = estimator.fit(X, Y[:, 0]).components_
    return np.asarray(B / np.linalg.norm(B, 2))
