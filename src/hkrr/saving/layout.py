"""What a layout of a class is, and what several of them share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hkrr.saving import checks
from hkrr.saving.checks import Check, floats, level


@dataclass(frozen=True)
class Layout:
    """What a class keeps."""

    cls: Any
    # Each fitted attribute and its check, in the order in which these are made; names: a model of one of those classes.
    attributes: dict[str, Check | tuple[str, ...]]
    optional: dict[str, Check] = field(default_factory=dict)
    # What no attribute shows alone.
    together: Callable[[Any], None] = lambda model: None
    # Of scikit-learn's classes the ones that this library sets; None: all.
    parameters: tuple[str, ...] | None = None
    # Parameters that are an estimator, and the attribute that is a fitted copy of it: a file has it once.
    copies: dict[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether the class is this library's: then all that a model holds must have a place."""
        return str(self.cls.__module__).startswith("hkrr.")

    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of the parameters that are kept."""
        return self.parameters or tuple(inspect.signature(self.cls).parameters)


Attributes = dict[str, Check | tuple[str, ...]]
COLUMNS: Attributes = {"n_features_in_": checks.n_columns}
FUNCTION: Attributes = {
    **COLUMNS,
    "components_": floats("d", "D"),
    "x_offset_": floats("D"),
    "kernel_": checks.kernel,
    "centers_": floats("c", "D"),
    "dual_coef_": floats("c", "*t"),
    "intercept_": level("*t"),
}
OUTPUT: dict[str, Check] = {"_sklearn_output_config": checks.output_config}
