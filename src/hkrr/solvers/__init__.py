"""Solvers for the map B: the paper's VarPro and AGD, and L-BFGS on the reduced function; one driver runs them all."""

from __future__ import annotations

from typing import Any

from hkrr.solvers.agd import AGD
from hkrr.solvers.base import Callback, Interrupted, Monitor, Result, Solver, State, StopRun, run
from hkrr.solvers.lbfgs import LBFGS, at_bound
from hkrr.solvers.varpro import VarPro

__all__ = [
    "AGD",
    "LBFGS",
    "Callback",
    "Interrupted",
    "Monitor",
    "Result",
    "Solver",
    "State",
    "StopRun",
    "VarPro",
    "at_bound",
    "get_solver",
    "run",
]

SOLVERS = {"lbfgs": LBFGS, "varpro": VarPro, "agd": AGD}


def get_solver(solver: Any) -> Solver:
    """Return the solver of that name with its defaults, or the solver itself.

    Examples
    --------
    >>> from hkrr.solvers import get_solver
    >>> get_solver("lbfgs")
    LBFGS(memory=10)
    """
    if isinstance(solver, str) and solver in SOLVERS:
        chosen: Solver = SOLVERS[solver]()
        return chosen
    if callable(getattr(solver, "minimize", None)) and not isinstance(solver, type):
        given: Solver = solver
        return given
    known = ", ".join(repr(name) for name in SOLVERS)
    raise ValueError(f"solver must be one of {known}, or a solver such as hkrr.solvers.AGD(n_alpha=5); got {solver!r}")
