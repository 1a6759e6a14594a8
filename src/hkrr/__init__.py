"""hkrr: regression when the target depends on the inputs through a few unknown directions, f(x) = g(Bx).

`HyperKernelRidgeCV` learns the map B and the function g together, and chooses lambda and the number of directions by
itself; `HyperKernelRidge` is the same for given ones. The parts it is made of are public too: `hkrr.kernels`,
`hkrr.rows`, `hkrr.centers`, `hkrr.objective`, `hkrr.solvers`; `hkrr.datasets` draws planted models, and `hkrr.metrics`
measures how well a subspace was found; `hkrr.tables` fits tables with text, dates and missing values. `save` and `load`
keep a fitted model in a file, and `to_onnx` turns it into a graph that runs without Python. `hkrr.plotting` draws what
a model has learned.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hkrr import criteria, datasets, kernels, metrics, solvers
from hkrr._version import __version__
from hkrr.diagnostics import Diagnostics
from hkrr.estimator import HyperKernelRidge
from hkrr.exceptions import (
    CheckpointError,
    EdgeWarning,
    FailedStartsWarning,
    FitError,
    HKRRWarning,
    IllConditionedWarning,
    ModelFileError,
    NotConvergedWarning,
    OverfitWarning,
    PoorFitWarning,
    TableError,
)
from hkrr.selection import HyperKernelRidgeCV

if TYPE_CHECKING:
    from hkrr import baselines as baselines
    from hkrr import plotting as plotting
    from hkrr import reporting as reporting
    from hkrr import tables
    from hkrr import theory as theory
    from hkrr.classification import HyperKernelClassifier
    from hkrr.saving import load, save, to_onnx

__all__ = [
    "CheckpointError",
    "Diagnostics",
    "EdgeWarning",
    "FailedStartsWarning",
    "FitError",
    "HKRRWarning",
    "HyperKernelClassifier",
    "HyperKernelRidge",
    "HyperKernelRidgeCV",
    "IllConditionedWarning",
    "ModelFileError",
    "NotConvergedWarning",
    "OverfitWarning",
    "PoorFitWarning",
    "TableError",
    "__version__",
    "criteria",
    "datasets",
    "kernels",
    "load",
    "metrics",
    "save",
    "solvers",
    "tables",
    "to_onnx",
]


# What `import hkrr` leaves out until it is asked for, and where it is: half of the time that all of it would take.
_LATER = {
    "HyperKernelClassifier": "hkrr.classification",
    "baselines": "hkrr.baselines",
    "load": "hkrr.saving",
    "plotting": "hkrr.plotting",
    "reporting": "hkrr.reporting",
    "save": "hkrr.saving",
    "tables": "hkrr.tables",
    "theory": "hkrr.theory",
    "to_onnx": "hkrr.saving",
}

if not TYPE_CHECKING:  # or no checker would notice a name that is not there

    def __getattr__(name: str) -> Any:
        """Import what was left out."""
        if name not in _LATER:
            raise AttributeError(f"module 'hkrr' has no attribute {name!r}")
        module = importlib.import_module(_LATER[name])
        globals()[name] = found = getattr(module, name, module)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER})
