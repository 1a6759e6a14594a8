"""The library's own errors."""

from __future__ import annotations


class FitError(RuntimeError):
    """The optimisation left no sound model; the message says why, and what to change."""


class ModelFileError(ValueError):
    """A file holds no model that can be read; the message names the file, says why, and what to do."""
