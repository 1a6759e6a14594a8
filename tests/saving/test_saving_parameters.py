"""Test that parameters of all supported types are restored.

A parameter of another type is refused with an error that names the parameter.
"""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit

import hkrr
from hkrr import baselines, kernels, solvers
from support.models_to_save import CLASSES, assert_same, copied, fitted, header_of, rows, through_a_file, unfitted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", kernels.Matern(nu=2.5, gamma=0.5)),
        ("kernel", kernels.Laplace()),
        ("kernel", kernels.RationalQuadratic(alpha=2)),
        ("solver", solvers.AGD(n_alpha=3, alpha_step="lipschitz")),
        ("solver", solvers.VarPro(s_max=2.0, norm_bound=None)),
        ("solver", solvers.LBFGS(memory=3)),
        ("random_state", np.random.RandomState(7)),
        ("init", np.eye(3)[:2].astype(np.float32)),
        ("centers", [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]),
        ("tol", np.float64(1e-3)),
        ("init", "a text"),
        ("n_init", np.int32(3)),
        ("n_init", np.uint64(2**63)),
        ("scale_features", np.bool_(False)),
        ("time_limit", float("inf")),
        ("time_limit", np.float32(0.1)),
    ],
)
def test_parameters_are_restored(name, value, tmp_path):
    model = copied("HyperKernelRidge")
    setattr(model, name, value)
    if name == "time_limit" and value == float("inf"):
        with pytest.raises(ValueError, match="cannot be saved: time_limit must be"):
            hkrr.save(model, tmp_path / "model")
        return
    assert_same(getattr(through_a_file(model, tmp_path), name), value)


def test_paths_and_devices_are_stored_as_strings(tmp_path):
    torch = pytest.importorskip("torch")
    model = copied("HyperKernelRidge")
    model.init, model.device = Path("folder") / "name", torch.device("cuda", 1)
    again = through_a_file(model, tmp_path)
    assert_same(again.init, str(Path("folder") / "name"))
    assert_same(again.device, "cuda:1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cv", KFold(3, shuffle=True, random_state=1)),
        ("cv", ShuffleSplit(2, test_size=0.2, random_state=np.random.RandomState(3))),
        ("cv", [(np.arange(3), np.arange(3, 5))]),
        ("n_components", range(1, 4)),
        ("n_components", (1, 2)),
        ("reg_lambdas", np.logspace(-3, -1, 3)),
        ("reg_lambdas", [0.1, 1]),
    ],
)
def test_parameters_of_the_search_are_restored(name, value, tmp_path):
    model = copied("grid")
    setattr(model, name, value)
    found = getattr(through_a_file(model, tmp_path), name)
    assert_same(found, value) if name != "cv" or isinstance(value, list) else _assert_same_splits(found, value)


def _assert_same_splits(found, expected):
    X = np.zeros((9, 1))
    assert type(found) is type(expected)
    for one, other in zip(found.split(X), expected.split(X), strict=True):
        assert_same(one, other)


def test_a_random_state_is_restored(tmp_path):
    state = np.random.RandomState(3)
    state.standard_normal(3)  # after an odd number of draws, RandomState caches one more number
    model = copied("GradientKDR").set_params(random_state=state)
    again = through_a_file(model, tmp_path).random_state
    assert_array_equal(again.standard_normal(700), state.standard_normal(700))


def test_callbacks_are_not_stored_and_listed_in_the_header(tmp_path):
    model = unfitted("HyperKernelRidge").set_params(callbacks=[lambda state: None]).fit(*rows())
    assert through_a_file(model, tmp_path).callbacks is None
    assert header_of(tmp_path / "model.safetensors")["left_out"] == ["callbacks"]
    assert len(model.callbacks) == 1


class OwnKernel(kernels.Gaussian):
    """A kernel that the library does not know."""


class Gaussian(kernels.Gaussian):
    """A kernel written by a user, with the same name as a kernel of the library."""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kernel", OwnKernel(), "kernel is a test_saving_parameters.OwnKernel"),
        ("kernel", Gaussian(), "kernel is a test_saving_parameters.Gaussian"),
        ("solver", object(), "solver is a builtins.object"),
        ("init", np.ones((2, 3), dtype=object), "init is an array of object"),
        ("centers", pd.DataFrame(np.ones((2, 3))), "centers is a pandas"),
        ("random_state", np.random.RandomState(np.random.PCG64(0)), "use a seed"),
        ("max_iter", 2**63, "64 bits"),
        ("tol", np.longdouble(1), "tol is a number of type"),
        ("init", {1.5: 2}, "a dict with keys that cannot be stored"),
        ("device", "nowhere", "device='nowhere' is not a PyTorch device"),
    ],
)
def test_parameters_that_cannot_be_saved_are_refused_by_name(name, value, said, tmp_path):
    model = copied("HyperKernelRidge")
    setattr(model, name, value)
    with pytest.raises(ValueError, match=re.escape(said)):
        hkrr.save(model, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_an_unsupported_splitter_is_refused_with_a_remedy(tmp_path):
    model = copied("grid").set_params(cv=RepeatedKFold())
    with pytest.raises(ValueError, match=r"cv is a sklearn.*RepeatedKFold.*model\.set_params\(cv=\.\.\.\)"):
        hkrr.save(model, tmp_path / "model")
    hkrr.save(model.set_params(cv=5), tmp_path / "model")


def test_a_list_with_too_many_parts_is_refused_with_a_remedy(tmp_path):
    model = copied("HyperKernelRidge").set_params(centers=[[]] * 100_000)
    with pytest.raises(ValueError, match=r"100,000 lists and dicts; convert .* to arrays"):
        hkrr.save(model, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_objects_that_are_not_fitted_models_are_refused(tmp_path):
    for name in CLASSES:
        with pytest.raises(NotFittedError):
            hkrr.save(unfitted(name), tmp_path / "model")
    for other in (Ridge().fit(*rows()), fitted("RCLS").link_, "model", None):
        with pytest.raises(TypeError, match=rf"got a {type(other).__name__}"):
            hkrr.save(other, tmp_path / "model")
    noted = copied("SIR")
    noted.note_ = "mine"
    with pytest.raises(ValueError, match="unknown attribute 'note_', which cannot be stored"):
        hkrr.save(noted, tmp_path / "model")
    broken = copied("HyperKernelRidge")
    broken.dual_coef_[3] = np.nan
    with pytest.raises(ValueError, match="dual_coef_ contains NaN"):
        hkrr.save(broken, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_column_names_that_are_too_long_for_the_header(tmp_path):
    X = np.random.default_rng(0).standard_normal((5, 3000))
    model = baselines.SIR(1, n_slices=2).fit(pd.DataFrame(X, columns=[f"{i:1000}" for i in range(3000)]), X[:, 0])
    with pytest.raises(ValueError, match="names of columns"):
        hkrr.save(model, tmp_path / "model")
    del model.feature_names_in_
    assert_array_equal(through_a_file(model, tmp_path).components_, model.components_)
