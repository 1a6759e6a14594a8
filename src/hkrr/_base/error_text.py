"""Functions that shorten names, values and errors for messages and tables."""

from __future__ import annotations

from typing import Any

# Maximum number of characters of a name or a value in an error message. A line of another error's message may be twice
# as long.
_MAX_REPR = 100


def truncated(text: str, length: int, mark: str = "..") -> str:
    """Return the text, or its beginning and `mark` if it has more than `length` characters."""
    return text if len(text) <= length else text[: length - len(mark)] + mark


def quoted(text: Any) -> str:
    """Return the repr of a name or a value for an error message, truncated to 100 characters."""
    found = repr(text)
    return found if len(found) <= _MAX_REPR else f"{found[:_MAX_REPR]}..."


def error_summary(error: Exception) -> str:
    """Return the first line of an error's message, truncated to 200 characters, or the error's type if it is empty."""
    lines = str(error).strip().splitlines()
    return lines[0][: 2 * _MAX_REPR] if lines else type(error).__name__
