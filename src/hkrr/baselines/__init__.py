"""Scikit-learn estimators for the methods that the paper compares with or builds on.

Regressors: `KernelRidgeCV`, `RBFNetwork`, `HyperRBFNetwork`, `RecursiveFeatureMachine`, `BKerNN`, `ReLUNetwork`,
`RCLS`, `PiecewisePolynomial`.

Transformers that estimate the directions of X on which the target depends: `SIR`, `SAVE`, `PHD`, `OPG`, `MAVE`, `KDR`,
`GradientKDR`, `RCLSDirections`.
"""

from __future__ import annotations

from hkrr.baselines.brownian_kernel_network import BKerNN
from hkrr.baselines.inverse_regression import PHD, SAVE, SIR
from hkrr.baselines.kernel_dimension_reduction import KDR, GradientKDR
from hkrr.baselines.kernel_ridge import KernelRidgeCV
from hkrr.baselines.local_linear_gradients import MAVE, OPG
from hkrr.baselines.rbf_network import HyperRBFNetwork, RBFNetwork
from hkrr.baselines.recursive_feature_machine import RecursiveFeatureMachine
from hkrr.baselines.relu_network import ReLUNetwork
from hkrr.baselines.response_conditional_least_squares import RCLS, PiecewisePolynomial, RCLSDirections

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
