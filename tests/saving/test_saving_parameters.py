"""Parameters of every kind come back; what a file has no place for is refused with its name."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit

import hkrr
from hkrr import baselines, kernels, solvers
from saved_models import CLASSES, assert_same, fitted, header_of, rows, through_a_file, unfitted


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
def test_parameters_come_back(name, value, tmp_path):
    model = clone(fitted("HyperKernelRidge")).fit(*rows())
    setattr(model, name, value)
    if name == "time_limit" and value == float("inf"):
        with pytest.raises(ValueError, match="cannot be saved: time_limit must be"):
            hkrr.save(model, tmp_path / "model")
        return
    assert_same(getattr(through_a_file(model, tmp_path), name), value)


def test_paths_and_devices_are_kept_as_text(tmp_path):
    torch = pytest.importorskip("torch")
    model = clone(fitted("HyperKernelRidge")).fit(*rows())
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
def test_parameters_of_the_search_come_back(name, value, tmp_path):
    model = pickle.loads(pickle.dumps(fitted("grid")))
    setattr(model, name, value)
    found = getattr(through_a_file(model, tmp_path), name)
    assert_same(found, value) if name != "cv" or isinstance(value, list) else _assert_same_splits(found, value)


def _assert_same_splits(found, expected):
    X = np.zeros((9, 1))
    assert type(found) is type(expected)
    for one, other in zip(found.split(X), expected.split(X), strict=True):
        assert_same(one, other)


def test_a_random_state_goes_on_where_it_was(tmp_path):
    state = np.random.RandomState(3)
    state.standard_normal(3)  # an odd number: one is kept for the next call
    model = clone(fitted("GradientKDR")).fit(*rows()).set_params(random_state=state)
    again = through_a_file(model, tmp_path).random_state
    assert_array_equal(again.standard_normal(700), state.standard_normal(700))


def test_callbacks_are_left_out_and_the_header_says_so(tmp_path):
    model = unfitted("HyperKernelRidge").set_params(callbacks=[lambda state: None]).fit(*rows())
    assert through_a_file(model, tmp_path).callbacks is None
    assert header_of(tmp_path / "model.safetensors")["left_out"] == ["callbacks"]
    assert len(model.callbacks) == 1


class OwnKernel(kernels.Gaussian):
    """A kernel that the library does not know."""


class Gaussian(kernels.Gaussian):
    """One that has the name of one it knows."""


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
        ("tol", np.longdouble(1), "tol is a number of kind"),
        ("init", {1.5: 2}, "keys are no texts"),
        ("device", "nowhere", "device='nowhere' is none of PyTorch's"),
    ],
)
def test_what_cannot_be_saved_is_refused_with_its_name(name, value, said, tmp_path):
    model = clone(fitted("HyperKernelRidge")).fit(*rows())
    setattr(model, name, value)
    with pytest.raises(ValueError, match=re.escape(said)):
        hkrr.save(model, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_splitter_of_another_kind_is_refused_with_the_remedy(tmp_path):
    model = pickle.loads(pickle.dumps(fitted("grid"))).set_params(cv=RepeatedKFold())
    with pytest.raises(ValueError, match=r"cv is a sklearn.*RepeatedKFold.*model\.set_params\(cv=\.\.\.\)"):
        hkrr.save(model, tmp_path / "model")
    hkrr.save(model.set_params(cv=5), tmp_path / "model")


def test_a_list_of_more_parts_than_a_header_may_have_is_refused_with_the_remedy(tmp_path):
    model = clone(fitted("HyperKernelRidge")).fit(*rows()).set_params(centers=[[]] * 100_000)
    with pytest.raises(ValueError, match=r"100,000 parts.*may be an array"):
        hkrr.save(model, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_models_that_are_no_models_are_refused(tmp_path):
    for name in CLASSES:
        with pytest.raises(NotFittedError):
            hkrr.save(unfitted(name), tmp_path / "model")
    for other in (Ridge().fit(*rows()), fitted("RCLS").link_, "model", None):
        with pytest.raises(TypeError, match=rf"got a {type(other).__name__}"):
            hkrr.save(other, tmp_path / "model")
    noted = pickle.loads(pickle.dumps(fitted("SIR")))
    noted.note_ = "mine"
    with pytest.raises(ValueError, match="'note_', which a file has no place for"):
        hkrr.save(noted, tmp_path / "model")
    broken = pickle.loads(pickle.dumps(fitted("HyperKernelRidge")))
    broken.dual_coef_[3] = np.nan
    with pytest.raises(ValueError, match="dual_coef_ holds NaN"):
        hkrr.save(broken, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_more_names_than_a_header_has_room_for(tmp_path):
    X = np.random.default_rng(0).standard_normal((5, 3000))
    model = baselines.SIR(1, n_slices=2).fit(pd.DataFrame(X, columns=[f"{i:1000}" for i in range(3000)]), X[:, 0])
    with pytest.raises(ValueError, match="names of the columns"):
        hkrr.save(model, tmp_path / "model")
    del model.feature_names_in_
    assert_array_equal(through_a_file(model, tmp_path).components_, model.components_)
