"""The final fit of a search: coefficients on all rows at the selected map.

A candidate of a search is a kernel, a map and a noise level.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.resume_journal import step
from hkrr._base.threads import single_threaded_blas
from hkrr.centers import uniform_or_all
from hkrr.estimators.fitted.conformal import Uncertainty, estimate_uncertainty
from hkrr.estimators.fitted.diagnostics import SolveDiagnostics, solve_diagnostics
from hkrr.estimators.search.candidates import Candidate, unchanged
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows, Rows
from hkrr.solvers import Result
from hkrr.solvers.driver import StopReason

# If there are at most EXACT_ROWS rows, all rows are centers. If there are more rows, CENTERS rows are centers.
EXACT_ROWS, CENTERS = 5_000, 2_000
# The numbers for kernel="auto" are larger, because kernel="auto" often selects non-smooth kernels (such as Laplace),
# which need more centers than smooth kernels.
EXACT_ROWS_ROUGH, CENTERS_ROUGH = 10_000, 4_000
# Maximum number of centers of a quick fit (see `quick_fit`), and of the model of a grid search after Ctrl-C.
QUICK_CENTERS = 500


class FinalFit(NamedTuple):
    """The objective, the result with the coefficients, the diagnostics of the solve, and the uncertainty.

    The uncertainty is None if it was not requested or could not be computed.
    """

    objective: Objective
    result: Result
    solve: SolveDiagnostics
    uncertainty: Uncertainty | None


def full_size(n_rows: int, smooth: bool) -> int:
    """Return the number of centers for ``refit="full"``.

    `smooth` says whether the kernel is known to be smooth. It is False for ``kernel="auto"``, which may select a
    non-smooth kernel.
    """
    exact, centers = (EXACT_ROWS, CENTERS) if smooth else (EXACT_ROWS_ROUGH, CENTERS_ROUGH)
    return n_rows if n_rows <= exact else centers


def final_fit(
    rows: Rows,
    winner: Candidate,
    result: Result,
    n_centers: int,
    rng: np.random.RandomState,
    with_uncertainty: bool,
    given: Rows | None = None,
) -> FinalFit:
    """Return the fit of the coefficients on all rows, at the map of `winner`, the selected candidate.

    `result` is the result of the run that found the map. The journal of the checkpoint (`hkrr._base.resume_journal`)
    stores the coefficients, the diagnostics of the solve and the uncertainty, so that a resumed fit does not have to
    solve again. Computing the uncertainty takes longer than computing the coefficients, so use
    ``with_uncertainty=False`` for a temporary fit. See `estimate_uncertainty` for `given`.
    """
    reg_lambda, B = winner.nu / rows.total_weight, winner.B
    with single_threaded_blas():
        objective = Objective(rows, uniform_or_all(rows, n_centers, rng), winner.kernel, reg_lambda)

    def compute() -> tuple[Array, SolveDiagnostics, Uncertainty | None]:
        uncertainty = None
        with single_threaded_blas():
            alpha, info = objective.solve(B)
            if with_uncertainty:
                uncertainty = estimate_uncertainty(objective, B, alpha, alpha, info, winner.shape, given)
            return alpha, solve_diagnostics(info, rows), uncertainty

    def is_fit(found: Any) -> bool:
        alpha, solve, uncertainty = found
        fits = isinstance(alpha, np.ndarray) and alpha.shape == (objective.n_centers, rows.n_targets)
        fits = fits and isinstance(solve, SolveDiagnostics) and all(isinstance(number, float) for number in solve)
        return fits and (uncertainty is None or isinstance(uncertainty, Uncertainty))

    alpha, solve, uncertainty = step(("final fit", objective.content, B), compute, is_valid=is_fit)
    result = replace(result, B=B, alpha=alpha, reg_lambda=reg_lambda)
    return FinalFit(objective, result, solve, uncertainty)


def quick_fit(sample: InMemoryRows, candidate: Candidate, with_uncertainty: bool) -> FinalFit:
    """Return a fast fit of a candidate, with at most 500 centers, to `sample`, the rows of the search.

    The fit uses a random number generator of its own, so that it does not change the random numbers of the search.
    """
    result = unchanged(candidate, 0.0, StopReason.INTERRUPTED)
    return final_fit(sample, candidate, result, QUICK_CENTERS, np.random.RandomState(0), with_uncertainty)
