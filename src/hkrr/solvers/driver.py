"""The driver of all solvers: it records the history, calls callbacks, enforces limits and reports why a run ended.

A run is one minimization by a solver, from a starting map. A solver is an object with the method
``minimize(objective, B0, monitor)``. This method calls the monitor with every iterate, including the starting map. The
monitor records the iterate and raises `StopRun` when the run should end, so a solver does not check time limits,
tolerances or callbacks itself. If the solver cannot improve the objective any further, ``minimize`` returns.

The attribute ``required_attributes`` of a solver lists which attributes of the objective the solver uses. `run` raises
a TypeError if the objective lacks one of these attributes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from hkrr._base import resume_journal as journal
from hkrr._base.linear_algebra import Array
from hkrr._base.progress_bar import ProgressBar, progress_bar
from hkrr._base.threads import blas_for, raise_if_stopped
from hkrr.exceptions import CheckpointError, FitError
from hkrr.objective import Quadratic, Reduced

# A map is treated as zero if its norm is at most this fraction of the norm of the starting map. The kernel is then
# constant up to rounding.
_COLLAPSED = 1e-6
# Number of iterations over which the decrease of the objective is averaged, to detect a plateau.
_PLATEAU_LENGTH = 5
# The attributes of an objective that every run uses.
_REQUIRED_BY_RUN = ("n_centers", "loss_at_zero", "reg_lambda")


class StopReason(StrEnum):
    """The reasons why a run can end. ``Result.reason`` is one of these strings."""

    CONVERGED = "converged"
    STALLED = "stalled"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    COLLAPSED = "collapsed"
    NOT_FINITE = "not_finite"


# The message of the result for each reason.
MESSAGES: dict[str, str] = {
    StopReason.CONVERGED: "the gradient is below tol",
    StopReason.STALLED: "no step decreases the objective by more than rounding error",
    StopReason.MAX_ITER: "max_iter iterations were made; increase max_iter or tol",
    StopReason.TIME_LIMIT: "the time limit was reached",
    StopReason.CALLBACK: "a callback stopped the run",
    StopReason.INTERRUPTED: "Ctrl-C stopped the run; the same call of fit resumes from the checkpoint",
    StopReason.COLLAPSED: "the map collapsed to zero; decrease reg_lambda, or check that y depends on X",
    StopReason.NOT_FINITE: "the objective is no longer finite; check the scale of X and y, or increase reg_lambda",
}


class ReducedObjective(Protocol):
    """Protocol of objectives with a reduced function, and with the attributes that every run uses.

    `hkrr.objective.Objective` and the criteria of `hkrr.criteria` implement this protocol.
    """

    @property
    def n_centers(self) -> int:
        """Number of centers."""

    @property
    def loss_at_zero(self) -> float:
        """Loss of the zero function. The tolerance for the norm of the gradient is proportional to this loss."""

    @property
    def reg_lambda(self) -> float:
        """The regularization parameter lambda, or its starting value if lambda is learned."""

    @property
    def learn_lambda(self) -> bool:
        """Whether the solver also minimizes over lambda. Only `LBFGS` uses this attribute."""

    @property
    def reduced(self) -> Callable[..., Reduced]:
        """Function that is called with the map, and with lambda if lambda is learned.

        It returns the minimum of the objective over the coefficients, as a `Reduced`.
        """


class JointObjective(ReducedObjective, Protocol):
    """Protocol of the objectives that VarPro and AGD minimize, functions L(B, alpha) of map and coefficients."""

    def value(self, B: Array, alpha: Array) -> float:
        """Return L(B, alpha)."""

    def value_and_grad_B(self, B: Array, alpha: Array) -> tuple[float, Array]:
        """Return L(B, alpha) and its gradient with respect to B."""

    def solve_alpha(self, B: Array) -> Array:
        """Return the coefficients that minimize L(B, .)."""

    def inner(self, B: Array) -> Quadratic:
        """Return L(B, .) as a quadratic function."""


@dataclass(frozen=True)
class State:
    """One iterate of a run. Each callback is called with the state of every iterate.

    `step` is the size of the step that led to this iterate: the step size of VarPro and AGD, or the norm of the change
    of B for L-BFGS. `time` is the time since the start of the run in seconds.
    """

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
    """The outcome of a run: its last valid iterate, the reason why it ended, and its history.

    The history is a dict of columns: lists of the times, the objectives, the norms of the gradient and the step sizes.
    Row 0 belongs to the starting map, and row i to the iterate after i iterations.
    """

    B: Array = field(repr=False)
    alpha: Array = field(repr=False)
    objective: float
    reg_lambda: float
    n_iter: int
    reason: str
    message: str
    history: dict[str, list[float]] = field(repr=False)


def empty_history() -> dict[str, list[float]]:
    """Return the columns of a history, without any rows."""
    return {"time": [], "objective": [], "grad_norm": [], "step": []}


Callback = Callable[[State], Any]


class StopRun(Exception):
    """Raised by the monitor to end a run. Solvers must not catch it. ``reason`` is a value of `StopReason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(MESSAGES[reason])
        self.reason = str(reason)


class Interrupted(KeyboardInterrupt):
    """Raised when Ctrl-C interrupts a run with a checkpoint. ``result`` is the result up to the last iterate."""

    def __init__(self, result: Result) -> None:
        super().__init__(MESSAGES[StopReason.INTERRUPTED])
        self.result = result


class Monitor:
    """Records the iterates of a run and decides when the run ends.

    A solver that evaluates the objective only through ``objective.reduced`` needs no code for checkpoints, because
    `ReplayedObjective` records and replays its evaluations. Any other solver must call `resume` at the beginning of
    ``minimize``. With every iterate, it must pass all values that it needs to continue from this iterate as ``memory``.
    """

    def __init__(
        self,
        loss_scale: float,
        reg_lambda: float,
        max_iter: int,
        tol: float,
        time_limit: float | None,
        callbacks: Iterable[Callback],
        bar: ProgressBar,
        journal_run: journal.Run | None = None,
        plateau: float = 0.0,
    ) -> None:
        self._loss_scale, self._max_iter, self._tol, self._plateau = loss_scale, max_iter, tol, plateau
        self._reg_lambda = reg_lambda
        self._time_limit, self._callbacks, self._bar = time_limit, tuple(callbacks), bar
        self._started = self._called = time.perf_counter()
        self._journal_run = journal_run
        self._start_norm = math.nan
        self.state: State | None = None
        self.history = empty_history()

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
        """Record an iterate, and raise StopRun if the run should end.

        Parameters
        ----------
        B, alpha : arrays
            The map and the coefficients.
        objective, grad_norm, step : float
            Value of the objective, norm of its gradient, and size of the step that led to this iterate.
        reg_lambda : float or None, default=None
            The value of lambda at this iterate. If None, the lambda of the objective is recorded.
        memory : dict or None, default=None
            Values that the solver needs to continue from this iterate. Checkpoints store these values. If None, nothing
            is stored.
        """
        if not (math.isfinite(objective) and math.isfinite(grad_norm) and np.all(np.isfinite(alpha))):
            raise StopRun(StopReason.NOT_FINITE)
        norm = float(np.linalg.norm(B))
        if self.state is None:
            self._start_norm = norm
        elif norm <= _COLLAPSED * self._start_norm:
            raise StopRun(StopReason.COLLAPSED)
        elapsed = self.elapsed()
        n_iter = 0 if self.state is None else self.state.n_iter + 1
        reg_lambda = self._reg_lambda if reg_lambda is None else reg_lambda
        self.state = State(n_iter, B.copy(), alpha.copy(), objective, grad_norm, step, elapsed, reg_lambda)
        for name, value in (("time", elapsed), ("objective", objective), ("grad_norm", grad_norm), ("step", step)):
            self.history[name].append(value)
        self._bar.update(n_iter - self._bar.n)
        self._bar.set_postfix(objective=f"{objective:.4g}", refresh=False)
        self._stop_if_done()
        if memory is not None and self._journal_run is not None:
            memory = {name: _copy(value) for name, value in memory.items()}
            self._journal_run.remember(
                memory=memory, state=self.state, start_norm=self._start_norm, history=self.history
            )

    def elapsed(self) -> float:
        """Return the elapsed time of the run in seconds. The time between an interruption and resuming is excluded."""
        return time.perf_counter() - self._started

    def skip_to(self, seconds: float) -> None:
        """Advance the elapsed time to `seconds`, the recorded time of a replayed evaluation."""
        # Times in the history must not decrease, even if this replay took longer than the original run.
        self._started = time.perf_counter() - max(seconds, *self.history["time"][-1:], 0.0)

    def resume(self) -> dict[str, Any] | None:
        """Restore the history of an interrupted run, and return the ``memory`` that the solver stored last.

        The solver continues from this memory. For a new run, return None.
        """
        record = None if self._journal_run is None else self._journal_run.record
        if record is None or record.memory is None:
            return None
        state: State = record.state
        self.state, self._start_norm = state, record.start_norm
        self.history = {name: column[: state.n_iter + 1] for name, column in record.history.items()}
        self.skip_to(self.history["time"][-1])
        return record.memory

    def _stop_if_done(self) -> None:
        assert self.state is not None
        with journal.paused():  # models that a callback fits are not recorded: they do not belong to this fit
            # Call all callbacks before the run stops, even if one of them returns True.
            answers = [callback(self.state) for callback in self._callbacks]
        if self.state.grad_norm <= self._tol * self._loss_scale:
            raise StopRun(StopReason.CONVERGED)
        if self._plateau > 0.0 and self._is_flat():
            raise StopRun(StopReason.STALLED)
        if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
            raise StopRun(StopReason.CALLBACK)
        if self.state.n_iter >= self._max_iter:
            raise StopRun(StopReason.MAX_ITER)
        self.check_time()

    def _is_flat(self) -> bool:
        """Return whether the run has reached a plateau, as defined by the parameter `plateau` of `run`."""
        last = self.history["objective"][-_PLATEAU_LENGTH - 1 :]
        return len(last) > _PLATEAU_LENGTH and last[0] - last[-1] < _PLATEAU_LENGTH * self._plateau * self._loss_scale

    def check_time(self) -> None:
        """Raise StopRun if the time limit has passed and at least one iterate has been recorded.

        Raise Stopped if the call of `in_threads` or `Lockstep.map` that started this task has failed or was
        interrupted. Solvers call this method within long iterations.
        """
        raise_if_stopped()
        late = self._time_limit is not None and time.perf_counter() - self._called >= self._time_limit
        if late and self.state is not None:
            raise StopRun(StopReason.TIME_LIMIT)


class Solver(Protocol):
    """An algorithm that minimizes an objective over the map B.

    A solver can have an attribute ``required_attributes``. This tuple names those attributes of the objective that the
    solver uses.
    """

    def minimize(self, objective: ReducedObjective, B0: Array, monitor: Monitor) -> None:
        """Minimize the objective, starting from the map B0. Call the monitor with B0 and with every iterate."""


class ReplayedObjective:
    """A wrapper of an objective that records calls of ``reduced``, and replays the calls of an interrupted run.

    The recorded evaluations are returned in order, as long as the solver evaluates bitwise the same points. At the
    first different point, the remaining recorded evaluations are deleted. All other attributes and methods are those of
    the objective, and their calls are not recorded. `elapsed` returns the elapsed seconds of the run, and `skip_to` is
    called with the recorded seconds of each replayed evaluation.
    """

    def __init__(
        self,
        objective: ReducedObjective,
        run: journal.Run,
        elapsed: Callable[[], float],
        skip_to: Callable[[float], None],
    ) -> None:
        self._objective, self._run = objective, run
        self._elapsed, self._skip_to = elapsed, skip_to
        self._n_calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def reduced(self, B: Array, *reg_lambda: float) -> Reduced:
        """Return the recorded evaluation at B if there is one. Otherwise compute the evaluation and record it."""
        x, record = np.append(np.ravel(B), reg_lambda), self._run.record
        k, self._n_calls = self._n_calls, self._n_calls + 1
        if k < len(record.x) and record.x[k].tobytes() == x.tobytes():
            self._skip_to(record.seconds[k])
            return Reduced(
                record.value[k], record.grad[k], record.alpha[k], record.grad_log_lambda[k], record.reg_lambda[k]
            )
        self._run.drop_evaluations(k)
        found: Reduced = self._objective.reduced(B, *reg_lambda)
        optional = [None if x is None else float(x) for x in (found.grad_log_lambda, found.reg_lambda)]
        self._run.add_evaluation(x, self._elapsed(), float(found.value), found.grad, found.alpha, *optional)
        return found


def run(
    solver: Solver,
    objective: ReducedObjective,
    B0: Array,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    time_limit: float | None = None,
    callbacks: Iterable[Callback] = (),
    verbose: int = 0,
    plateau: float = 0.0,
) -> Result:
    """Run a solver from B0 until it converges, or until a limit or a callback stops it.

    Parameters
    ----------
    solver : Solver
        A `VarPro`, `AGD` or `LBFGS`, or any object with a method ``minimize(objective, B0, monitor)``.
    objective : ReducedObjective
        An `Objective`, a `Criterion`, or any object with the attributes of `ReducedObjective`. VarPro and AGD need an
        `Objective`.
    B0 : array (d, D)
        The starting map.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-6
        The run has converged when the norm of the gradient is at most ``tol`` times the loss of the zero function
        (``objective.loss_at_zero``). VarPro and AGD, which can bound the norm of B, use the norm of the gradient
        mapping instead: the change of B in a projected gradient step, divided by the step size. For AGD, the norm also
        includes the gradient with respect to the coefficients.
    time_limit : float or None, default=None
        Maximum number of seconds. None means no limit. The objective is evaluated at the starting map even if the limit
        has passed.
    callbacks : iterable of callables, default=()
        Functions that are called with the `State` of every iterate. If a function returns True, the run stops.
    verbose : int, default=0
        If above 0, a progress bar is shown.
    plateau : float, default=0.0
        If above 0, the run stops when the objective decreases by less than ``plateau`` times the loss of the zero
        function per iteration, on average over five iterations.

    Returns
    -------
    Result
        The last iterate, the reason why the run ended, and the history.

    Raises
    ------
    TypeError
        If the objective lacks an attribute that the solver requires.
    FitError
        If the objective is not finite at the starting map, or the solver never calls the monitor.
    """
    _check_attributes(solver, objective)
    key = run_key(solver, objective, B0, max_iter=max_iter, tol=tol, plateau=plateau)
    with journal.open_run(*key) as journal_run:
        if journal_run is not None and journal_run.result is not None:
            return check_stored(journal_run.result, B0)
        result = _run(solver, objective, B0, max_iter, tol, time_limit, callbacks, verbose, journal_run, plateau)
        # If the time limit or a callback stopped the run, no result is stored, and the next call of `fit` continues the
        # run.
        if journal_run is not None and result.reason not in (StopReason.TIME_LIMIT, StopReason.CALLBACK):
            journal_run.finish(result)
        return result


def _check_attributes(solver: Solver, objective: ReducedObjective) -> None:
    required = dict.fromkeys((*_REQUIRED_BY_RUN, *getattr(solver, "required_attributes", ())))
    missing = [repr(name) for name in required if not hasattr(objective, name)]
    if missing:
        names = f"attribute {missing[0]}" if len(missing) == 1 else f"attributes {', '.join(missing)}"
        raise TypeError(
            f"{type(solver).__name__} cannot minimize an objective of type {type(objective).__name__}, which lacks the "
            f"{names}"
        )


def _run(
    solver: Solver,
    objective: ReducedObjective,
    B0: Array,
    max_iter: int,
    tol: float,
    time_limit: float | None,
    callbacks: Iterable[Callback],
    verbose: int,
    journal_run: journal.Run | None,
    plateau: float,
) -> Result:
    with (
        blas_for(objective.n_centers),
        progress_bar(shown=verbose, total=max_iter, desc=type(solver).__name__, unit="it") as bar,
    ):
        scale, reg_lambda = objective.loss_at_zero, objective.reg_lambda
        monitor = Monitor(scale, reg_lambda, max_iter, tol, time_limit, callbacks, bar, journal_run, plateau)
        if journal_run is not None:
            objective = ReplayedObjective(objective, journal_run, monitor.elapsed, monitor.skip_to)
        try:
            solver.minimize(objective, B0, monitor)
            reason: str = StopReason.STALLED
        except StopRun as stop:
            reason = stop.reason
        except (ArithmeticError, np.linalg.LinAlgError):
            # Depending on the function, NumPy and SciPy raise one or the other of these errors for overflow and NaN.
            reason = StopReason.NOT_FINITE
        except KeyboardInterrupt:
            if journal_run is None or monitor.state is None:
                raise
            raise Interrupted(_result(monitor, monitor.state, StopReason.INTERRUPTED)) from None
        bar.total = bar.n  # show the bar as complete, even if the run needed fewer than max_iter iterations
        bar.refresh()
    state = monitor.state
    if state is None and reason != StopReason.NOT_FINITE:
        raise FitError(f"{type(solver).__name__} reported no iterate: its method minimize must call the monitor.")
    if state is None:
        raise FitError(f"The solver could not complete an iteration: {MESSAGES[StopReason.NOT_FINITE]}.")
    return _result(monitor, state, reason)


def _result(monitor: Monitor, state: State, reason: str) -> Result:
    return Result(
        state.B,
        state.alpha,
        state.objective,
        state.reg_lambda,
        state.n_iter,
        str(reason),
        MESSAGES[reason],
        monitor.history,
    )


def run_key(
    solver: Solver, objective: ReducedObjective, B0: Array, *, max_iter: int, tol: float, plateau: float = 0.0
) -> tuple[Any, ...]:
    """Return the key of a run in the journal of a checkpoint: everything that the result of the run depends on.

    The attribute ``content`` contains everything that an objective depends on. A user-defined objective without this
    attribute is identified by its class, number of centers, loss of the zero function and lambda. Different objectives
    that agree in all four values cannot be distinguished.
    """
    approximate = (type(objective).__qualname__, objective.n_centers, journal.rounded(objective.loss_at_zero))
    content = getattr(objective, "content", (*approximate, objective.reg_lambda))
    return (type(solver).__qualname__, content, B0, max_iter, tol, plateau)


def check_stored(stored: Any, B0: Array) -> Result:
    """Return `stored`, the result of a run from B0 that a checkpoint contains.

    Raise a CheckpointError if `stored` is not a `Result`, or if its map does not have the shape of B0.
    """
    if not isinstance(stored, Result) or stored.B.shape != B0.shape:
        raise CheckpointError(f"the checkpoint contains an invalid result of a run; {journal.REMEDY}")
    return stored


def _copy(value: Any) -> Any:
    """Return a copy of an array in the same memory order. The order affects the rounding of matrix products.

    Values that are not arrays are returned unchanged.
    """
    return np.array(value, order="K") if isinstance(value, np.ndarray) else value
