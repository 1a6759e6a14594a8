"""What is known of a solve once it is done: its condition, and the effective dimension of the function.

With A the positive definite system that gave the coefficients, L its Cholesky factor and R lambda's part of it,

    with all rows as centers            A = sqrt(w) K sqrt(w) + lambda W I,      R = lambda W I
    with centers, lambda >= 1e-4 kappa  A = K'WK / W + lambda K_cc,              R = lambda K_cc
    with centers, below                 A = T^-1 K'WK T^-T / W + lambda I,       R = lambda I    (T T' = K_cc)

the effective dimension is ``d_eff = tr A^-1 (A - R) = c - tr L^-1 R L^-T``, the trace of the hat matrix: how many
parameters the function has. Beyond 512 centers the trace is an average over 64 random signs z of ``z' L^-1 R L^-T z``
(Hutchinson's): off by ``sqrt(d_eff / 32)`` at most, one standard deviation, as the eigenvalues of the hat matrix are
between 0 and 1. The condition number is LAPACK's estimate in the 1-norm.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpocon

from hkrr._arrays import Watch
from hkrr.conformal import Uncertainty, uncertainty_of
from hkrr.journal import step
from hkrr.objective import Objective
from hkrr.rows import Rows
from hkrr.solvers import Result
from hkrr.threads import blas_for

_PROBES, _EXACT_TRACE = 64, 512


class Solve(NamedTuple):
    """What is known of a solve once its factor is gone: a few numbers, which a journal can keep."""

    condition: float
    effective_dimension: float
    jitter: float
    worst: float  # the largest condition number that costs the fitted function digits


def solved_again(rows: Rows, objective: Any, result: Result) -> tuple[Solve, Uncertainty | None]:
    """Return what is known of the solve at the end of a run, and how sure the model is, from one more solve.

    That is as much as half an evaluation of the objective. What cannot be solved again has an infinite condition.
    """

    def compute() -> tuple[Any, ...]:
        watch, solved, sure = Watch(), result.alpha, None
        last = Objective(rows, None if objective.exact else objective.centers, objective.kernel, result.reg_lambda)
        with np.errstate(all="ignore"), blas_for(len(objective.centers)):
            try:
                solved = last.solve_alpha(result.B, watch)
                sure = uncertainty_of(last, result.B, result.alpha, solved, watch, "full")
            except (ArithmeticError, np.linalg.LinAlgError):
                watch = Watch()
            return tuple(known_of(watch, rows)), None if sure is None else tuple(sure)

    known, sure = step(("solved again", objective.content, result.B, result.reg_lambda), compute)
    return Solve(*known), None if sure is None else Uncertainty(*sure)


def known_of(watch: Watch, rows: Rows) -> Solve:
    """Return what is to be known of a solve, from what it left behind."""
    with np.errstate(all="ignore"):
        return Solve(*condition_and_dimension(watch, rows), float(watch.jitter), float(watch.worst))


def condition_and_dimension(watch: Watch, rows: Rows) -> tuple[float, float]:
    """Return the condition number and the effective dimension of a system that was solved."""
    if watch.factor is None:
        return math.inf, math.nan
    # On the processor: a transfer of what is c x c, and c^2 of work for each of the probes.
    factor = rows.fetch(watch.factor)[0]
    upper = factor.T  # in the order of memory that LAPACK takes without a copy
    reciprocal, _ = dpocon(upper, watch.norm, uplo="U")
    c = len(factor)
    Z = np.eye(c) if c <= _EXACT_TRACE else rng_of_its_own().choice([-1.0, 1.0], (c, _PROBES))
    half = solve_triangular(upper, Z, check_finite=False)  # L^-T Z
    penalty = watch.penalty
    of_lambda = np.vdot(half, penalty * half if isinstance(penalty, float) else rows.fetch(penalty)[0] @ half)
    if c > _EXACT_TRACE:
        of_lambda /= _PROBES
    return 1.0 / reciprocal if reciprocal > 0 else math.inf, float(np.clip(c - of_lambda, 0.0, c))


def rng_of_its_own() -> np.random.RandomState:
    """Return a generator of its own: the user's is what it would be without an examination."""
    return np.random.RandomState(0)
