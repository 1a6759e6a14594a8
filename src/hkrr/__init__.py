"""hkrr: hyper-kernel ridge regression, for targets that depend on the inputs through a few unknown directions.

The models have the form f(x) = g(Bx). A direction is a row of the map B: the coefficients of a linear combination of
the inputs. `HyperKernelRidge` learns B and the function g for a given number of directions and a given regularization
lambda. `HyperKernelRidgeCV` also chooses the number of directions and lambda. For tables, `HyperKernelEnsemble` fits a
weighted sum of such models. `HyperKernelClassifier` predicts class probabilities. `TableRegressor` and
`TableClassifier` also encode text, dates and missing values.

The components of the models are public: `hkrr.kernels`, `hkrr.rows`, `hkrr.centers`, `hkrr.objective`, `hkrr.criteria`
and `hkrr.solvers`. `hkrr.datasets` generates data from known models, `hkrr.metrics` compares subspaces, and
`hkrr.tables` reads and encodes tables. `save` and `load` store fitted models in files, `to_onnx` converts models to
ONNX graphs, `hkrr.plotting` draws plots of models, and `hkrr.reporting` writes HTML reports.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hkrr import criteria, datasets, kernels, metrics, solvers
from hkrr._version import __version__
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
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

if TYPE_CHECKING:
    from hkrr import baselines as baselines
    from hkrr import plotting as plotting
    from hkrr import reporting as reporting
    from hkrr import tables
    from hkrr import theory as theory
    from hkrr.estimators.classification import HyperKernelClassifier
    from hkrr.saving import load, save, to_onnx
    from hkrr.tables import TableClassifier, TableRegressor

__all__ = [
    "CheckpointError",
    "Diagnostics",
    "EdgeWarning",
    "FailedStartsWarning",
    "FitError",
    "HKRRWarning",
    "HyperKernelClassifier",
    "HyperKernelEnsemble",
    "HyperKernelRidge",
    "HyperKernelRidgeCV",
    "IllConditionedWarning",
    "ModelFileError",
    "NotConvergedWarning",
    "OverfitWarning",
    "PoorFitWarning",
    "TableClassifier",
    "TableError",
    "TableRegressor",
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


# Names that are imported on first access, and the modules that define them. This halves the time of `import hkrr`.
_LAZY = {
    "HyperKernelClassifier": "hkrr.estimators.classification",
    "TableClassifier": "hkrr.tables",
    "TableRegressor": "hkrr.tables",
    "baselines": "hkrr.baselines",
    "load": "hkrr.saving",
    "plotting": "hkrr.plotting",
    "reporting": "hkrr.reporting",
    "save": "hkrr.saving",
    "tables": "hkrr.tables",
    "theory": "hkrr.theory",
    "to_onnx": "hkrr.saving",
}

if not TYPE_CHECKING:  # otherwise type checkers would accept every name

    def __getattr__(name: str) -> Any:
        """Import a name on first access."""
        if name not in _LAZY:
            raise AttributeError(f"module 'hkrr' has no attribute {name!r}")
        module = importlib.import_module(_LAZY[name])
        globals()[name] = found = getattr(module, name, module)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})
