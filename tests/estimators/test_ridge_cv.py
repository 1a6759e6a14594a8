"""Tests of HyperKernelRidgeCV: the selected model, the grid of `cv`, truncation, time limits, and errors."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV
from hkrr._maps import Diagonal, Full, Scaled
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.estimators.search import candidates
from hkrr.solvers import run
from support.quick_search import make_quick
from support.random_problems import SEEDS


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some checks have targets of pure noise
@parametrize_with_checks([HyperKernelRidgeCV([1], n_init=1)])
def test_sklearn_compatible(estimator, check, monkeypatch):
    make_quick(monkeypatch)
    check(estimator)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some checks have targets of pure noise
@parametrize_with_checks([HyperKernelRidgeCV()])
def test_sklearn_compatible_with_all_starts(estimator, check):
    check(estimator)


@pytest.mark.thorough
@pytest.mark.parametrize(("make", "least"), [(make_mim_sines, 0.97), (make_mim_mixed, 0.95)])
@pytest.mark.parametrize("seed", SEEDS)
def test_finds_three_of_thirty_directions(make, least, seed):
    data = make(1600, n_features=30, n_components=3, random_state=seed)
    model = HyperKernelRidgeCV(random_state=seed).fit(data.X[:600], data.y[:600])
    assert model.n_components_ == 3
    assert model.score(data.X[600:], data.y[600:]) > least


@pytest.mark.parametrize(
    ("make", "least"), [(make_mim_sines, 0.97), pytest.param(make_mim_mixed, 0.95, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_finds_the_number_of_directions_and_the_function(make, least, seed):
    data = make(1400, n_features=10, n_components=2, random_state=seed)
    model = HyperKernelRidgeCV(n_init=2, random_state=seed).fit(data.X[:400], data.y[:400])
    assert model.n_components_ == 2
    assert model.components_.shape == (2, 10)
    assert model.score(data.X[400:], data.y[400:]) > least


# Values of the parameters cv and warm_start.
CHOICES = [("holdout", False), (3, False), (3, True)]


def _small(seed=0, m=200, D=8):
    data = make_mim_sines(m + 300, D, 2, random_state=seed)
    return data.X[:m], data.y[:m], data.X[m:], data.y[m:]


def test_the_path_lists_all_stages():
    X, y, *_ = _small(m=120, D=5)
    model = HyperKernelRidgeCV(n_init=2, random_state=0).fit(X, y)
    path = pd.DataFrame(model.path_)
    dropped = {"random, dropped", "moments, dropped"}
    later = ["polished", "rescaled", "compared", "plain"]
    assert set(path["start"]) <= {"random", "moments", "cut", "widened", *later} | dropped
    assert {"cut", *later} <= set(path["start"])
    assert dropped & set(path["start"])
    # The later stages have one entry each, in this order. The map and plain kernel ridge regression come last.
    assert path["start"].tolist()[-4:] == later
    assert not path["start"][:-4].isin(later).any()
    assert model.best_score_ == path["score"].iloc[-2] < path["score"].iloc[-1]
    among = path[~path["start"].isin(later)]
    assert among.loc[among["score"].idxmin(), "n_components"] == model.n_components_ == 2
    # The starts are wide. The best number of directions and its neighbours are tried.
    assert set(among["n_components"]) == {1, 2, 3, 5}
    assert len(model.spectrum_) == 5
    assert model.spectrum_[0] == 1.0
    assert np.all(np.diff(model.spectrum_) <= 0)


@pytest.mark.thorough
def test_the_same_model_for_every_n_jobs_and_every_repeat():
    X, y, X_test, _ = _small()
    one, two, again = (HyperKernelRidgeCV(random_state=3, n_jobs=n).fit(X, y).predict(X_test) for n in (1, 2, 1))
    assert_array_equal(one, again)
    assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("m", "D", "options"), [(120, 5, {"n_init": 1}), pytest.param(250, 10, {}, marks=pytest.mark.thorough)]
)
def test_plain_kernel_ridge_wins_if_all_directions_matter(m, D, options):
    """Test that plain kernel ridge regression is selected if y depends on the distance to the origin.

    A number of directions given by the user is kept.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, D))
    y = np.linalg.norm(X, axis=1) + 0.05 * rng.normal(size=m)
    model = HyperKernelRidgeCV(**options, random_state=0).fit(X, y)
    assert "plain kernel ridge" in model.result_.message
    assert model.n_components_ == D
    scaled = model.components_ * X.std(axis=0)
    assert_allclose(scaled @ scaled.T, np.eye(D) * (scaled @ scaled.T)[0, 0], atol=1e-12)
    tuned = GridSearchCV(KernelRidge(kernel="rbf"), {"alpha": np.logspace(-3, 1, 5), "gamma": np.logspace(-3, 0, 7)})
    X_test = rng.normal(size=(500, D))
    y_test = np.linalg.norm(X_test, axis=1)
    assert model.score(X_test, y_test) > tuned.fit(X, y - y.mean()).score(X_test, y_test - y.mean()) - 0.02
    assert HyperKernelRidgeCV(2, **options, random_state=0).fit(X, y).n_components_ == 2


@pytest.mark.thorough
def test_plain_kernel_ridge_is_no_worse_than_scikit_learns_on_additive_sines():
    """Test that R2 on new rows is at most 0.02 below the R2 of scikit-learn's KernelRidge.

    The evidence has a second minimum, at which all noise is treated as signal. The search must avoid this minimum.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 6))
    y = np.sin(2.0 * X).sum(axis=1) + 0.1 * rng.normal(size=2500)
    model = HyperKernelRidgeCV(random_state=0).fit(X[:1500], y[:1500])
    peer = KernelRidge(kernel="rbf", alpha=0.01, gamma=0.1).fit(X[:1500], y[:1500])
    assert model.score(X[1500:], y[1500:]) > peer.score(X[1500:], y[1500:]) - 0.02


def test_repeated_samples_are_frequencies():
    """Test that predictions are the frequencies of y = 1 if 4,000 rows have only sixteen distinct samples."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(4000, 3)).astype(float)
    y = (rng.uniform(size=4000) < np.where(X[:, 0] > 0, 0.5, 0.3)).astype(float)
    predicted = HyperKernelRidgeCV(random_state=0).fit(X, y).predict(X)
    for value in (0, 1):
        rows = X[:, 0] == value
        assert predicted[rows].mean() == pytest.approx(y[rows].mean(), abs=0.03)


def test_every_number_of_a_list_is_tried():
    X, y, *_ = _small(m=80, D=6)
    assert set(HyperKernelRidgeCV([1, 2, 3, 6], n_init=1, random_state=0).fit(X, y).path_["n_components"]) >= {
        1,
        2,
        3,
        6,
    }


def test_a_failed_start_is_ignored(monkeypatch):
    calls = iter(range(10**6))

    def sometimes(*arguments, **options):
        if next(calls) == 1:
            raise FitError("in one start")
        return run(*arguments, **options)

    monkeypatch.setattr(candidates, "run", sometimes)
    X, y, *_ = _small(m=120, D=5)
    assert HyperKernelRidgeCV([1, 2, 3], n_init=2, random_state=0).fit(X, y).n_components_ == 2

    def never(*arguments, **options):
        raise FitError("in every start")

    monkeypatch.setattr(candidates, "run", never)
    with pytest.raises(FitError, match="not finite for any starting map"):
        HyperKernelRidgeCV(random_state=0).fit(X, y)


@pytest.mark.parametrize("refit", ["full", 50])
def test_only_the_ratios_of_weights_matter(refit):
    X, y, X_test, _ = _small(m=100, D=4)
    w, model = np.linspace(0.5, 2.0, len(X)), HyperKernelRidgeCV(2, refit=refit, n_init=2, random_state=0)
    one, other = (clone(model).fit(X, y, c * w).predict(X_test) for c in (1.0, 1024.0))
    assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the grid is small, and a value at its end is selected
def test_cv_results_match_a_loop_over_the_estimator():
    """Test that ``cv_results_`` agrees with separate fits of each pair (n_components, reg_lambda) on each fold.

    The held-out predictions are clipped at the largest absolute training target of the fold.
    """
    X, y, *_ = _small(m=90, D=4)
    folds = KFold(2, shuffle=True, random_state=1)
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


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the grid is small, and a value at its end is selected
@pytest.mark.parametrize(
    ("cv", "warm_start"), [("holdout", True), *(pytest.param(*each, marks=pytest.mark.thorough) for each in CHOICES)]
)
def test_selection_by_held_out_error(cv, warm_start):
    X, y, X_test, y_test = _small(m=150, D=4)
    model = HyperKernelRidgeCV(
        [1, 2, 3], criterion="training", cv=cv, reg_lambdas=[1e-1, 1e-3], warm_start=warm_start, random_state=0
    ).fit(X, y)
    assert model.n_components_ >= 2
    assert model.score(X_test, y_test) > 0.9


_GRID = {"cv": 2, "criterion": "training", "reg_lambdas": [1e-2]}


@pytest.mark.filterwarnings("ignore::hkrr.exceptions.IllConditionedWarning", "ignore::hkrr.exceptions.OverfitWarning")
@pytest.mark.parametrize(("options", "factor"), [({}, 2.0), pytest.param(_GRID, 1.0, marks=pytest.mark.thorough)])
def test_predictions_are_truncated(options, factor):
    """Test that predictions are clipped at the largest absolute target with `cv`, and at twice that without `cv`."""
    X, y, *_ = _small(m=100, D=5)
    far = 50.0 * np.random.default_rng(0).normal(size=(500, X.shape[1]))
    model = HyperKernelRidgeCV([2], kernel="polynomial", random_state=0, **options).fit(X, y)
    assert model.truncation_ == factor * np.abs(y).max()
    assert np.abs(model.predict(far)).max() == pytest.approx(model.truncation_)
    loose = clone(model).set_params(truncate=False).fit(X, y)
    assert np.abs(loose.predict(far)).max() > 1.01 * model.truncation_


@pytest.mark.filterwarnings("ignore::hkrr.OverfitWarning")  # with little noise, the fit nearly interpolates
def test_after_the_time_limit_the_best_model_so_far_is_kept():
    """Test that a very short time limit gives a model that is about as good as plain kernel ridge regression."""
    X, y, X_test, y_test = _small()
    model = HyperKernelRidgeCV(random_state=0, time_limit=1e-9).fit(X, y)
    assert "cut" not in model.path_["start"]
    grid = {"alpha": np.logspace(-6, 1, 8), "gamma": np.logspace(-3, 0, 7)}
    plain = GridSearchCV(KernelRidge(kernel="rbf"), grid).fit(X, y)
    assert model.score(X_test, y_test) > plain.score(X_test, y_test) - 0.1


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

QUICK_CASES = ("one feature", "two rows", "constant target", "two targets")


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # the data are unusual, and the library warns
@pytest.mark.parametrize(
    ("case", "criterion"),
    [
        (case, criterion)
        if criterion == "evidence" and case in QUICK_CASES
        else pytest.param(case, criterion, marks=pytest.mark.thorough)
        for case in CASES
        for criterion in ("evidence", "loo")
    ],
)
def test_unusual_data_give_finite_predictions(case, criterion):
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
        ({"n_components": [1, 2.5]}, "n_components must be an integer of at least 1, got 2.5"),
        ({"cv": 3, "reg_lambdas": 0.1}, "reg_lambdas"),
        ({"block_size": 0}, "block_size"),
        ({"truncate": "no"}, "truncate"),
        ({"fit_intercept": "no"}, "fit_intercept"),
        ({"kernel": "rbf"}, "kernel.*gaussian"),
    ],
)
def test_errors_name_the_invalid_parameter(parameters, match):
    X = np.random.default_rng(0).normal(size=(30, 4))
    with pytest.raises(ValueError, match=match):
        HyperKernelRidgeCV(**parameters).fit(X, X[:, 0])


def test_degrees_of_freedom():
    """Test that the parameters of a map are its entries minus the rotations, if the kernel is rotation invariant.

    A 1 x D map has no rotations, and a D x D map has D (D + 1) / 2 parameters. A diagonal map has D parameters. A
    multiple of the identity has one.
    """
    assert Full().degrees_of_freedom(1, 7, True) == 7
    assert Full().degrees_of_freedom(7, 7, True) == 7 * 8 / 2
    assert Full().degrees_of_freedom(3, 7, False) == 21
    assert Diagonal().degrees_of_freedom(7, 7, True) == Diagonal().degrees_of_freedom(7, 7, False) == 7
    assert Scaled(np.ones(7)).degrees_of_freedom(7, 7, True) == 1
