"""HyperKernelRidge started from a classical estimate of the subspace."""

import numpy as np
import pytest

from hkrr import HyperKernelRidge
from hkrr.baselines import OPG, PHD, SAVE, SIR
from hkrr.datasets import make_planted
from hkrr.metrics import subspace_distance

DATA = make_planted("weak", 900, n_features=12, random_state=0)
NAMES = ("sir", "save", "phd", "opg", "mave")


@pytest.mark.parametrize("name", NAMES)
def test_the_fit_finds_the_subspace(name):
    """Each start sees the link, sin(1.5 u) + 0.2 v^2, in part at least; L-BFGS does the rest."""
    model = HyperKernelRidge(2, init=name, random_state=0).fit(DATA.X[:600], DATA.y[:600])
    assert model.score(DATA.X[600:], DATA.y[600:]) > 0.95
    assert subspace_distance(model.components_, DATA.B) < 0.15


@pytest.mark.parametrize(("name", "estimator"), [("sir", SIR(2)), ("save", SAVE(2)), ("phd", PHD(2))])
def test_the_start_is_the_estimate(name, estimator):
    """Without an iteration the map is the estimate's: these three do not notice the units of the columns."""
    model = HyperKernelRidge(2, init=name, max_iter=0, random_state=0).fit(DATA.X, DATA.y)
    expected = estimator.fit(DATA.X, DATA.y).components_
    # The model's rows are orthogonalised: the same span.
    assert subspace_distance(model.components_, expected) < 1e-8
    assert subspace_distance(expected, model.components_) < 1e-8


def test_a_start_that_draws_is_reproducible():
    first, second = (
        HyperKernelRidge(2, init="opg", max_iter=0, random_state=3).fit(DATA.X, DATA.y).components_ for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    other = OPG(2, random_state=3).fit(DATA.X / DATA.X.std(axis=0), DATA.y).components_ / DATA.X.std(axis=0)
    assert subspace_distance(first, other) < 0.2  # other anchors


def test_rows_without_weight_do_not_count():
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
    with pytest.raises(ValueError, match=r"'mave'.*estimator SIR\(.*give its name"):
        HyperKernelRidge(1, init=SIR(1)).fit(DATA.X, DATA.y)
