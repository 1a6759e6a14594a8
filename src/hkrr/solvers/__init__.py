"""Solvers that optimize the map B, and the driver that runs them.

`VarPro` and `AGD` are the algorithms of the paper. `LBFGS` minimizes the reduced function H(B) = min_a L(B, a),
where L is the objective and a are the coefficients.
"""

from __future__ import annotations

from hkrr.solvers.agd import AGD
from hkrr.solvers.driver import Callback, Interrupted, Monitor, Result, Solver, State, StopRun, run
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


def get_solver(solver: str | Solver) -> Solver:
    """Return the solver with the given name and default parameters, or the given solver itself.

    Parameters
    ----------
    solver : {"lbfgs", "varpro", "agd"} or solver
        The name of a solver, or an object with a method ``minimize``.

    Returns
    -------
    Solver
        A new solver for a name, or `solver` itself for an object.

    Raises
    ------
    ValueError
        If the name is unknown, or the object has no method ``minimize``.

    Examples
    --------
    >>> from hkrr.solvers import get_solver
    >>> get_solver("lbfgs")
    LBFGS(memory=10)
    """
    if isinstance(solver, str) and solver in SOLVERS:
        chosen: Solver = SOLVERS[solver]()
        return chosen
    if not isinstance(solver, str | type) and callable(getattr(solver, "minimize", None)):
        return solver
    known = ", ".join(repr(name) for name in SOLVERS)
    raise ValueError(f"solver must be one of {known}, or a solver such as hkrr.solvers.AGD(n_alpha=5); got {solver!r}")
