"""The paper's experiments, one file each, and the demo. `hkrr reproduce` runs them; see `hkrr.experiments.base`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# In the order of the paper: its figures, then its theorems.
NAMES = (
    "convergence",
    "toy-path",
    "toy-map",
    "latent-dimension",
    "training-size",
    "sample-complexity",
    "nystrom",
    "adaptivity",
    "stationarity",
)


def get_experiment(name: str) -> Any:
    """Return the module of an experiment."""
    if name not in NAMES:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}")
    return import_module(f"hkrr.experiments.{name.replace('-', '_')}")
