"""The runs of a search over the number of directions whose scores can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.estimators.search.candidates import Stage, stage_of, was_dropped


def comparable_runs(path: dict[str, Any]) -> Array:
    """Return which runs of the attribute ``path_`` have comparable scores, as a boolean array.

    These are the runs of the search over the number of directions that ended with a finite score and were not stopped
    early. If these runs have different numbers of centers, only the runs with the most centers are comparable.
    """
    labels = path["start"]
    searched = [stage_of(label) is Stage.DIRECTIONS and not was_dropped(label) for label in labels]
    found = np.array(searched, dtype=bool) & np.isfinite(np.asarray(path["score"], dtype=np.float64))
    # Models saved by earlier versions have no such column.
    centers = np.array([n or 0 for n in path.get("n_centers", [0] * len(labels))])
    return found & (centers == np.max(centers[found], initial=0))
