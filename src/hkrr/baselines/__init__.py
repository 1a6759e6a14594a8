"""The systems that the paper compares with or builds on, each a scikit-learn estimator.

Regressors: `KernelRidgeCV`, `RBFNetwork`, `HyperRBFNetwork`, `RecursiveFeatureMachine`, `BKerNN`, `ReLUNetwork`,
`RCLS`, `PiecewisePolynomial`.
Transformers, which find the subspace: `SIR`, `SAVE`, `PHD`, `OPG`, `MAVE`, `KDR`, `GradientKDR`, `RCLSDirections`.
"""

from __future__ import annotations

from hkrr.baselines.bkernn import BKerNN
from hkrr.baselines.inverse_moments import PHD, SAVE, SIR
from hkrr.baselines.kernel_dimension_reduction import KDR, GradientKDR
from hkrr.baselines.kernel_ridge import KernelRidgeCV
from hkrr.baselines.local_linear import MAVE, OPG
from hkrr.baselines.rbf_network import HyperRBFNetwork, RBFNetwork
from hkrr.baselines.rcls import RCLS, PiecewisePolynomial, RCLSDirections
from hkrr.baselines.recursive_feature_machine import RecursiveFeatureMachine
from hkrr.baselines.relu_network import ReLUNetwork

__all__ = [
    "KDR",
    "MAVE",
    "OPG",
    "PHD",
    "RCLS",
    "SAVE",
    "SIR",
    "BKerNN",
    "GradientKDR",
    "HyperRBFNetwork",
    "KernelRidgeCV",
    "PiecewisePolynomial",
    "RBFNetwork",
    "RCLSDirections",
    "ReLUNetwork",
    "RecursiveFeatureMachine",
]
