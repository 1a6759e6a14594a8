"""Numbers as a person reads them, and what was learned in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from hkrr.reporting.directions import Direction, Directions
from hkrr.reporting.facts import Facts

_MOST_NAMED = 3
_NAMED_SHARE = 0.6  # of the importances: enough columns are named
_LEAST_SHARE = 0.08  # of a column that is named
_LEAST_TERM = 0.05  # of a direction that is written out
_LONGEST_NAME = 100


def number(value: float, digits: int = 3) -> str:
    """Return a number with that many significant digits, a comma at the thousands and a minus sign that can be seen.

    Examples
    --------
    >>> [number(value) for value in (1234567.0, -0.123456, 12.0, 0.0, 3e-7)]
    ['1,230,000', '−0.123', '12', '0', '3e-07']
    """
    if value < 0:
        return f"−{number(-value, digits)}"
    if value == 0 or 1e-4 <= value < 1e7:
        rounded = float(f"{value:.{digits}g}")
        if rounded >= 10 ** (digits - 1):
            return f"{rounded:,.0f}"
        text = f"{rounded:.{digits}g}"
        return text if "e" not in text else f"{rounded:.10f}".rstrip("0")
    return f"{value:.{digits}g}"


def score(value: float) -> str:
    """Return an R2 with three decimals, never rounded up to 1."""
    return f"{value:.3f}".replace("-", "−") if value < 0.9995 or value == 1 else "above 0.999"


def percent(share: float) -> str:
    """Return a share as a percentage; what is not quite none, or all, does not read so."""
    if 0 < share < 0.005:
        return "below 1%"
    if 0.995 <= share < 1:
        return "over 99%"
    return f"{100.0 * share:.0f}%"


def count(n: int, thing: str) -> str:
    """Return so many things."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def listed(names: Sequence[str]) -> str:
    """Return names as one says them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a long name without its middle: it is the ends in which long names differ."""
    if len(name) <= longest:
        return name
    tail = longest // 2 - 1
    return f"{name[: longest - tail - 1]}…{name[-tail:]}"


def main_columns(found: Directions) -> list[str]:
    """Return the few columns that move the prediction most."""
    names, total = [], 0.0
    for each in found.named[:_MOST_NAMED]:
        if each.weight < _LEAST_SHARE or total >= _NAMED_SHARE:
            break
        names.append(shortened(each.column))
        total += each.weight
    return names


def headline(facts: Facts) -> str:
    """Return what was learned, in a sentence."""
    found, target = facts.directions, shortened(facts.target)
    is_word = len(target) > 1 and target.replace(" ", "").isalpha()
    begin = target[:1].upper() + target[1:] if is_word else target  # x, y[0] and R2 stay what they are
    explained = facts.errors.r2
    if facts.errors.constant or not found.importances or found.importances[0].weight == 0:
        return f"The model found nothing that {target} depends on: it predicts nearly the same value for every row."
    if found.shape == "identity":
        what = (
            f"{begin} is predicted from {count(found.n_columns, 'column')} as they are: no fewer directions did better"
        )
    elif found.shape == "diagonal":
        what = f"{begin} depends on {count(found.n_columns, 'column')}, each with a weight of its own"
    else:
        what = f"{begin} depends on {count(found.n_components, 'direction')} of {count(found.n_columns, 'column')}"
    named = main_columns(found)
    how = f"; mostly through {listed(named)}." if named else "; no single column stands out."
    if explained is not None and explained < 0.1:
        return f"The model explains little of {target} on these rows. What it found: {what}{how}"
    return what + how


def formula(direction: Direction, most: int = 4) -> str:
    """Return a direction as a sum of its largest columns."""
    if not direction.loadings:
        return "no column"
    shown = [each for each in direction.loadings[:most] if abs(each.weight) >= _LEAST_TERM] or direction.loadings[:1]
    terms = []
    for i, each in enumerate(shown):
        sign = "−" if each.weight < 0 else "" if i == 0 else "+"
        terms.append(f"{sign} {abs(each.weight):.2f} × {shortened(each.column, 32)}".strip())
    n_more = len(direction.loadings) - len(shown) + direction.n_left_out
    return " ".join(terms) + (f" + {count(n_more, 'smaller term')}" if n_more > 0 else "")
