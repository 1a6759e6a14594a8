"""The library's own errors and warnings."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning


class FitError(RuntimeError):
    """The optimisation left no sound model; the message says why, and what to change."""


class ModelFileError(ValueError):
    """A file holds no model that can be read; the message names the file, says why, and what to do."""


class CheckpointError(ValueError):
    """A checkpoint cannot be used: of another fit, damaged, or in use; the message names the file and the remedy."""


class HKRRWarning(UserWarning):
    """Something about a fit deserves a person's attention; the message says what, why it matters, and what to do."""


class IllConditionedWarning(HKRRWarning):
    """The coefficients solve a system that rounding leaves few digits of."""


class EdgeWarning(HKRRWarning):
    """Lambda, the number of directions or gamma ended at an edge of what could be chosen: beyond it may be better."""


class PoorFitWarning(HKRRWarning):
    """The model says little more than the mean of y, or has to be cut down to the size of y."""


class OverfitWarning(HKRRWarning):
    """The model explains much of y on its training rows, and by their own account next to nothing on others."""


class FailedStartsWarning(HKRRWarning):
    """Most of the starts could not be evaluated: the map is the best of few."""


class NotConvergedWarning(HKRRWarning, ConvergenceWarning):
    """The solver was stopped while its objective was still falling."""
