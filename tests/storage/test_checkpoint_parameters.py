"""What a checkpoint knows of the parameters of a fit."""

import numpy as np
import pytest

from hkrr import CheckpointError, HyperKernelRidgeCV, grid
from hkrr.checkpoint_file import as_bytes, packed, read
from hkrr.kernels import Gaussian, Laplace
from hkrr.objective import Objective
from hkrr.solvers import LBFGS
from test_checkpoint import BreakAt, Broken, Stranger, assert_same, ridge
from victims import data


def test_what_means_the_same_goes_on(tmp_path, monkeypatch):
    path, calls = tmp_path / "fit.checkpoint", []
    original = Objective.reduced
    monkeypatch.setattr(Objective, "reduced", lambda *a: calls.append(1) or original(*a))
    expected = ridge().fit(*data())
    full = len(calls)
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*data())
    spelled = {"n_components": np.int64(2), "kernel": Gaussian(), "solver": LBFGS(), "n_centers": np.int32(30)}
    calls.clear()
    found = ridge(str(path), **spelled, max_iter=np.int64(25), random_state=np.int64(0), tol=np.float64(1e-6)).fit(
        *data()
    )
    assert 0 < len(calls) < full - 8
    assert_same(found, expected)
    with pytest.raises(CheckpointError, match=r"its kernel was Gaussian.*, and is now Laplace"):
        ridge(path, kernel=Laplace()).fit(*data())


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of a grid as small as this one
def test_what_means_the_same_is_not_computed_again(tmp_path, monkeypatch):
    """The keys of the journal are no other ones either."""
    path, pairs = tmp_path / "fit.checkpoint", []
    parameters = {"cv": 2, "criterion": "training", "n_init": 1, "random_state": 0, "checkpoint": path}
    HyperKernelRidgeCV([1], reg_lambdas=[1e-2], **parameters).fit(*data())
    monkeypatch.setattr(grid, "_scores_along_lambda", lambda *a: pairs.append(1))
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
    with pytest.raises(CheckpointError, match="its data were on the device cuda:0, and these are on cpu"):
        ridge(path, max_iter=1).fit(X, y)


def test_a_solver_that_cannot_be_pickled_is_refused_by_name(tmp_path):
    class Local(Stranger):
        pass

    path = tmp_path / "fit.checkpoint"
    with pytest.raises(CheckpointError, match=r"checkpoint needs a solver that can be pickled.*checkpoint=None"):
        ridge(path, solver=Local()).fit(*data())
    assert not path.exists()
    assert_same(ridge(solver=Local()).fit(*data()), ridge(solver=Stranger()).fit(*data()))


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of a grid as small as this one
def test_splits_from_a_generator_need_not_be(tmp_path):
    X, y = data()
    half = len(X) // 2

    def model(path):
        splits = (pair for pair in [(range(half), range(half, len(X)))])
        return HyperKernelRidgeCV(
            [1], cv=splits, criterion="training", reg_lambdas=[1e-2], n_init=1, random_state=0, checkpoint=path
        )

    found = model(tmp_path / "fit.checkpoint").fit(X, y)
    assert_same(model(tmp_path / "fit.checkpoint").fit(X, y), found)
