"""One driver for all solvers: history, callbacks, progress, limits, and why a run ended.

A solver is an object with one method, ``minimize(objective, B0, monitor)``. It calls the monitor with every iterate,
the start included. The monitor records it and raises `StopRun` when the run should end, so that a solver never looks at
clocks, tolerances or callbacks; when a solver cannot go on by itself, it returns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from tqdm.auto import tqdm

from hkrr import journal
from hkrr._arrays import Array
from hkrr.exceptions import FitError
from hkrr.solvers.noted import Noted
from hkrr.threads import blas_for, leave_if_stopped

# A map this much smaller than the start is numerically zero: the kernel is constant to rounding.
_COLLAPSED = 1e-6

MESSAGES = {
    "converged": "the gradient is below tol",
    "stalled": "the objective came to rest: no step lowers it by more than rounding",
    "max_iter": "max_iter iterations were made; raise max_iter, or loosen tol",
    "time_limit": "the time limit was reached",
    "callback": "a callback ended the run",
    "interrupted": "Ctrl-C ended the run; the same call goes on from its checkpoint",
    "collapsed": "the map collapsed to zero; lower reg_lambda, or check that y depends on X at all",
    "not_finite": "the objective stopped being finite; check the scale of X and y, or raise reg_lambda",
}


@dataclass(frozen=True)
class State:
    """One iterate: what callbacks are given."""

    n_iter: int
    B: Array
    alpha: Array
    objective: float
    grad_norm: float
    step: float
    time: float
    reg_lambda: float


@dataclass(frozen=True)
class Result:
    """The end of a run: the last sound iterate, why it ended, and the history (row 0 is the start)."""

    B: Array = field(repr=False)
    alpha: Array = field(repr=False)
    objective: float
    reg_lambda: float
    n_iter: int
    reason: str
    message: str
    history: dict[str, list[float]] = field(repr=False)


Callback = Callable[[State], Any]


class StopRun(Exception):
    """Raised by the monitor through a solver, to end the run."""

    def __init__(self, reason: str) -> None:
        super().__init__(MESSAGES[reason])
        self.reason = reason


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a fit with a checkpoint: the run as far as it came, and the model that has kept it, if any."""

    def __init__(self, result: Result, model: Any = None) -> None:
        super().__init__(MESSAGES["interrupted"])
        self.result, self.model = result, model


class Monitor:
    """Watches a run: what a solver reports to.

    A solver that evaluates by ``objective.reduced`` alone has nothing to do for checkpoints. Another one gives the
    monitor all that it needs to go on (``memory``), and asks for it at its start (`resume`).
    """

    def __init__(
        self,
        loss_scale: float,
        reg_lambda: float,
        max_iter: int,
        tol: float,
        time_limit: float | None,
        callbacks: Iterable[Callback],
        bar: Any,
        noted: journal.Run | None = None,
    ) -> None:
        self._loss_scale, self._max_iter, self._tol = loss_scale, max_iter, tol
        self._reg_lambda = reg_lambda
        self._time_limit, self._callbacks, self._bar = time_limit, tuple(callbacks), bar
        self._started = self._called = time.perf_counter()
        self._noted = noted
        self._start_norm = math.nan
        self.state: State | None = None
        self.history: dict[str, list[float]] = {"time": [], "objective": [], "grad_norm": [], "step": []}

    def __call__(
        self,
        B: Array,
        alpha: Array,
        objective: float,
        grad_norm: float,
        step: float,
        reg_lambda: float | None = None,
        memory: dict[str, Any] | None = None,
    ) -> None:
        """Record an iterate, and raise StopRun when it is the last. Give lambda where the solver learns it."""
        if not (math.isfinite(objective) and math.isfinite(grad_norm) and np.all(np.isfinite(alpha))):
            raise StopRun("not_finite")
        norm = float(np.linalg.norm(B))
        if self.state is None:
            self._start_norm = norm
        elif norm <= _COLLAPSED * self._start_norm:
            raise StopRun("collapsed")
        elapsed = self.seconds
        n_iter = 0 if self.state is None else self.state.n_iter + 1
        reg_lambda = self._reg_lambda if reg_lambda is None else reg_lambda
        self.state = State(n_iter, B.copy(), alpha.copy(), objective, grad_norm, step, elapsed, reg_lambda)
        for name, value in (("time", elapsed), ("objective", objective), ("grad_norm", grad_norm), ("step", step)):
            self.history[name].append(value)
        self._bar.update(n_iter - self._bar.n)
        self._bar.set_postfix(objective=f"{objective:.4g}", refresh=False)
        self._stop_where_due()
        if memory is not None and self._noted is not None:
            # The columns grow, so their length now is noted too.
            own = {"state": self.state, "start_norm": self._start_norm, "history": self.history, "length": n_iter + 1}
            self._noted.remember({**own, "memory": {name: _own(value) for name, value in memory.items()}})

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run, those before a kill among them."""
        return time.perf_counter() - self._started

    def went_by(self, seconds: float) -> None:
        """Set the seconds since the start: what is handed back from a journal took its time when it was computed."""
        # Never less than what was told already: that may have taken longer this time.
        self._started = time.perf_counter() - max(seconds, *self.history["time"][-1:], 0.0)

    def resume(self) -> dict[str, Any] | None:
        """Return the last ``memory`` of a run that was broken off, the history being as it was; None at a start."""
        noted = None if self._noted is None else self._noted.memory
        if noted is None:
            return None
        self.state, self._start_norm = noted["state"], noted["start_norm"]
        self.history = {name: list(column[: noted["length"]]) for name, column in noted["history"].items()}
        self.went_by(self.history["time"][-1])
        memory: dict[str, Any] = noted["memory"]
        return memory

    def _stop_where_due(self) -> None:
        assert self.state is not None
        with journal.paused():  # what a callback fits is no part of this fit
            # All are called, then asked: one that stops the run must not silence the others.
            answers = [callback(self.state) for callback in self._callbacks]
        if self.state.grad_norm <= self._tol * self._loss_scale:
            raise StopRun("converged")
        if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
            raise StopRun("callback")
        if self.state.n_iter >= self._max_iter:
            raise StopRun("max_iter")
        self.check_time()

    def check_time(self) -> None:
        """Raise StopRun when the time limit has passed: solvers call it within long iterations."""
        leave_if_stopped()
        late = self._time_limit is not None and time.perf_counter() - self._called >= self._time_limit
        if late and self.state is not None:
            raise StopRun("time_limit")


class Solver(Protocol):
    """What a solver is."""

    def minimize(self, objective: Any, B0: Array, monitor: Monitor) -> None:
        """Improve the map from B0, reporting the start and every iterate to the monitor."""


def run(
    solver: Solver,
    objective: Any,
    B0: Array,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    time_limit: float | None = None,
    callbacks: Iterable[Callback] = (),
    verbose: int = 0,
) -> Result:
    """Run a solver from B0 until it converges, or a limit or a callback ends it.

    Parameters
    ----------
    solver : VarPro, AGD, LBFGS, or any object with their ``minimize`` method
    objective : Objective, or for LBFGS a Criterion (or what has their ``reduced``)
    B0 : array (d, D)
    max_iter : int
        Iterations at most.
    tol : float
        Converged when the norm of the gradient (of the gradient mapping, under a norm bound) is at most tol times the
        loss of the zero function.
    time_limit : float or None
        Seconds at most.
    callbacks : callables that take a State
        Called with every iterate; one that returns True ends the run.
    verbose : int
        Above 0: a progress bar.

    Returns
    -------
    Result
    """
    with journal.begin(type(solver).__qualname__, _content(objective), B0, max_iter, tol) as noted:
        if noted is not None and noted.result is not None:
            known: Result = noted.result
            return known
        result = _run(solver, objective, B0, max_iter, tol, time_limit, callbacks, verbose, noted)
        # A run that ran out of time, or that a callback ended, goes on when it is called again without.
        if noted is not None and result.reason not in ("time_limit", "callback"):
            noted.done(result)
        return result


def _run(
    solver: Solver,
    objective: Any,
    B0: Array,
    max_iter: int,
    tol: float,
    time_limit: float | None,
    callbacks: Iterable[Callback],
    verbose: int,
    noted: journal.Run | None,
) -> Result:
    with (
        blas_for(objective.n_centers),
        tqdm(total=max_iter, disable=not verbose, desc=type(solver).__name__, unit="it") as bar,
    ):
        scale, reg_lambda = objective.loss_at_zero, objective.reg_lambda
        monitor = Monitor(scale, reg_lambda, max_iter, tol, time_limit, callbacks, bar, noted)
        try:
            solver.minimize(objective if noted is None else Noted(objective, noted, monitor), B0, monitor)
            reason = "stalled"
        except StopRun as stop:
            reason = stop.reason
        except (ArithmeticError, np.linalg.LinAlgError):
            # Overflow and NaN meet NumPy and SciPy in many places, and each has its own way to say so.
            reason = "not_finite"
        except KeyboardInterrupt:
            if noted is None or monitor.state is None:
                raise
            raise Interrupted(_result(monitor, monitor.state, "interrupted")) from None
        bar.total = bar.n  # a run that needed fewer iterations is complete, and should look so
        bar.refresh()
    state = monitor.state
    if state is None and reason != "not_finite":
        raise FitError(f"{type(solver).__name__} reported no iterate: its minimize must call the monitor.")
    if state is None:
        raise FitError(f"No iteration could be made: {MESSAGES['not_finite']}.")
    return _result(monitor, state, reason)


def _result(monitor: Monitor, state: State, reason: str) -> Result:
    return Result(
        state.B,
        state.alpha,
        state.objective,
        state.reg_lambda,
        state.n_iter,
        reason,
        MESSAGES[reason],
        monitor.history,
    )


def _content(objective: Any) -> Any:
    """Return what an objective is a function of; of one that is not the library's, what there is of it."""
    names = (type(objective).__qualname__, objective.n_centers, journal.about(objective.loss_at_zero))
    return getattr(objective, "content", (*names, objective.reg_lambda))


def _own(value: Any) -> Any:
    """Return a copy of an array, in the same order of memory: products round differently in another."""
    return np.array(value, order="K") if isinstance(value, np.ndarray) else value
