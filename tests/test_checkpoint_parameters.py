"""What a checkpoint knows of the parameters of a fit."""

import pytest

from hkrr import CheckpointError, HyperKernelRidgeCV
from test_checkpoint import Stranger, assert_same, ridge
from victims import data


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
