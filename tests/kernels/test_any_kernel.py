"""Tests of kernel="auto": the selected kernel and shape, the reported scores, weights, unusual data and errors."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.estimators.search.kernel_race import LINEAR, PRODUCT, RADIAL
from hkrr.kernels import kernel_name
from hkrr.metrics import subspace_distance
from support.random_problems import SEEDS

DEFAULT_N_INIT = HyperKernelRidgeCV().n_init
NUMBERS = ["reg_lambda", "gamma", "criterion", "score", "seconds"]
COLUMNS = ["start", "kernel", "shape", "n_components", "n_rows", "n_centers", *NUMBERS]


def _zigzags(seed, m=120):
    """Return training rows (X, y) and 500 test rows (X, y without noise).

    y is a sum of four zigzag functions, one for each column, with different frequencies.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(m + 500, 4))
    z = np.abs(np.mod(X * [6.0, 3.0, 1.5, 0.5], 2.0) - 1.0) @ [1.0, 1.5, 2.0, 1.0]
    return X[:m], z[:m] + 0.1 * rng.normal(size=m), X[m:], z[m:]


def _small(m=60, D=3, T=1, seed=0):
    rng = np.random.default_rng([seed, m, D, T])
    X = rng.normal(size=(m, D))
    y = np.stack([np.sin(2.0 * X[:, 0] + t) for t in range(T)], axis=1) + 0.3 * rng.normal(size=(m, T))
    return X, y[:, 0] if T == 1 else y


def _auto(**options):
    return HyperKernelRidgeCV(**{"kernel": "auto", "n_init": 1, "random_state": 0} | options)


@pytest.fixture(scope="module")
def model():
    """Return a fitted model that several tests share."""
    return _auto().fit(*_small())


@pytest.mark.parametrize(("m", "n_init"), [(120, 1), pytest.param(150, DEFAULT_N_INIT, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_diagonal_map_is_selected_for_additive_columns(seed, m, n_init):
    X, y, X_test, z_test = _zigzags(seed, m)
    found = _auto(n_init=n_init, random_state=seed).fit(X, y)
    path = pd.DataFrame(found.path_)
    finalists = path[path["n_rows"] == m]
    best = finalists.loc[finalists["score"].idxmin()]
    assert best["shape"] == found.map_shape_
    assert best["shape"] in ("diagonal", "identity")
    assert best["kernel"] in PRODUCT
    assert best["kernel"] == kernel_name(found.kernel_)
    assert best["n_components"] == found.n_components_ == 4
    assert_array_equal(found.components_, np.diag(np.diag(found.components_)))
    assert best["score"] < path.loc[path["shape"] == "full", "score"].min()
    gaussian = HyperKernelRidgeCV(n_init=n_init, random_state=seed).fit(X, y)
    assert found.score(X_test, z_test) > gaussian.score(X_test, z_test) + 0.1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.thorough
def test_a_full_map_is_selected_for_a_multi_index_model(seed):
    data = make_mim_sines(700, 15, 2, random_state=seed)
    found = _auto(n_init=DEFAULT_N_INIT, random_state=seed).fit(data.X[:250], data.y[:250])
    assert (found.n_components_, found.map_shape_) == (2, "full")
    assert kernel_name(found.kernel_) in RADIAL
    assert subspace_distance(found.components_, data.B) < 0.2
    assert found.score(data.X[250:], data.y[250:]) > 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_irrelevant_columns_do_not_hide_the_others(seed):
    """Test that a diagonal map is found if only two of twelve columns matter, so that ten scales go to zero."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((800, 12))
    y = np.sin(3.0 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(800)
    found = _auto(n_init=DEFAULT_N_INIT, random_state=seed).fit(X[:300], y[:300])
    assert found.map_shape_ == "diagonal"
    assert found.score(X[300:], y[300:]) > 0.9


def test_the_columns_of_the_path(model):
    assert list(model.path_) == COLUMNS
    assert len({len(column) for column in model.path_.values()}) == 1
    path = pd.DataFrame(model.path_)
    assert set(path["kernel"]) == {*RADIAL, *PRODUCT, LINEAR}
    assert set(path["shape"]) == {"identity", "diagonal", "full"}
    assert set(path.loc[path["shape"] == "full", "kernel"]) <= set(RADIAL)
    assert np.all(np.isfinite(path[NUMBERS]))
    searched = path["start"].isin(["random", "moments", "cut", "widened"])
    assert set(path.loc[searched, "n_centers"]) == {60}  # all rows
    assert path.loc[path["shape"] != "full", "n_centers"].isna().all()
    assert path["seconds"].min() >= 0.0
    assert model.reg_lambda_ == pytest.approx(path["reg_lambda"].iloc[-1], rel=1e-9)
    assert model.best_score_ == path["score"].iloc[-1]


def test_the_scores_of_the_path_are_bics(model):
    """Test that the scores for 60 rows and one target are 60 l + (dof / 2) log 60, where l is the criterion.

    dof is the number of degrees of freedom of the map: 1 for an identity map, 3 for a diagonal map of three columns,
    and 3 d - d (d - 1) / 2 for d directions. The penalty of a sparse map, which uses one of the three columns, is
    ``log(60) / 2 + log(3)``.
    """
    dof = {"identity": lambda d: 1, "diagonal": lambda d: 3, "full": lambda d: 3 * d - d * (d - 1) / 2}
    path = pd.DataFrame(model.path_)
    path = path[path["start"] != "held out"]  # the scores of the held-out check are errors, not BICs
    penalty = [dof[row.shape](row.n_components) / 2.0 * math.log(60) for row in path.itertuples(index=False)]
    sparse = (path["start"] == "sparse").to_numpy()
    assert np.any(sparse)
    penalty = np.where(sparse, math.log(60) / 2.0 + math.log(3), penalty)
    assert_allclose(path["score"][:-1], (60.0 * path["criterion"] + penalty)[:-1], rtol=1e-10)
    # The last row is the selected candidate. Its label does not tell whether its map is sparse.
    assert path["score"].iloc[-1] in path["score"].iloc[:-1].to_list()


@pytest.mark.thorough
def test_pickles_and_clones(model):
    X, y = _small()
    predicted = model.predict(X)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), predicted)
    again = clone(model)
    assert again.kernel == "auto"
    assert not hasattr(again, "kernel_")
    assert_array_equal(again.fit(X, y).predict(X), predicted)


@pytest.mark.parametrize("n_jobs", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_the_model_does_not_depend_on_n_jobs(model, n_jobs):
    X, y = _small()
    assert_array_equal(_auto(n_jobs=n_jobs).fit(X, y).predict(X), model.predict(X))


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # the shortest limit allows no search
@pytest.mark.filterwarnings("ignore::hkrr.IllConditionedWarning")  # y has no noise
@pytest.mark.parametrize(
    "seconds", [1e-9, 0.1, *(pytest.param(limit, marks=pytest.mark.thorough) for limit in (0.4, 1.0))]
)
def test_there_is_a_model_after_any_time_limit(seconds):
    X, y, X_test, _ = _zigzags(2, m=300)
    found = _auto(time_limit=seconds).fit(X, y)
    assert found.predict(X_test).shape == (500,)
    assert np.all(np.isfinite(found.predict(X_test)))
    assert len({len(column) for column in found.path_.values()}) == 1


ODD = {
    "one feature": lambda r: (r.normal(size=(60, 1)), None),
    "constant column": lambda r: (np.c_[r.normal(size=(60, 2)), np.full(60, 0.3)], None),
    "only constant columns": lambda r: (np.ones((40, 2)), r.normal(size=40)),
    "constant target": lambda r: (r.normal(size=(50, 3)), np.ones(50)),
    "duplicate rows": lambda r: (np.repeat(r.normal(size=(20, 3)), 4, axis=0), None),
    "duplicate columns": lambda r: (r.normal(size=(60, 1)) * np.ones(3), None),
    "fewer rows than features": lambda r: (r.normal(size=(20, 40)), None),
    "two rows": lambda r: (r.normal(size=(2, 3)), None),
    "units": lambda r: (r.normal(size=(80, 3)) * [1e-6, 1.0, 1e6], None),
    "two targets": lambda r: (r.normal(size=(80, 3)), r.normal(size=(80, 2))),
    "no noise": lambda r: (x := r.normal(size=(60, 2)), np.abs(x[:, 0])),
}

QUICK = ("one feature", "only constant columns", "two rows")
ODD_FOR_LOO = [
    "one feature",
    "constant target",
    "duplicate rows",
    "fewer rows than features",
    "two targets",
    "no noise",
]


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # the data are unusual, and the library warns
@pytest.mark.parametrize(
    ("criterion", "case"),
    [
        *(("evidence", case) for case in QUICK),
        *(pytest.param("evidence", case, marks=pytest.mark.thorough) for case in ODD if case not in QUICK),
        *(pytest.param("loo", case, marks=pytest.mark.thorough) for case in ODD_FOR_LOO),
    ],
)
def test_unusual_data_give_finite_predictions(criterion, case):
    rng = np.random.default_rng(0)
    X, y = ODD[case](rng)
    if y is None:
        y = np.sin(X[:, 0] / X[:, 0].std()) + 0.1 * rng.normal(size=len(X))
    predicted = _auto(criterion=criterion).fit(X, y).predict(X)
    assert predicted.shape == y.shape
    assert np.all(np.isfinite(predicted))


def test_several_targets_are_each_predicted():
    X, y = _small(m=400, T=2)
    found = _auto().fit(X[:100], y[:100])
    for t in range(2):
        z = np.sin(2.0 * X[100:, 0] + t)
        assert np.mean((found.predict(X[100:])[:, t] - z) ** 2) < 0.1 * np.var(z)


@pytest.mark.thorough
def test_rows_of_weight_zero_are_ignored():
    X, y = _small()
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=len(X))
    absurd = _auto().fit(np.vstack([X, X[:10] + 5.0]), np.append(y, np.full(10, 1e3)), np.append(w, np.zeros(10)))
    assert_allclose(absurd.predict(X), _auto().fit(X, y, w).predict(X), rtol=0, atol=1e-6)


@pytest.mark.thorough
def test_weights_decide_between_contradictory_rows():
    """Test two crossing lines: the line whose rows have a hundred times the weight is predicted."""
    X = np.tile(np.linspace(-1.0, 1.0, 20), 2)[:, None]
    sign = np.repeat([1.0, -1.0], 20)
    for heavy in (1.0, -1.0):
        found = _auto().fit(X, sign * X[:, 0], np.where(sign == heavy, 100.0, 1.0))
        assert_allclose(found.predict(X), heavy * X[:, 0], atol=0.1)


@pytest.mark.parametrize("n_components", [2, pytest.param([1, 2], marks=pytest.mark.thorough)], ids=str)
def test_a_given_number_of_directions_is_kept(n_components):
    """Test that a given number of directions is kept, although "auto" would use all four columns."""
    X, y, *_ = _zigzags(0, m=80)
    found = _auto(n_components=n_components).fit(X, y)
    assert found.n_components_ in np.atleast_1d(n_components)
    assert found.components_.shape == (found.n_components_, 4)
    assert found.map_shape_ == "full"
    assert kernel_name(found.kernel_) in RADIAL


@pytest.mark.thorough
def test_refit_is_the_number_of_centers():
    X, y = _small(m=40)
    assert _auto(refit=30).fit(X, y).centers_.shape == (30, 3)


def test_verbose_prints_progress(capfd):
    _auto(verbose=1).fit(*_small(m=40, D=1))
    assert "".join(capfd.readouterr())


@pytest.mark.parametrize("cv", [3, "holdout"])
def test_auto_is_refused_with_cv(cv):
    with pytest.raises(ValueError, match=r"kernel.*cv|cv.*kernel"):
        _auto(cv=cv).fit(*_small())


def test_errors_name_an_unknown_kernel():
    X, y = _small()
    with pytest.raises(ValueError, match=r"kernel.*nonsense"):
        _auto(kernel="nonsense").fit(X, y)
    with pytest.raises(ValueError, match="kernel"):
        HyperKernelRidge(kernel="auto").fit(X, y)
