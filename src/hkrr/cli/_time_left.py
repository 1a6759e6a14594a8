"""How long a fit may take still: by how far it has come, and the time that this took.

A search goes through stages whose names are known, and each begins when about the same share of the time is over,
whatever the table. From a share s that is over after t seconds, ``t (1 - s) / s`` are left. A stage that takes longer
than its share holds the estimate up, and what is shown moves towards it over some seconds: no number jumps.
"""

from __future__ import annotations

import math
import re

# What the names of stages begin with, in their order, and the share of the time that is over then; about what it was
# on tables and planted models of 300 to 1,500 rows. Before them come the numbers of directions, one after the other.
# One of them is for doubtful cases alone, and takes a third of all: less is over when it begins than before it.
_DOUBT = "whether the directions hold up"
_ONE_KERNEL = (
    ("the best directions on more rows", 0.72),
    ("plain kernel ridge on all columns", 0.80),
    (_DOUBT, 0.63),
    ("the last fit", 0.97),
)
_ANY_KERNEL = (
    ("directions, ", 0.32),
    ("plain kernel ridge, ", 0.36),
    ("a scale for each column, ", 0.42),
    ("directions, ", 0.62),
    ("finalists: ", 0.70),
    (_DOUBT, 0.63),
    ("the last fit", 0.97),
)
_DONE = 0.99  # at the most, while it is not
_LIKELY, _BEYOND = 5, 2  # directions that are tried, and beyond the best
_LEAST_SHARE, _LEAST_SECONDS = 0.02, 1.0  # before which nothing is known
_SETTLES = 2.5  # seconds, after which two thirds of a change are seen


class TimeLeft:
    """The seconds that are left, asked for now and then.

    Parameters
    ----------
    any_kernel : bool
        Whether the search chooses a kernel too.
    going_on : bool, default=False
        Whether the first stages may come from a checkpoint, and take no time.
    """

    def __init__(self, any_kernel: bool, going_on: bool = False) -> None:
        self._plan = _ANY_KERNEL if any_kernel else _ONE_KERNEL
        self._at = -1  # in the plan; before it the directions
        self._share, self._next, self._then = 0.0, self._plan[0][1], 0.0
        self._since = None if going_on else (0.0, 0.0)  # the share, and the seconds, from which on time is spent
        self._total: float | None = None  # of seconds from there on, as it looked when the stage began
        self._shown: tuple[float, float] | None = None  # when, and what

    def reached(self, stage: str, best: int | None, seconds: float) -> None:
        """Take note of a stage that begins now, with the number of directions of the best candidate so far."""
        share, after = self._shares(stage, best)
        if share in (0.0, self._share):  # a stage that nobody has foreseen, or more of the same
            return
        before = self.estimate(seconds)
        if self._since is None and seconds - self._then > _LEAST_SECONDS:
            self._since = self._share, self._then
        self._share, self._next, self._then = share, max(after, share), seconds
        if self._since is None or share - self._since[0] < _LEAST_SHARE or seconds - self._since[1] < _LEAST_SECONDS:
            return
        spent = seconds - self._since[1]
        total = spent * (1.0 - self._since[0]) / (share - self._since[0])
        self._total = total if before is None else math.cbrt((spent + before) * total**2)  # the later, the surer

    def _shares(self, stage: str, best: int | None) -> tuple[float, float]:
        """Return the share of the time that is over when a stage begins, and when it ends."""
        first = self._plan[0][1]
        number = re.match(r"(\d+) directions?, ", stage)
        if number is not None and self._at < 0:
            d = int(number[1])
            # Where the last number was the best so far, the next may be too.
            last = max(_LIKELY, d, (best or d) + _BEYOND + (best == d - 1))
            return first * _work(d - 1) / _work(last), first * _work(d) / _work(last)
        for k in range(max(self._at, 0), len(self._plan)):
            if stage.startswith(self._plan[k][0]):
                self._at = k
                after = [share for name, share in self._plan[k + 1 :] if name != _DOUBT]
                return self._plan[k][1], after[0] if after else _DONE
        return 0.0, 0.0

    def estimate(self, seconds: float) -> float | None:
        """Return the seconds that are left so many after the beginning; None while nothing is known."""
        if self._total is None or self._since is None:
            return None
        first, spent = self._since[0], seconds - self._since[1]
        share = min(max(first + (1.0 - first) * spent / self._total, self._share), self._next)
        return spent * (1.0 - share) / (share - first)

    def at(self, seconds: float) -> float | None:
        """Return the same for an eye that follows it: it moves towards each new estimate over some seconds."""
        left = self.estimate(seconds)
        if left is None:
            return None
        if self._shown is not None:
            then, before = self._shown
            expected = max(0.0, before - (seconds - then))
            left = expected + (left - expected) * (1.0 - math.exp(-(seconds - then) / _SETTLES))
        self._shown = seconds, left
        return left


def _work(n: int) -> float:
    """Return about what 1, ..., n directions take together, one after the other: each 4 + d, up to a factor."""
    return n * (n + 9.0)


def in_words(seconds: float) -> str:
    """Return the time that is left, as one would say it of an estimate.

    Examples
    --------
    >>> [in_words(seconds) for seconds in (3.0, 22.0, 94.0, 1000.0)]
    ['a few seconds left', 'about 20 s left', 'about 90 s left', 'about 17 min left']
    """
    if seconds < 7.5:
        return "a few seconds left"
    if seconds < 175.0:
        unit = 5 if seconds < 57.5 else 10
        return f"about {unit * round(seconds / unit)} s left"
    return f"about {round(seconds / 60)} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"
