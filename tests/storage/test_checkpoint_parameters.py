"""Tests of the comparison of the parameters when a fit resumes.

They are compared by value with the parameters in the checkpoint, so they may be different objects with equal values.
"""

import numpy as np
import pytest

from hkrr import CheckpointError, HyperKernelRidgeCV
from hkrr._storage.checkpoint_format import as_bytes, packed, read
from hkrr.estimators import _grid_search
from hkrr.kernels import Gaussian, Laplace
from hkrr.objective import Objective
from hkrr.solvers import LBFGS
from support.killed_fits import data
from support.stopped_fits import BreakAt, Broken, UserSolver, assert_same, ridge


def test_equivalent_parameters_resume(tmp_path, monkeypatch):
    path, calls = tmp_path / "fit.checkpoint", []
    original = Objective.reduced
    monkeypatch.setattr(Objective, "reduced", lambda *a: calls.append(1) or original(*a))
    expected = ridge().fit(*data())
    full = len(calls)
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*data())
    equivalent = {"n_components": np.int64(2), "kernel": Gaussian(), "solver": LBFGS(), "n_centers": np.int32(30)}
    calls.clear()
    found = ridge(str(path), **equivalent, max_iter=np.int64(25), random_state=np.int64(0), tol=np.float64(1e-6)).fit(
        *data()
    )
    assert 0 < len(calls) < full - 8
    assert_same(found, expected)
    with pytest.raises(CheckpointError, match=r"its kernel was Gaussian.*, and is now Laplace"):
        ridge(path, kernel=Laplace()).fit(*data())


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the best candidate of such a small grid is at its edge
def test_equivalent_parameters_have_the_same_journal_keys(tmp_path, monkeypatch):
    path, pairs = tmp_path / "fit.checkpoint", []
    parameters = {"cv": 2, "criterion": "training", "n_init": 1, "random_state": 0, "checkpoint": path}
    HyperKernelRidgeCV([1], reg_lambdas=[1e-2], **parameters).fit(*data())
    monkeypatch.setattr(_grid_search, "_scores_along_lambda", lambda *a: pairs.append(1))
    HyperKernelRidgeCV((np.int64(1),), reg_lambdas=np.array([1e-2]), **parameters).fit(*data())
    assert pairs == []


def test_tensors_on_another_device_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    X, y = map(torch.tensor, data())
    path = tmp_path / "fit.checkpoint"
    ridge(path, max_iter=1).fit(X, y)
    _, entries = read(path)
    entries["fit", ""]["belongs_to"]["data"]["place"] = "cuda:0"
    path.write_bytes(as_bytes({key: packed(value) for key, value in entries.items()}))
    with pytest.raises(CheckpointError, match="its data were on the device cuda:0, and are now on cpu"):
        ridge(path, max_iter=1).fit(X, y)


def test_a_solver_that_cannot_be_pickled_is_refused_by_name(tmp_path):
    class Local(UserSolver):
        pass

    path = tmp_path / "fit.checkpoint"
    with pytest.raises(CheckpointError, match=r"solver is a .* that cannot be pickled.*checkpoint=None"):
        ridge(path, solver=Local()).fit(*data())
    assert not path.exists()
    assert_same(ridge(solver=Local()).fit(*data()), ridge(solver=UserSolver()).fit(*data()))


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the best candidate of such a small grid is at its edge
def test_splits_from_a_generator_need_not_be_picklable(tmp_path):
    X, y = data()
    half = len(X) // 2

    def model(path):
        splits = (pair for pair in [(range(half), range(half, len(X)))])
        return HyperKernelRidgeCV(
            [1], cv=splits, criterion="training", reg_lambdas=[1e-2], n_init=1, random_state=0, checkpoint=path
        )

    found = model(tmp_path / "fit.checkpoint").fit(X, y)
    assert_same(model(tmp_path / "fit.checkpoint").fit(X, y), found)
