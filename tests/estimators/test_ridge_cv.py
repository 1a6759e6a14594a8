"""HyperKernelRidgeCV: what it chooses, the paper's grid against a loop, the search's own rules, limits and repeats."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV, candidates
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.shapes import Diagonal, Full, Scaled
from hkrr.solvers import run
from problems import SEEDS


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # of targets that are noise, and that is said
@parametrize_with_checks([HyperKernelRidgeCV([1], n_init=1)])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # of targets that are noise, and that is said
@parametrize_with_checks([HyperKernelRidgeCV()])
def test_sklearn_compatible_with_all_starts(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("make", "least"), [(make_mim_sines, 0.97), pytest.param(make_mim_mixed, 0.95, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_finds_the_number_of_directions_and_the_function(make, least, seed):
    data = make(1600, n_features=30, n_components=3, random_state=seed)
    model = HyperKernelRidgeCV(random_state=seed).fit(data.X[:600], data.y[:600])
    assert model.n_components_ == 3
    assert model.components_.shape == (3, 30)
    assert model.score(data.X[600:], data.y[600:]) > least


def _small(seed=0, m=200, D=8):
    data = make_mim_sines(m + 300, D, 2, random_state=seed)
    return data.X[:m], data.y[:m], data.X[m:], data.y[m:]


def test_the_path_tells_the_story():
    X, y, *_ = _small()
    model = HyperKernelRidgeCV(random_state=0).fit(X, y)
    path = pd.DataFrame(model.path_)
    dropped = {"random, dropped", "grown, dropped", "moments, dropped"}
    later = ["polished", "rescaled", "compared", "plain"]
    assert set(path["start"]) <= {"random", "grown", "moments", "shrunk", *later} | dropped
    assert {"shrunk", *later} <= set(path["start"])
    assert dropped & set(path["start"])
    # The stages in their order, one candidate each; the map and its rival end the story.
    assert path["start"].tolist()[-4:] == later
    assert not path["start"][:-4].isin(later).any()
    assert model.best_score_ == path["score"].iloc[-2] < path["score"].iloc[-1]
    among = path[~path["start"].isin(later)]
    assert among.loc[among["score"].idxmin(), "n_components"] == model.n_components_ == 2
    # Two directions beyond the best were tried before it ended.
    assert among["n_components"].max() == 4


@pytest.mark.thorough
def test_the_same_model_for_every_n_jobs_and_every_repeat():
    X, y, X_test, _ = _small()
    one, two, again = (HyperKernelRidgeCV(random_state=3, n_jobs=n).fit(X, y).predict(X_test) for n in (1, 2, 1))
    assert_array_equal(one, again)
    assert_array_equal(one, two)


def test_where_no_direction_stands_out_plain_kernel_ridge_wins():
    """A function of the distance to the origin in ten dimensions needs all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 10))
    y = np.linalg.norm(X, axis=1) + 0.05 * rng.normal(size=250)
    model = HyperKernelRidgeCV(random_state=0).fit(X, y)
    assert "plain kernel ridge" in model.result_.message
    assert model.n_components_ == 10
    scaled = model.components_ * X.std(axis=0)
    assert_allclose(scaled @ scaled.T, np.eye(10) * (scaled @ scaled.T)[0, 0], atol=1e-12)
    tuned = GridSearchCV(KernelRidge(kernel="rbf"), {"alpha": np.logspace(-3, 1, 9), "gamma": np.logspace(-3, 0, 9)})
    X_test = rng.normal(size=(500, 10))
    y_test = np.linalg.norm(X_test, axis=1)
    assert model.score(X_test, y_test) > tuned.fit(X, y - y.mean()).score(X_test, y_test - y.mean()) - 0.02
    # A number of directions that was asked for is kept.
    assert HyperKernelRidgeCV(2, random_state=0).fit(X, y).n_components_ == 2


@pytest.mark.thorough
def test_plain_kernel_ridge_is_no_worse_than_scikit_learns_on_additive_sines():
    """Its evidence has a second minimum where all noise is taken for signal; it must not end there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 6))
    y = np.sin(2.0 * X).sum(axis=1) + 0.1 * rng.normal(size=2500)
    model = HyperKernelRidgeCV(random_state=0).fit(X[:1500], y[:1500])
    peer = KernelRidge(kernel="rbf", alpha=0.01, gamma=0.1).fit(X[:1500], y[:1500])
    assert model.score(X[1500:], y[1500:]) > peer.score(X[1500:], y[1500:]) - 0.02


def test_repeated_samples_count():
    """Sixteen distinct samples, four thousand of them: frequencies are known well, and predicted."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(4000, 3)).astype(float)
    y = (rng.uniform(size=4000) < np.where(X[:, 0] > 0, 0.5, 0.3)).astype(float)
    predicted = HyperKernelRidgeCV(random_state=0).fit(X, y).predict(X)
    for value in (0, 1):
        rows = X[:, 0] == value
        assert predicted[rows].mean() == pytest.approx(y[rows].mean(), abs=0.03)


def test_every_number_of_a_list_is_tried():
    X, y, *_ = _small()
    assert set(HyperKernelRidgeCV([1, 2, 3, 6], random_state=0).fit(X, y).path_["n_components"]) >= {1, 2, 3, 6}


def test_a_start_that_fails_costs_one_start(monkeypatch):
    calls = iter(range(10**6))

    def sometimes(*arguments, **options):
        if next(calls) == 1:
            raise FitError("in one start")
        return run(*arguments, **options)

    monkeypatch.setattr(candidates, "run", sometimes)
    X, y, *_ = _small()
    assert HyperKernelRidgeCV(random_state=0).fit(X, y).n_components_ == 2

    def never(*arguments, **options):
        raise FitError("in every start")

    monkeypatch.setattr(candidates, "run", never)
    with pytest.raises(FitError, match="No start"):
        HyperKernelRidgeCV(random_state=0).fit(X, y)


@pytest.mark.parametrize("refit", ["full", 50])
def test_weights_that_are_no_counts_count_by_their_ratios(refit):
    X, y, X_test, _ = _small()
    w, model = np.linspace(0.5, 2.0, len(X)), HyperKernelRidgeCV(2, refit=refit, n_init=2, random_state=0)
    one, other = (clone(model).fit(X, y, c * w).predict(X_test) for c in (1.0, 1024.0))
    assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # a grid of few, of which an end is chosen
def test_cv_results_are_those_of_a_loop_over_the_plain_estimator():
    """The paper's rule by hand: each pair on each fold, predictions cut at the largest |y| of the training part."""
    X, y, *_ = _small(m=90, D=4)
    folds = KFold(3, shuffle=True, random_state=1)
    lambdas, dimensions = [1e-1, 1e-3], [1, 2]
    model = HyperKernelRidgeCV(dimensions, criterion="training", cv=folds, reg_lambdas=lambdas, random_state=5).fit(
        X, y
    )
    seed = int(np.random.RandomState(5).randint(2**31 - 1))
    table = pd.DataFrame(model.cv_results_)
    assert len(table) == 4
    for row in table.itertuples():
        for k, (train, test) in enumerate(folds.split(X)):
            fit = HyperKernelRidge(row.n_components, reg_lambda=row.reg_lambda, n_init=4, random_state=seed)
            fit.fit(X[train], y[train])
            M = np.abs(y[train]).max()
            error = np.mean((np.clip(fit.predict(X[test]), -M, M) - y[test]) ** 2)
            assert getattr(row, f"split{k}_error") == pytest.approx(error, rel=1e-9)
    best = table.loc[table["mean_error"].idxmin()]
    assert (model.n_components_, model.reg_lambda_) == (best["n_components"], best["reg_lambda"])
    assert model.best_score_ == pytest.approx(best["mean_error"])


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # a grid of few, of which an end is chosen
@pytest.mark.parametrize("cv", ["holdout", 3])
@pytest.mark.parametrize("warm_start", [False, True])
def test_held_out_choice(cv, warm_start):
    X, y, X_test, y_test = _small(m=150, D=4)
    model = HyperKernelRidgeCV(
        [1, 2, 3], criterion="training", cv=cv, reg_lambdas=[1e-1, 1e-3], warm_start=warm_start, random_state=0
    ).fit(X, y)
    assert model.n_components_ >= 2
    assert model.score(X_test, y_test) > 0.9


_ON_A_GRID = {"cv": 2, "criterion": "training", "reg_lambdas": [1e-2]}


@pytest.mark.parametrize(("options", "room"), [({}, 2.0), pytest.param(_ON_A_GRID, 1.0, marks=pytest.mark.thorough)])
def test_predictions_are_cut(options, room):
    """At the largest target where the paper's rule chooses, at twice that otherwise."""
    X, y, *_ = _small()
    far = 50.0 * np.random.default_rng(0).normal(size=(500, X.shape[1]))
    model = HyperKernelRidgeCV([2], kernel="polynomial", random_state=0, **options).fit(X, y)
    assert model.truncation_ == room * np.abs(y).max()
    assert np.abs(model.predict(far)).max() == pytest.approx(model.truncation_)
    loose = clone(model).set_params(truncate=False).fit(X, y)
    assert np.abs(loose.predict(far)).max() > 1.01 * model.truncation_


def test_past_its_time_it_keeps_what_it_has():
    """Without time for a second number of directions, the first is what there is; no clock is asked."""
    X, y, X_test, _ = _small()
    model = HyperKernelRidgeCV(random_state=0, time_limit=1e-9).fit(X, y)
    assert set(model.path_["n_components"]) == {1}
    assert "plain" not in model.path_["start"]
    assert np.all(np.isfinite(model.predict(X_test)))


CASES = {
    "one feature": lambda r: (r.normal(size=(60, 1)), None),
    "d = D": lambda r: (r.normal(size=(80, 2)), None),
    "fewer rows than features": lambda r: (r.normal(size=(20, 40)), None),
    "two rows": lambda r: (r.normal(size=(2, 3)), None),
    "constant target": lambda r: (r.normal(size=(50, 4)), np.ones(50)),
    "constant columns": lambda r: (np.c_[r.normal(size=(60, 2)), np.full(60, 0.3)], None),
    "duplicate rows": lambda r: (np.repeat(r.normal(size=(20, 3)), 4, axis=0), None),
    "units": lambda r: (r.normal(size=(100, 3)) * [1e-6, 1.0, 1e6], None),
    "two targets": lambda r: (r.normal(size=(100, 3)), r.normal(size=(100, 2))),
}


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # odd data, of which the library says so
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("criterion", ["evidence", "loo"])
def test_fits_and_predicts_finitely(case, criterion):
    rng = np.random.default_rng(0)
    X, y = CASES[case](rng)
    if y is None:
        y = np.sin(X[:, 0] / X[:, 0].std()) + 0.1 * rng.normal(size=len(X))
    predicted = HyperKernelRidgeCV(criterion=criterion, random_state=0).fit(X, y).predict(X)
    assert predicted.shape == y.shape
    assert np.all(np.isfinite(predicted))


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"criterion": "aic"}, "criterion.*evidence"),
        ({"criterion": "training"}, "cv"),
        ({"reg_lambdas": [1e-2]}, "reg_lambdas"),
        ({"cv": "leave"}, "cv.*holdout"),
        ({"cv": 3, "reg_lambdas": [-1.0]}, "reg_lambdas"),
        ({"n_components": 9}, "n_components=9.*n_features=4"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": "all"}, "n_components.*auto"),
        ({"refit": 0}, "refit"),
        ({"time_limit": -1}, "time_limit"),
        ({"time_limit": 1, "cv": 3}, "time_limit"),
        ({"warm_start": True}, "warm_start"),
        ({"n_components": []}, "n_components"),
        ({"cv": 3, "reg_lambdas": 0.1}, "reg_lambdas"),
        ({"block_size": 0}, "block_size"),
        ({"truncate": "no"}, "truncate"),
        ({"fit_intercept": "no"}, "fit_intercept"),
        ({"kernel": "rbf"}, "kernel.*gaussian"),
    ],
)
def test_bad_parameters_are_named(parameters, match):
    X = np.random.default_rng(0).normal(size=(30, 4))
    with pytest.raises(ValueError, match=match):
        HyperKernelRidgeCV(**parameters).fit(X, X[:, 0])


def test_degrees_of_freedom():
    """Entries less rotations: 1 x D has none, D x D has D(D + 1)/2, the entries of a symmetric matrix."""
    assert Full().degrees_of_freedom(1, 7, True) == 7
    assert Full().degrees_of_freedom(7, 7, True) == 7 * 8 / 2
    assert Full().degrees_of_freedom(3, 7, False) == 21
    assert Diagonal().degrees_of_freedom(7, 7, True) == Diagonal().degrees_of_freedom(7, 7, False) == 7
    assert Scaled(np.ones(7)).degrees_of_freedom(7, 7, True) == 1
