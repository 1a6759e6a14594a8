"""The paper's experiments, with one module for each experiment, and the demo.

The command `hkrr reproduce` runs the experiments. The docstring of `hkrr.experiments.experiment_runner` describes the
functions of an experiment module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Modules whose name differs from the name of their experiment on the command line.
_MODULES = {
    "toy-path": "toy_trajectories",
    "toy-map": "toy_basins",
    "sample-complexity": "excess_risk_rates",
    "adaptivity": "parameter_selection",
}

# The names of the experiments in the order of the paper: first its figures, then its theorems.
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
        raise ValueError(f"there is no experiment {name!r}; choose from {', '.join(NAMES)}")
    return import_module(f"hkrr.experiments.{_MODULES.get(name, name.replace('-', '_'))}")
