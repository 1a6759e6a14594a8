"""Tests that each finding suggests only parameters that the estimator has and that can still help."""

import dataclasses
import re

import numpy as np
import pytest

from hkrr import HyperKernelRidge, HyperKernelRidgeCV

# Each entry is a change of the diagnostics of a model without findings. The change causes one finding.
FINDINGS = [
    {"digits": 1.0},
    {"jitter": 1e-6},
    {"at_edge": ("gamma",)},
    {"at_edge": ("n_components",)},
    {"overshooting_share": 0.4},
    {"explained_share": 1e-5},
    {"starts_failed": 10**6},
    {"still_falling": True},
]
OF_A_GRID = {"at_edge": ("reg_lambdas",)}
ONE = {"max_iter": 2, "n_init": 1, "random_state": 0}
CV = {"n_components": 1, "n_init": 1, "random_state": 0}
MODELS = {
    "fit": HyperKernelRidge(1, **ONE),
    "fit by varpro": HyperKernelRidge(1, solver="varpro", scale_features=False, **ONE),
    "search": HyperKernelRidgeCV(**CV),
    "search in time": HyperKernelRidgeCV(time_limit=100.0, scale_features=False, **CV),
    "grid": HyperKernelRidgeCV(cv=2, criterion="training", reg_lambdas=[1e-3], **CV),
    "grid by varpro": HyperKernelRidgeCV(cv=2, criterion="training", reg_lambdas=[1e-3], solver="varpro", **CV),
    "learned on splits": HyperKernelRidgeCV(cv=2, **CV),
}
PARAMETERS = {*HyperKernelRidge().get_params(), *HyperKernelRidgeCV().get_params()}


def _named(message):
    return PARAMETERS & set(re.findall(r"\w+", message))


@pytest.mark.parametrize("name", MODELS)
# These fits are too short to converge.
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")
def test_suggested_parameters(name):
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = MODELS[name].fit(X, np.sin(X[:, 0]))
    found = dataclasses.replace(
        model.diagnostics_, digits=9.0, at_edge=(), jitter=0.0, explained_share=0.9, still_falling=False
    )
    assert found.findings() == []
    for change in [*FINDINGS, *([OF_A_GRID] if "grid" in name else [])]:
        ((_, message),) = dataclasses.replace(found, **change).findings()
        named = _named(message)
        assert named, message
        assert named <= set(model.get_params()), message
        assert ("solver" in named) <= (model.solver != "lbfgs"), message
        assert ("scale_features" in named) <= (not model.scale_features), message
        assert ("criterion" in named) <= (model.criterion != "evidence" and model.solver == "lbfgs"), message
        assert ("time_limit" in named) <= (model.time_limit is not None), message
        assert ("reg_lambdas" in named) <= ("grid" in name or "splits" in name), message
        assert not message.endswith((" ", "or")), message
