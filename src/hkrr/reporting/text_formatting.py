"""Functions that format the numbers, names and sentences of a report."""

from __future__ import annotations

from collections.abc import Sequence

from hkrr._maps import ShapeName
from hkrr.reporting.directions import Directions, ReportedDirection
from hkrr.reporting.report_data import ClassFacts, Facts, RegressionFacts

# Maximum number of columns in the headline.
_MOST_NAMED = 3
# The headline stops naming columns when the sum of their importances reaches this number.
_NAMED_SHARE = 0.6
# Minimum importance of a column in the headline.
_LEAST_SHARE = 0.08
# Maximum number of columns in the formula of a direction, and minimum absolute loading of these columns.
_MOST_TERMS, _LEAST_TERM = 4, 0.05
# Maximum number of characters in a name. Longer names are shortened.
_LONGEST_NAME = 100


def number(value: float, digits: int = 3) -> str:
    """Return a number as text with ``digits`` significant digits, thousands separators and a typographic minus sign."""
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
    """Return an R2 with three decimals. A value just below 1 is not rounded to 1."""
    return f"{value:.3f}".replace("-", "−") if value < 0.9995 or value == 1 else "above 0.999"


def loss(value: float) -> str:
    """Return a log loss or a calibration error with three decimals, or with two significant digits if it is small."""
    return f"{value:.3f}" if value == 0 or value >= 0.0005 else number(value, 2)


def percent(share: float) -> str:
    """Return a fraction as a percentage. Only a fraction of exactly 0 or 1 is written as 0% or 100%."""
    if 0 < share < 0.005:
        return "below 1%"
    if 0.995 <= share < 1:
        return "over 99%"
    return f"{100.0 * share:.0f}%"


def count(n: int, noun: str) -> str:
    """Return a count with its noun, such as "1 row" or "1,200 rows"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"


def listed(names: Sequence[str]) -> str:
    """Return the names as an English list: "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """Replace the middle of a long name by an ellipsis. The ends are kept, because long names often differ there."""
    if len(name) <= longest:
        return name
    tail = longest // 2 - 1
    return f"{name[: longest - tail - 1]}…{name[-tail:]}"


def main_columns(found: Directions) -> list[str]:
    """Return the names of the most important columns, at most three. The list is empty if no column stands out."""
    names, total = [], 0.0
    for each in found.table_importances[:_MOST_NAMED]:
        if each.weight < _LEAST_SHARE or total >= _NAMED_SHARE:
            break
        names.append(shortened(each.column))
        total += each.weight
    return names


def headline(facts: RegressionFacts) -> str:
    """Return the main result of a report on a regressor in one or two sentences."""
    target = shortened(facts.target)
    if facts.errors.constant_prediction or not _depends_on_columns(facts.directions):
        return f"The model found nothing that {target} depends on. It predicts nearly the same value for every row."
    result = _main_result(facts, "a weighted sum of")
    if facts.errors.r2 is not None and facts.errors.r2 < 0.1:
        return f"The model explains little of {target} on these rows. {result}"
    return result


def class_headline(facts: ClassFacts) -> str:
    """Return the main result of a report on a classifier in one or two sentences."""
    target = shortened(facts.target)
    if not _depends_on_columns(facts.directions):
        return f"The model found nothing that {target} depends on. It predicts the same probabilities for every row."
    result = _main_result(facts, "weighted sums of the scores of")
    if facts.errors.log_loss >= facts.errors.baseline_log_loss:
        return f"On these rows, the probabilities are no better than the frequencies of the classes. {result}"
    return result


def _depends_on_columns(found: Directions) -> bool:
    return bool(found.importances) and found.importances[0].weight != 0


def _main_result(facts: Facts, weighted_sum: str) -> str:
    """Return what the target depends on. `weighted_sum` starts a phrase that ends with the number of models."""
    found, target = facts.directions, shortened(facts.target)
    is_word = len(target) > 1 and target.replace(" ", "").isalpha()
    # The target is capitalized at the start of a sentence, unless it is a name such as x, y[0] or R2.
    subject = target[:1].upper() + target[1:] if is_word else target
    columns = count(found.n_columns, "column")
    if found.of_ensemble:
        result = f"{subject} is predicted from {columns} by {weighted_sum} {len(found.members)} models."
    elif found.shape == ShapeName.IDENTITY:
        result = (
            f"{subject} is predicted from {columns} with equal weights. The columns are not combined into directions."
        )
    elif found.shape == ShapeName.DIAGONAL:
        result = f"{subject} depends on {columns}, each with its own weight."
    else:
        directions = count(found.n_components, "direction")
        sums = "a weighted sum" if found.n_components == 1 else "weighted sums"
        result = f"{subject} depends on {columns} through {directions} ({sums} of the columns)."
    named = main_columns(found)
    if len(named) > 1:
        return f"{result} The most important columns are {listed(named)}."
    if named:
        return f"{result} The most important column is {named[0]}."
    return f"{result} No single column stands out."


def formula(direction: ReportedDirection) -> str:
    """Return a direction as a weighted sum of the columns with the largest loadings."""
    if not direction.loadings:
        return "no column"
    largest = direction.loadings[:_MOST_TERMS]
    shown = [each for each in largest if abs(each.weight) >= _LEAST_TERM] or largest[:1]
    terms = []
    for i, each in enumerate(shown):
        sign = "−" if each.weight < 0 else "" if i == 0 else "+"
        terms.append(f"{sign} {abs(each.weight):.2f} × {shortened(each.column, 32)}".strip())
    n_more = len(direction.loadings) - len(shown) + direction.n_left_out
    return " ".join(terms) + (f" + {count(n_more, 'smaller term')}" if n_more > 0 else "")
