"""HyperKernelRidge started from the map of a subspace estimator (``init="sir"`` and similar options)."""

import numpy as np
import pytest

from hkrr import HyperKernelRidge
from hkrr.baselines import OPG, PHD, SAVE, SIR
from hkrr.datasets import make_planted
from hkrr.metrics import subspace_distance

DATA = make_planted("weak", 900, n_features=12, random_state=0)
NAMES = ("sir", "save", "phd", "opg", "mave")


@pytest.mark.parametrize(
    "name", [name if name in ("sir", "mave") else pytest.param(name, marks=pytest.mark.thorough) for name in NAMES]
)
def test_the_fit_finds_the_subspace(name):
    """The fit finds both directions of the link sin(1.5 u) + 0.2 v^2, even if the starting map has only one of them."""
    model = HyperKernelRidge(2, init=name, random_state=0).fit(DATA.X[:600], DATA.y[:600])
    assert model.score(DATA.X[600:], DATA.y[600:]) > 0.95
    assert subspace_distance(model.components_, DATA.B) < 0.15


@pytest.mark.parametrize(("name", "estimator"), [("sir", SIR(2)), ("save", SAVE(2)), ("phd", PHD(2))])
def test_the_start_is_the_estimate(name, estimator):
    """With max_iter=0, the map is the starting map: its rows span the subspace that the estimator finds.

    SIR, SAVE and PHD are tested, because their estimates do not depend on the units of the columns.
    """
    model = HyperKernelRidge(2, init=name, max_iter=0, random_state=0).fit(DATA.X, DATA.y)
    expected = estimator.fit(DATA.X, DATA.y).components_
    # The rows of the model are orthogonalized, so compare the subspaces.
    assert subspace_distance(model.components_, expected) < 1e-8
    assert subspace_distance(expected, model.components_) < 1e-8


def test_a_random_start_is_reproducible():
    # With more than 500 rows, OPG draws its anchor rows at random.
    X, y = DATA.X[:550], DATA.y[:550]
    first, second = (
        HyperKernelRidge(2, init="opg", max_iter=0, random_state=3).fit(X, y).components_ for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    other = OPG(2, random_state=3).fit(X / X.std(axis=0), y).components_ / X.std(axis=0)
    assert subspace_distance(first, other) < 0.2  # not zero, because the estimator draws other anchor rows


def test_rows_with_weight_zero_are_ignored():
    weight = np.ones(len(DATA.y))
    weight[600:] = 0.0
    bent = np.where(weight > 0, DATA.y, 100.0)
    with_weight = HyperKernelRidge(2, init="sir", max_iter=0, random_state=0).fit(DATA.X, bent, sample_weight=weight)
    alone = HyperKernelRidge(2, init="sir", max_iter=0, random_state=0).fit(DATA.X[:600], DATA.y[:600])
    assert subspace_distance(with_weight.components_, alone.components_) < 1e-8


def test_several_targets_are_refused():
    with pytest.raises(ValueError, match="init='sir' needs one target"):
        HyperKernelRidge(2, init="sir").fit(DATA.X, np.column_stack([DATA.y, DATA.y]))


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match="init must be one of 'random', 'sir'"):
        HyperKernelRidge(2, init="pca").fit(DATA.X, DATA.y)


def test_an_estimator_as_start_is_refused_with_the_names():
    with pytest.raises(ValueError, match=r"'mave'.*estimator SIR\(.*pass the name"):
        HyperKernelRidge(1, init=SIR(1)).fit(DATA.X, DATA.y)
