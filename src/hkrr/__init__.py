"""hkrr: regression when the target depends on the inputs through a few unknown directions, f(x) = g(Bx).

`HyperKernelRidgeCV` learns the map B and the function g together, and chooses lambda and the number of directions by
itself; `HyperKernelRidge` is the same for given ones. The parts it is made of are public too: `hkrr.kernels`,
`hkrr.rows`, `hkrr.centers`, `hkrr.objective`, `hkrr.solvers`; `hkrr.datasets` draws planted models, and
`hkrr.metrics` measures how well a subspace was found.
"""

from hkrr import criteria, datasets, kernels, metrics, solvers
from hkrr.estimator import HyperKernelRidge
from hkrr.exceptions import FitError
from hkrr.selection import HyperKernelRidgeCV

__version__ = "0.1.0"

__all__ = [
    "FitError",
    "HyperKernelRidge",
    "HyperKernelRidgeCV",
    "__version__",
    "criteria",
    "datasets",
    "kernels",
    "metrics",
    "solvers",
]
