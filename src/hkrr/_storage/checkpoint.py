"""Checkpoints: the journal of a fit in a file, for one process at a time, that belongs to its data and parameters."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from sklearn.utils import check_random_state

from hkrr._version import __version__
from hkrr.checkpoint_file import Packed, as_bytes, packed, read
from hkrr.disk import explained, remove_unfinished, replace_file, stem
from hkrr.exceptions import CheckpointError, HKRRWarning
from hkrr.fingerprint import difference, fingerprint
from hkrr.journal import Journal, Run
from hkrr.objective import Reduced
from hkrr.records.format import Refusal
from hkrr.rows import Rows
from hkrr.solvers import State
from hkrr.solvers.noted import Evaluation

_REMEDY, _BEGIN_ANEW = "give checkpoint another path", ", or delete the file to begin anew"


def kept_by(stop: BaseException) -> Any:
    """Return the estimator that has kept the best model so far when Ctrl-C ended its fit, or None."""
    return getattr(stop, "model", None) if isinstance(stop, KeyboardInterrupt) else None


def recorded(path: str | os.PathLike[str]) -> tuple[int, bool] | None:
    """Return how many steps of a fit a checkpoint holds, and whether the fit has ended; None where it holds none."""
    try:
        _, found = read(path)
        return sum(kind == "step" for kind, _ in found), bool(found["fit", ""]["finished"])
    except (OSError, Refusal, KeyError):  # of which the fit will speak
        return None


@contextmanager
def left_as_it_was(model: Any) -> Iterator[None]:
    """Put a model's attributes back where a fit fails or is interrupted, unless it has kept the best model so far.

    What Ctrl-C raises in a fit with a checkpoint is short, and says what is there.
    """
    before = dict(vars(model))
    try:
        yield
    except BaseException as error:
        kept = kept_by(error) is model
        if not kept:
            vars(model).clear()
            vars(model).update(before)
        if getattr(model, "checkpoint", None) is None or not isinstance(error, KeyboardInterrupt):
            raise
        # KeyboardInterrupt itself, as Python ends with the status of a Ctrl-C for no other class.
        has = "the estimator has the best model so far" if kept else "the estimator is as it was"
        told = KeyboardInterrupt(f"{has}, and the same call goes on from its checkpoint")
        vars(told)["model"] = model if kept else None
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        raise told from None


@contextmanager
def checkpointing(model: Any, rows: Rows) -> Iterator[np.random.RandomState]:
    """Keep a journal of the fit where the model asks for a checkpoint, and give the fit its random numbers.

    A fit that was broken off has the ones that it had.
    """
    if model.checkpoint is None:
        yield np.random.RandomState() if model.random_state is None else check_random_state(model.random_state)
        return
    path = Path(os.path.realpath(model.checkpoint))  # of a link the file behind it, as `replace_file`
    with _alone(path):
        remove_unfinished(path)
        file = _File(path, fingerprint(model, rows))
        journal, seed = file.opened(model.checkpoint_every)
        rng = check_random_state(seed if model.random_state is None else model.random_state)
        went_on = bool(journal.steps or journal.runs)
        if not journal.finished:
            journal.write()  # now, rather than after an hour, it shows whether that can be done
        with journal.in_use():
            try:
                yield rng
            except BaseException as error:
                try:
                    journal.write()
                except OSError as failure:  # of which the error itself may speak
                    if not isinstance(error, OSError):
                        error.add_note(f"The checkpoint is as it was before: {failure}")
                if went_on and isinstance(error, Exception):
                    error.add_note(f"This fit went on from checkpoint={path}: if it cannot, {_REMEDY}{_BEGIN_ANEW}.")
                raise
        try:
            journal.finish()
        except OSError as error:  # no reason to lose the model
            message = f"The fit is done, and its checkpoint is the one before: {error}. Save the model elsewhere."
            warnings.warn(message, HKRRWarning, stacklevel=2)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock beside the file, which ends with the process however that ends."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "checkpoint is a folder; give the name of a file", str(path))
    if not path.parent.is_dir():  # which the lock would make
        raise explained(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "checkpoint is a device or a pipe; give the name of a file", str(path))
    name = path.with_name(f"{stem(path)}.lock")
    lock = FileLock(name, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        if not name.exists():  # nobody holds what is not there: it could not be made
            raise explained(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path) from None
        raise CheckpointError(
            f"checkpoint={os.fspath(path)} is in use by another fit: wait for it, or give this one another path"
        ) from None
    except OSError as error:
        raise explained(error, path) from error
    try:
        yield
    finally:
        lock.release()


class _File:
    """The file of a journal, and what it belongs to."""

    def __init__(self, path: Path, belongs_to: dict[str, Any]) -> None:
        self._path, self._belongs_to = path, belongs_to
        self._seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._packed: dict[str, tuple[Any, Packed]] = {}

    def opened(self, every: float) -> tuple[Journal, int]:
        """Return the journal, with what the file holds where there is one, and the seed where none was given."""
        journal = Journal(self._write, every)
        if self._path.exists():
            try:
                self._read_into(journal)
            except Refusal as refusal:
                remedy = _REMEDY if refusal.foreign else _REMEDY + _BEGIN_ANEW
                raise CheckpointError(f"checkpoint={self._path} cannot be used: {refusal}; {remedy}.") from None
        return journal, self._seed

    def _read_into(self, journal: Journal) -> None:
        library, found = read(self._path)
        if library != __version__:
            raise Refusal(f"it was written by hkrr {library}, and this is hkrr {__version__}: go on with that one")
        try:
            fit = found.pop(("fit", ""))
            differs = difference(fit["belongs_to"], self._belongs_to)
            if differs is not None:
                raise Refusal(f"it belongs to another fit: {differs}")
            self._seed, journal.finished = fit["seed"], fit["finished"]
            for (kind, name), value in found.items():
                if kind == "step":
                    journal.steps[name] = value
                else:
                    journal.runs[name] = _run(journal, name, value)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise Refusal(f"it was damaged, or is no checkpoint ({error})") from None

    def _write(self, journal: Journal) -> None:
        fit = {"belongs_to": self._belongs_to, "seed": self._seed, "finished": journal.finished}
        entries = {("fit", ""): packed(fit)}
        for name, value in journal.steps.items():
            if self._packed.get(name, (None,))[0] is not value:
                self._packed[name] = (value, packed(value))
            entries["step", name] = self._packed[name][1]
        self._packed = {name: self._packed[name] for name in journal.steps}
        for name, run in journal.runs.items():
            entries["run", name] = packed(_noted(run))
        replace_file(self._path, as_bytes(entries))


def _noted(run: Run) -> dict[str, Any]:
    """Return what is noted of a run, its evaluations as columns."""
    evaluations, memory = list(run.evaluations), run.memory
    columns: dict[str, Any] = {}
    if len({(each.x.shape, each.reduced.grad.shape, each.reduced.alpha.shape) for each in evaluations}) == 1:
        values = [each.reduced for each in evaluations]
        slopes = [each.grad_log_lambda for each in values]
        columns = {
            "x": np.stack([each.x for each in evaluations]),
            "seconds": np.array([each.seconds for each in evaluations]),
            "value": np.array([each.value for each in values]),
            "grad": np.stack([each.grad for each in values]),
            "alpha": np.stack([each.alpha for each in values]),
            "slope": None if slopes[0] is None else np.array(slopes),
        }
    if memory is not None:
        n = memory["length"]
        history = {name: list(column[:n]) for name, column in memory["history"].items()}
        memory = {**memory, "history": history, "state": dict(vars(memory["state"]))}
    return {"evaluations": columns, "memory": memory}


def _run(journal: Journal, name: str, noted: dict[str, Any]) -> Run:
    """Return a run as it was noted."""
    columns, memory = noted["evaluations"], noted["memory"]
    evaluations = []
    for k in range(len(columns["value"]) if columns else 0):
        slope = None if columns["slope"] is None else float(columns["slope"][k])
        reduced = Reduced(float(columns["value"][k]), columns["grad"][k], columns["alpha"][k], slope)
        evaluations.append(Evaluation(columns["x"][k], reduced, float(columns["seconds"][k])))
    if memory is not None:
        memory = {**memory, "state": State(**memory["state"])}
    return Run(journal, name, evaluations, memory)
