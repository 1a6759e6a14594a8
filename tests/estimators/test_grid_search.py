"""Tests of selection by `cv`: comparison with plain loops, solvers, integer targets, and copies of rows."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators._grid_search import make_splits
from hkrr.estimators.fitted.base import _FITTED_ATTRIBUTES

LAMBDAS = [1e-3, 1e-1, 1e-2]


def _data(m=90, D=4, T=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D))
    Y = np.column_stack([np.sin(2.0 * X[:, 0]), 10.0 * X[:, 0] * X[:, 1]]) + 0.1 * rng.normal(size=(m, 2))
    return X, Y[:, 0] if T == 1 else Y


def _seed(random_state):
    """Return the seed that HyperKernelRidgeCV passes to every fit of the grid."""
    return int(np.random.RandomState(random_state).randint(2**31 - 1))


def _fit(d, reg_lambda, X, y, w=None, before=None, seed=0, **options):
    """Fit d directions with the given lambda, from the map and the kernel of the model `before` if it is given."""
    start = {} if before is None else {"init": before.components_, "kernel": before.kernel_}
    model = HyperKernelRidge(d, reg_lambda=reg_lambda, n_init=2, random_state=_seed(seed), **start, **options)
    return model.fit(X, y, w)


def _table(dimensions, X, y, w, splits, warm_start=False, **options):
    """Return the errors on the held-out rows as {(d, lambda): [error of the first split, ...]}, by a plain loop.

    Only rows with positive weight are used. Splits without such held-out rows are skipped.
    """
    table = {}
    for train, test in splits:
        if w is not None:
            train, test = (np.array([i for i in part if w[i] > 0], dtype=int) for part in (train, test))
        if len(test) == 0:
            continue
        for d in dimensions:
            before = None
            for reg_lambda in sorted(LAMBDAS, reverse=True):
                model = _fit(d, reg_lambda, X[train], y[train], None if w is None else w[train], before, **options)
                before = model if warm_start else None
                predicted, total, weight = model.predict(X[test]), 0.0, 0.0
                M = np.abs(y[train]).max(axis=0)
                for i, p in zip(test, predicted, strict=True):
                    w_i = 1.0 if w is None else w[i]
                    total += w_i * np.mean((np.minimum(np.maximum(p, -M), M) - y[i]) ** 2)
                    weight += w_i
                table.setdefault((d, reg_lambda), []).append(total / weight)
    return table


def _grid(dimensions, **options):
    return HyperKernelRidgeCV(
        dimensions, criterion="training", reg_lambdas=LAMBDAS, n_init=2, random_state=0, **options
    )


def _check_table(model, table):
    results = model.cv_results_
    pairs = list(zip(results["n_components"].tolist(), results["reg_lambda"].tolist(), strict=True))
    assert sorted(pairs) == sorted(table)
    n_splits = len(next(iter(table.values())))
    assert [name for name in results if name.startswith("split")] == [f"split{k}_error" for k in range(n_splits)]
    for i, pair in enumerate(pairs):
        assert_allclose([results[f"split{k}_error"][i] for k in range(n_splits)], table[pair], rtol=1e-8)
        assert results["mean_error"][i] == pytest.approx(np.mean(table[pair]), rel=1e-8)
        assert results["std_error"][i] == pytest.approx(np.std(table[pair]), rel=1e-6, abs=1e-12)
    best = min(table, key=lambda pair: np.mean(table[pair]))
    assert (model.n_components_, model.reg_lambda_) == best
    assert model.best_score_ == pytest.approx(np.mean(table[best]), rel=1e-8)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the grid is small, and a value at its end is selected
@pytest.mark.parametrize(
    ("weighted", "T", "warm_start"),
    [
        (False, 1, True),
        (True, 2, False),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in product([False, True], [1, 2], [False, True])
            if each not in ((False, 1, True), (True, 2, False))
        ),
    ],
)
def test_the_table_matches_a_plain_loop(weighted, T, warm_start):
    """Test that ``cv_results_`` agrees with a plain loop over the grid and the splits.

    The test is made with and without weights (a fifth of them zero), with one and two targets, and with and without
    warm starts.
    """
    X, y = _data(T=T)
    w = np.random.default_rng(1).uniform(0.5, 3.0, len(X)) * (np.arange(len(X)) % 5 > 0) if weighted else None
    folds = KFold(2, shuffle=True, random_state=0)
    model = _grid([1, 2], cv=folds, warm_start=warm_start).fit(X, y, w)
    _check_table(model, _table([1, 2], X, y, w, folds.split(X), warm_start))


def test_a_split_whose_held_out_rows_have_weight_zero_is_ignored():
    X, y = _data()
    fold = np.arange(len(X)) % 3
    w = np.where(fold == 1, 0.0, 1.0 + fold)
    model = _grid([1], cv=PredefinedSplit(fold)).fit(X, y, w)
    _check_table(model, _table([1], X, y, w, PredefinedSplit(fold).split()))
    assert "split2_error" not in model.cv_results_


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # the grid is small, and these solvers converge slowly
@pytest.mark.parametrize("solver", ["varpro", pytest.param("agd", marks=pytest.mark.thorough)])
def test_other_solvers_fit_the_grid(solver):
    X, y = _data(m=60, D=3)
    folds = KFold(2)
    model = _grid([1], cv=folds, solver=solver).fit(X, y)
    _check_table(model, _table([1], X, y, None, folds.split(X), solver=solver))
    last = _fit(1, model.reg_lambda_, X, y, solver=solver)
    assert_allclose(model.components_, last.components_, rtol=1e-10)
    assert not np.allclose(model.components_, _fit(1, model.reg_lambda_, X, y).components_, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("solver", ["varpro", "agd"])
def test_other_solvers_are_refused_without_cv(solver):
    X, y = _data(m=30)
    with pytest.raises(ValueError, match=r"solver.*\bcv\b"):
        HyperKernelRidgeCV(solver=solver).fit(X, y)


def test_an_unknown_solver_is_refused():
    X, y = _data(m=30)
    with pytest.raises(ValueError, match=r"solver.*lbfgs"):
        _grid([1], cv=2, solver="newton").fit(X, y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2])
def test_with_a_warm_start_the_final_model_is_fitted_along_the_path(weighted, d):
    """Test that the final model is the last of a sequence of fits with decreasing lambda.

    Each fit starts from the map and the kernel of the fit before it.
    """
    X, y = _data()
    w = np.random.default_rng(1).uniform(0.5, 3.0, len(X)) if weighted else None
    model = _grid([d], cv=KFold(2), warm_start=True).fit(X, y, w)
    assert model.reg_lambda_ < max(LAMBDAS)  # otherwise there is only one fit
    last = None
    for reg_lambda in sorted(LAMBDAS, reverse=True):
        if reg_lambda >= model.reg_lambda_:
            last = _fit(d, reg_lambda, X, y, w, last)
    for name in ("components_", "gamma_", "dual_coef_"):
        assert_allclose(getattr(model, name), getattr(last, name), rtol=1e-10)
    assert_allclose(model.predict(X), np.clip(last.predict(X), -model.truncation_, model.truncation_), rtol=1e-10)
    alone = _fit(d, model.reg_lambda_, X, y, w)
    assert not np.allclose(model.components_, alone.components_, rtol=1e-10, atol=0.0)


def test_without_a_warm_start_the_final_model_is_a_separate_fit():
    X, y = _data()
    model = _grid([1], cv=KFold(2)).fit(X, y)
    alone = _fit(1, model.reg_lambda_, X, y)
    assert_array_equal(model.components_, alone.components_)
    assert_array_equal(model.dual_coef_, alone.dual_coef_)


def _small_integers(m=60):
    X, y = _data(m=m)
    y = np.round(120.0 * y / np.abs(y).max())
    y[np.argmin(y)] = -128.0
    return X, y


@pytest.mark.parametrize("options", [{}, {"cv": 2, "criterion": "training", "reg_lambdas": [1e-2]}], ids=["none", "cv"])
def test_int8_targets_of_minus_128(options):
    """Test that a target of -128 in int8 gives the same model as in float64, although abs(-128) overflows in int8."""
    X, y = _small_integers()
    one, other = (HyperKernelRidgeCV(1, random_state=0, **options).fit(X, t) for t in (y.astype(np.int8), y))
    assert one.truncation_ == other.truncation_ == (128 if options else 256)
    assert_array_equal(one.predict(X), other.predict(X))
    assert np.ptp(one.predict(X)) > 50.0
    if options:
        for name in ("split0_error", "split1_error"):
            assert_array_equal(one.cv_results_[name], other.cv_results_[name])


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the grid has one lambda
def test_a_refit_with_cv_keeps_no_attribute_of_an_earlier_fit():
    """Test that a second fit, with all rows as centers and without weights, keeps no attribute of the first fit.

    The first fit has few centers, or weights. Such fits store attributes that the second fit does not have.
    """
    X, y = _data(m=60)
    options = {"cv": 2, "criterion": "training", "reg_lambdas": [1e-2], "n_init": 1, "random_state": 0}
    expected = HyperKernelRidgeCV([1], **options).fit(X, y)
    for earlier, weight in (({"refit": 20}, None), ({"refit": "full"}, np.linspace(0.5, 2.0, len(X)))):
        model = HyperKernelRidgeCV([1], **options).set_params(**earlier).fit(X, y, weight)
        model.set_params(**options, refit="full").fit(X, y)
        assert set(vars(model)) == set(vars(expected))
        for found, right in zip(model.predict(X, return_std=True), expected.predict(X, return_std=True), strict=True):
            assert_array_equal(found, right)


# ------------------------------------------------------------------------------------------------ copies of rows


def _with_copies(jitter, n=40, seed=0):
    """Return n rows and n copies of random rows of the first half, in random order, and the group of each row.

    Copies of the same row have the same group. Noise of size `jitter` is added to all rows.
    """
    X, y = _data(n, seed=seed)
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.append(np.arange(n), rng.integers(n // 2, size=n)))
    return X[group] + jitter * rng.normal(size=(2 * n, 4)), y[group] + jitter * rng.normal(size=2 * n), group


@pytest.mark.parametrize("jitter", [0.0, 1e-7])
@pytest.mark.parametrize("cv", ["holdout", 2, np.int64(5)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_splits_keep_copies_together(cv, jitter, seed):
    X, y, group = _with_copies(jitter, seed=seed)
    splits = make_splits(cv, X, y, seed)
    for train, test in splits:
        assert_array_equal(np.sort(np.append(train, test)), np.arange(len(X)))
        assert not set(group[train]) & set(group[test])
    if cv == "holdout":
        assert len(set(group[splits[0][1]])) == 10
    else:
        assert_array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(len(X)))


def _plain_splits(cv, X, seed):
    return list((ShuffleSplit(1, test_size=0.25, random_state=seed) if cv == "holdout" else KFold(cv)).split(X))


def _frequencies():
    rng = np.random.default_rng(0)
    return rng.integers(0, 2, size=(60, 2)).astype(float), rng.integers(0, 2, size=60).astype(float)


def _few_distinct():
    X, y = _data(3)
    return np.tile(X, (4, 1)), np.tile(y, 4)


@pytest.mark.parametrize("cv", ["holdout", 5])
@pytest.mark.parametrize("make", [_data, _frequencies, _few_distinct])
def test_splits_of_other_rows_are_those_of_scikit_learn(make, cv):
    """Test that the splits are those of scikit-learn if copies of rows are not kept together.

    This is so for rows without copies, for rows that repeat by chance, and if there are fewer distinct rows than the
    splits need.
    """
    X, y = make()
    for found, expected in zip(make_splits(cv, X, y, 7), _plain_splits(cv, X, 7), strict=True):
        for one, other in zip(found, expected, strict=True):
            assert_array_equal(one, other)


def test_the_splits_of_a_splitter_are_not_changed():
    X, y, _ = _with_copies(0.0)
    for found, expected in zip(make_splits(KFold(4), X, y, 0), KFold(4).split(X), strict=True):
        for one, other in zip(found, expected, strict=True):
            assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # nothing is learned, at the largest lambda
@pytest.mark.parametrize("jitter", [0.0, 1e-7])
def test_copies_do_not_lower_the_held_out_error(jitter):
    """Test that the held-out error for targets of noise is large, although each row occurs three times.

    If copies of a row were in different splits, a model that interpolates the training rows would predict their
    held-out copies.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    X, y = np.tile(X, (3, 1)), np.tile(y, 3)
    model = HyperKernelRidgeCV([1], criterion="training", cv=3, reg_lambdas=[1e1, 1e-6], n_init=1, random_state=0).fit(
        X + jitter * rng.normal(size=X.shape), y + jitter * rng.normal(size=y.shape)
    )
    assert model.best_score_ > 0.7 * y.var()


def test_the_selected_model_has_every_fitted_attribute():
    """Test that the attributes copied from the selected model are those that a fit of `HyperKernelRidge` sets.

    Only fits with weights and all rows as centers have `center_weight_`. Only fits with fewer centers have
    `posterior_factor_`.
    """
    (X, y), w = _data(), np.random.default_rng(1).uniform(0.5, 2.0, size=90)
    found = set()
    for n_centers in (90, 20):
        plain = HyperKernelRidge(1, reg_lambda=0.01, n_centers=n_centers, n_init=2, random_state=0).fit(X, y, w)
        selected = _grid(1, cv=2, refit=n_centers).fit(X, y, w)
        fitted = {name for name in vars(plain) if name.endswith("_")}
        assert fitted <= set(vars(selected))
        found |= fitted
    assert found == {"n_features_in_", *_FITTED_ATTRIBUTES}
