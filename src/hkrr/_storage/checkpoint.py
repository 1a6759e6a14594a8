"""Checkpoints: files that contain the journal of a fit (`hkrr._base.resume_journal`).

A checkpoint can be used only with the data and parameters of its fit, and by only one process at a time.
"""

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
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from hkrr._base.resume_journal import REMEDY, Journal, Run
from hkrr._storage.atomic_write import explain_write_error, remove_unfinished, replace_file, stem
from hkrr._storage.checkpoint_format import Packed, as_bytes, packed, read
from hkrr._storage.fingerprint import CheckpointedModel, difference, fingerprint
from hkrr._storage.safetensors_format import Refusal
from hkrr._version import __version__
from hkrr.exceptions import CheckpointError, HKRRWarning
from hkrr.rows import Rows

# Remedy if the checkpoint belongs to another fit, so that the file must not be deleted.
_ANOTHER_PATH = "use another path for checkpoint"


class FitInterrupted(KeyboardInterrupt):
    """Raised when Ctrl-C interrupts a fit with a checkpoint after a first model has been found.

    `model` is the estimator, fitted with the best model found so far. The notes of `cause` are copied to this
    exception.
    """

    def __init__(self, model: object, cause: KeyboardInterrupt | None = None) -> None:
        super().__init__("the estimator holds the best model so far; the same call of fit resumes from the checkpoint")
        self.model = model
        _copy_notes(cause, self)


def best_model_so_far(stop: KeyboardInterrupt) -> BaseEstimator | None:
    """Return the estimator, fitted with the best model found before Ctrl-C, or None if no model had been found."""
    return getattr(stop, "model", None)


def _copy_notes(source: BaseException | None, target: BaseException) -> None:
    for note in getattr(source, "__notes__", ()):
        target.add_note(note)


def recorded(path: str | os.PathLike[str]) -> tuple[int, bool] | None:
    """Return the number of results that a checkpoint contains, and whether its fit is finished.

    Return None if the file cannot be read.
    """
    try:
        _, found = read(path)
        return sum(kind == "step" for kind, _ in found), bool(found["fit", ""]["finished"])
    except (OSError, Refusal, KeyError):  # the fit itself reports the problem
        return None


@contextmanager
def restored_on_failure(model: object) -> Iterator[None]:
    """Restore the attributes of an estimator if its fit fails, or is interrupted before a model has been found.

    If Ctrl-C interrupts a fit with a checkpoint, a KeyboardInterrupt with a short message and a short traceback is
    raised. Its attribute ``model`` is the estimator, fitted with the best model found so far, or None if no model had
    been found.
    """
    before = dict(vars(model))
    try:
        yield
    except BaseException as error:
        kept = isinstance(error, FitInterrupted) and error.model is model
        if not kept:
            vars(model).clear()
            vars(model).update(before)
            if getattr(model, "checkpoint", None) is None or not isinstance(error, KeyboardInterrupt):
                raise
        # Raise a KeyboardInterrupt, not a subclass: only then does Python exit with the status of a Ctrl-C.
        message = str(error) if kept else "the estimator is unchanged; the same call of fit resumes from the checkpoint"
        stop = KeyboardInterrupt(message)
        vars(stop)["model"] = model if kept else None
        _copy_notes(error, stop)
        raise stop from None


@contextmanager
def checkpointing(model: CheckpointedModel, rows: Rows) -> Iterator[np.random.RandomState]:
    """Store the journal of a fit in the file ``model.checkpoint``, and yield the random state for the fit.

    A resumed fit uses the same random state as the interrupted fit. If ``model.checkpoint`` is None, nothing is stored.
    """
    if model.checkpoint is None:
        yield np.random.RandomState() if model.random_state is None else check_random_state(model.random_state)
        return
    path = Path(os.path.realpath(model.checkpoint))  # like `replace_file`, follow symbolic links
    with _locked(path):
        remove_unfinished(path)
        file = _File(path, fingerprint(model, rows))
        journal, seed = file.open(model.checkpoint_every)
        rng = check_random_state(seed if model.random_state is None else model.random_state)
        resumed = bool(journal.steps or journal.runs)
        if not journal.finished:
            journal.write()  # if the file cannot be written, fail now and not after an hour of fitting
        with journal.activated():
            try:
                yield rng
            except BaseException as error:
                try:
                    journal.write()
                except OSError as failure:
                    if not isinstance(error, OSError):  # an OSError probably reports the same failure
                        error.add_note(f"The checkpoint could not be updated: {failure}")
                if resumed and isinstance(error, Exception):
                    error.add_note(f"This fit was resumed from checkpoint={path}. If it cannot be resumed, {REMEDY}.")
                raise
        try:
            journal.finish()
        except OSError as error:  # the model is still valid
            message = (
                f"The fit is finished, but its checkpoint could not be updated: {error}. Save the model elsewhere."
            )
            warnings.warn(message, HKRRWarning, stacklevel=2)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock for the checkpoint at `path` inside the context, so that no other fit can use the checkpoint.

    The lock is a file in the same folder. If the process ends for any reason, the operating system releases the lock.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "checkpoint is a folder; give the name of a file", str(path))
    if not path.parent.is_dir():  # FileLock would create the folder
        raise explain_write_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "checkpoint is a device or a pipe; give the name of a file", str(path))
    name = path.with_name(f"{stem(path)}.lock")
    lock = FileLock(name, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        if not name.exists():  # the lock file could not be created
            raise explain_write_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path) from None
        raise CheckpointError(
            f"checkpoint={os.fspath(path)} is in use by another fit; wait until that fit ends, or use another path for "
            "checkpoint"
        ) from None
    except OSError as error:
        raise explain_write_error(error, path) from error
    try:
        yield
    finally:
        lock.release()


class _File:
    """The checkpoint file of a fit. The file need not exist yet.

    `belongs_to` is the fingerprint of the fit. If the file contains a different fingerprint, `open` raises a
    CheckpointError.
    """

    def __init__(self, path: Path, belongs_to: dict[str, Any]) -> None:
        self._path, self._belongs_to = path, belongs_to
        self._seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._packed: dict[str, tuple[Any, Packed]] = {}

    def open(self, every: float) -> tuple[Journal, int]:
        """Return the journal, and the seed of the fit for ``random_state=None``.

        If the file exists, the entries of the journal and the seed are read from it. `every` is the minimum number of
        seconds between two writes of the journal.
        """
        journal = Journal(self._write, every)
        if self._path.exists():
            try:
                self._read_into(journal)
            except Refusal as refusal:
                remedy = _ANOTHER_PATH if refusal.foreign else REMEDY
                raise CheckpointError(f"checkpoint={self._path} cannot be used: {refusal}; {remedy}.") from None
        return journal, self._seed

    def _read_into(self, journal: Journal) -> None:
        library, found = read(self._path)
        if library != __version__:
            raise Refusal(
                f"it was written by hkrr {library} and can be resumed only with this version, but hkrr {__version__} "
                "is installed"
            )
        try:
            fit = found.pop(("fit", ""))
            differs = difference(fit["belongs_to"], self._belongs_to)
            if differs is not None:
                raise Refusal(f"it belongs to another fit ({differs})")
            self._seed, journal.finished = fit["seed"], fit["finished"]
            for (kind, name), value in found.items():
                if kind == "step":
                    journal.steps[name] = value
                else:
                    journal.runs[name] = Run(journal, name, value)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise Refusal(f"it is damaged, or not a checkpoint ({error})") from None

    def _write(self, journal: Journal) -> None:
        fit = {"belongs_to": self._belongs_to, "seed": self._seed, "finished": journal.finished}
        entries = {("fit", ""): packed(fit)}
        for name, value in journal.steps.items():
            if self._packed.get(name, (None,))[0] is not value:
                self._packed[name] = (value, packed(value))
            entries["step", name] = self._packed[name][1]
        self._packed = {name: self._packed[name] for name in journal.steps}
        for name, run in journal.runs.items():
            entries["run", name] = packed(run.record)
        replace_file(self._path, as_bytes(entries))
