"""The table of all runs of a search, the attribute ``path_`` of a model, and functions that read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.estimators.search.candidates import COMPARE_KERNELS, FIND_DIRECTIONS, Candidate, Origin
from hkrr.kernels import kernel_name


class RunKind(NamedTuple):
    """The origin of the starting map of a run, and whether the candidate was dropped after a short run."""

    origin: Origin
    dropped: bool
    round: int  # 1, 2 or 3: round of the comparison of kernels, only for runs of models saved by version 0.1


# The origins by their labels. The last three labels are those of version 0.1, whose search added directions one at a
# time ("grown"), removed them one at a time ("shrunk"), and truncated square maps ("square, cut").
_ORIGINS = {str(origin): origin for origin in Origin}
_ORIGINS |= {"grown": Origin.WIDENED, "shrunk": Origin.CUT, "square, cut": Origin.SQUARE}
# The kind of each run, by its label in ``path_["start"]``. Version 0.1 compared kernels in three rounds. Its labels of
# the first round, which used the fewest rows, end in ", half", and those of the last round in ", finalist".
RUN_KINDS = {
    label + suffix: RunKind(origin, suffix == ", dropped", number)
    for label, origin in _ORIGINS.items()
    for suffix, number in {"": 2, ", dropped": 2, ", half": 1, ", finalist": 3}.items()
}


def path_table(candidates: Sequence[Candidate], total_weight: float) -> dict[str, list[Any]]:
    """Return the columns of ``path_``, with one entry for each candidate.

    Lambda is nu divided by `total_weight`, the weight of all rows. Gamma is the scale of the kernel after the map is
    divided by its norm.
    """
    return {
        "start": [one.label for one in candidates],
        "kernel": [kernel_name(one.kernel) for one in candidates],
        "shape": [one.shape.name.value for one in candidates],
        "n_components": [one.n_components for one in candidates],
        "n_rows": [one.n_rows for one in candidates],
        "n_centers": [one.n_centers for one in candidates],
        "reg_lambda": [one.nu / total_weight for one in candidates],
        "gamma": [one.kernel.scale * one.norm**2 for one in candidates],
        "criterion": [one.value for one in candidates],
        "score": [one.score for one in candidates],
        "seconds": [one.seconds for one in candidates],
    }


def comparable_runs(path: dict[str, Any]) -> Array:
    """Return which runs of the attribute ``path_`` have comparable scores, as a boolean array.

    These are the runs of the search over the number of directions that ended with a finite score and were not stopped
    early. Among these runs, only those with the largest number of centers are comparable.
    """
    kinds = [RUN_KINDS.get(label) for label in path["start"]]  # None for a label that only a later version of hkrr uses
    searched = [kind is not None and kind.origin in FIND_DIRECTIONS and not kind.dropped for kind in kinds]
    found = np.array(searched, dtype=bool) & np.isfinite(np.asarray(path["score"], dtype=np.float64))
    # Models saved by earlier versions have no column "n_centers".
    centers = np.array([n or 0 for n in path.get("n_centers", [0] * len(kinds))])
    return found & (centers == np.max(centers[found], initial=0))


def race_rows(path: dict[str, Any]) -> Array:
    """Return the number of rows of each run of ``path_`` in the comparison of kernels and shapes.

    The number is 0 for all other runs. Only runs with the same number of rows are comparable. If a search with
    heavy-tailed noise followed a search with normal noise, the number is also 0 for the runs of the first search.
    Models saved by version 0.1 have no column "n_rows". For these models, the result contains 1, 2 or 3 for the first,
    second or third round of the comparison, according to the suffix of the label.
    """
    kinds = [RUN_KINDS.get(label) for label in path["start"]]
    origins = [kind and kind.origin for kind in kinds]
    last = max((k for k, origin in enumerate(origins) if origin in FIND_DIRECTIONS), default=-1)
    in_race = [origin in COMPARE_KERNELS and k > last for k, origin in enumerate(origins)]
    numbers = path.get("n_rows", [kind and kind.round for kind in kinds])
    return np.where(in_race, [n or 0 for n in numbers], 0)
