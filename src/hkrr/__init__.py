"""hkrr: regression when the target depends on the inputs through a few unknown directions, f(x) = g(Bx).

`HyperKernelRidge` learns the map B and the function g together. The parts it is made of are public too: `hkrr.kernels`,
`hkrr.rows`, `hkrr.centers`, `hkrr.objective`, `hkrr.solvers`; `hkrr.datasets` draws planted models, and
`hkrr.metrics` measures how well a subspace was found.
"""

from hkrr import datasets, kernels, metrics, solvers
from hkrr.estimator import HyperKernelRidge
from hkrr.exceptions import FitError

__version__ = "0.1.0"

__all__ = ["FitError", "HyperKernelRidge", "__version__", "datasets", "kernels", "metrics", "solvers"]
