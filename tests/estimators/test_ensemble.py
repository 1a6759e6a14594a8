"""Tests of HyperKernelEnsemble: the members and their weights, kinds of input, odd data, stopped fits, intervals."""

import copy
import itertools
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from hkrr import HyperKernelEnsemble, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.estimators.search import search_and_refit
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.stacking import LEAST_SQUARES
from hkrr.estimators.search.time_budget import TimeBudget
from support.quick_search import make_quick
from support.random_problems import SEEDS
from support.stopped_fits import breaking

# Checks that take seconds. `make thorough` runs all checks.
SLOW = ("check_regressors_train", "check_regressor_data_not_an_array")
CHECKS = [
    pytest.param(estimator, check, id=name, marks=[pytest.mark.thorough] if name in SLOW else [])
    for estimator, check in estimator_checks_generator(HyperKernelEnsemble(n_init=1, n_jobs=1))
    for name in [getattr(check, "func", check).__name__]
]


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some checks have targets of pure noise
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_sklearn_compatible(estimator, check, monkeypatch):
    make_quick(monkeypatch)
    check(estimator)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some checks have targets of pure noise
@parametrize_with_checks([HyperKernelEnsemble()])
def test_sklearn_compatible_with_all_starts(estimator, check):
    check(estimator)


def _ensemble(**options):
    return HyperKernelEnsemble(**{"n_init": 1, "n_jobs": 1, "random_state": 0} | options)


def _data(n=60, T=1, noise=0.1, seed=0):
    """Return X, y and the function without noise. The function is a sum of functions of the columns."""
    rng = np.random.default_rng([seed, n, T])
    X = rng.normal(size=(n, 3))
    F = np.stack([np.sin(2.0 * X[:, 0] + t) + (1.0 - 3.0 * t) * X[:, 1] for t in range(T)], axis=1)
    F = F[:, 0] if T == 1 else F
    return X, F + noise * rng.normal(size=F.shape), F


@pytest.fixture
def quick(monkeypatch):
    """Reduce the numbers of iterations. The accuracy does not matter in tests with this fixture."""
    make_quick(monkeypatch)


@pytest.fixture(scope="module", params=[1, 2], ids=["one target", "two targets"])
def fitted(request):
    """Return an ensemble, and rows that were not used in its fit."""
    X, y, _ = _data(480, request.param, noise=0.3)
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        return _ensemble().fit(X[:100], y[:100]), X[100:], y[100:]


# ------------------------------------------------------------------------------------ members and weights


def test_the_prediction_is_the_weighted_sum_of_the_members(fitted):
    model, X, y = fitted
    assert len(model.members_) > 1
    assert all(type(member) is HyperKernelRidgeCV for member in model.members_)
    total = sum(
        w * (member.predict(X) - model.intercept_) for w, member in zip(model.weights_, model.members_, strict=True)
    )
    assert_allclose(model.predict(X), model.intercept_ + total, rtol=1e-12)
    assert model.predict(X).shape == y.shape
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)), rel=1e-12)
    assert model.score(X, y) > 0.85


def test_weights_are_positive_and_sorted(fitted):
    weights = fitted[0].weights_
    assert np.all(weights >= 0.01)
    assert_array_equal(weights, np.sort(weights)[::-1])
    assert np.sum(weights) == pytest.approx(1.0, abs=0.1)


def test_members_differ_in_kernel_shape_or_size(fitted):
    members = fitted[0].members_
    sizes = [(member.n_components_, np.count_nonzero(member.map_)) for member in members]
    keys = {(str(member.kernel), member.map_shape_, size) for member, size in zip(members, sizes, strict=True)}
    assert len(keys) == len(members)
    for member in members:
        assert_array_equal(member.truncation_, fitted[0].truncation_)
        assert_array_equal(member.intercept_, fitted[0].intercept_)


def test_variances_and_importances_are_means_over_the_members(fitted):
    model, X, _ = fitted
    shares = model.weights_ / np.sum(model.weights_)
    for name in ("noise_variance_", "prior_variance_", "feature_importances_"):
        mean = sum(share * getattr(member, name) for share, member in zip(shares, model.members_, strict=True))
        assert_allclose(getattr(model, name), mean, rtol=1e-12)
    deviations = [member.predict(X, return_std=True)[1] for member in model.members_]
    variance = sum(share * one**2 for share, one in zip(shares, deviations, strict=True))
    predicted, std = model.predict(X, return_std=True)
    assert_array_equal(predicted, model.predict(X))
    assert_allclose(std, np.sqrt(variance), rtol=1e-12)
    # The third column has no influence on y.
    assert np.argmin(model.feature_importances_) == 2
    assert np.sum(model.feature_importances_) == pytest.approx(1.0)


def test_the_path_and_the_diagnostics(fitted):
    path = pd.DataFrame(fitted[0].path_)
    assert {"directions", "plain", "diagonal", "square"} <= set(path["start"])
    assert set(path["n_rows"].dropna()) == {40, 80}
    found = fitted[0].diagnostics_
    assert found.explained_share == pytest.approx(0.95, abs=0.05)
    assert found.outliers == ()


def test_intervals(fitted):
    """Test that intervals with coverage 0.9 contain between 80% and 98% of the targets of new rows.

    The intervals come first from leave-one-out errors, and then from a calibration on other rows.
    """
    model, X, y = fitted
    for calibrated in (False, True):
        model = copy.deepcopy(model).calibrate(X[:120], y[:120]) if calibrated else model
        assert model.interval_scores_.shape == ((120,) if calibrated else (100,)) + y.shape[1:]
        lower, upper = model.predict_interval(X[120:], coverage=0.9)
        covered = np.mean((lower <= y[120:]) & (y[120:] <= upper), axis=0)
        assert np.all((covered > 0.8) & (covered < 0.98))
        assert_array_equal(model.predict(X), fitted[0].predict(X))


def _planted(m, D, n_init, seed=0):
    data = make_mim_sines(m + 600, D, 2, random_state=seed)
    X, y = data.X[:m], data.y[:m]
    one = HyperKernelRidgeCV(n_init=n_init, random_state=0).fit(X, y)
    return _ensemble(n_init=n_init).fit(X, y), one, data.X[m:]


@pytest.mark.parametrize(
    ("m", "D", "n_init"), [(120, 8, 1), pytest.param(600, 20, 4, marks=pytest.mark.thorough)], ids=["small", "large"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_multi_index_model_has_one_member(m, D, n_init, seed):
    model, one, X = _planted(m, D, n_init, seed)
    assert_array_equal(model.weights_, [1.0])
    assert model.members_[0].n_components_ == 2
    assert_allclose(model.predict(X), one.predict(X), atol=1e-6)
    assert_allclose(model.interval_scores_, one.interval_scores_, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # the model explains nothing
@pytest.mark.parametrize("seed", SEEDS)
def test_pure_noise_is_predicted_by_about_the_mean(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(2060, 2)), 5.0 + rng.normal(size=2060)
    assert _ensemble().fit(X[:60], y[:60]).score(X[60:], y[60:]) > -0.05


def test_whole_weights_are_repeated_rows():
    X, y, _ = _data()
    w = np.random.default_rng(1).integers(0, 4, size=60)
    weighted = _ensemble().fit(X, y, sample_weight=w)
    repeated = _ensemble().fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert_allclose(weighted.weights_, repeated.weights_, atol=1e-6)
    assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)


@pytest.mark.usefixtures("quick")
def test_members_for_which_there_is_no_time_are_left_out(monkeypatch):
    """Test that, if there is time for only one member, its weight is computed again without the other members."""
    X, y, _ = _data()
    whole = _ensemble().fit(X, y)
    assert len(whole.members_) > 1
    monkeypatch.setattr(TimeBudget, "affordable_fits", lambda *_: 1)
    model = _ensemble().fit(X, y)
    assert [str(one.kernel) for one in model.members_] == [str(whole.members_[0].kernel)]
    assert model.weights_[0] > whole.weights_[0]
    assert model.weights_ == pytest.approx([1.0], abs=0.2)  # 0.2 is the standard deviation of its prior


@pytest.mark.usefixtures("quick")
def test_members_are_sorted_again_if_some_are_left_out(monkeypatch):
    """Test that members are sorted by the weights that are computed after some candidates were left out.

    In this test, the order of the two remaining weights changes when the candidate with the smallest weight is left
    out.
    """
    first, second = np.array([0.1, 0.5, 0.4]), np.array([0.0, 0.3, 0.7])
    weights = iter([first, second])
    calls, original = [], search_and_refit._weigh

    def weigh(*given):
        found = original(*given)
        return replace(found, candidates=found.candidates[:3], left_out=found.among(np.arange(3)))

    def known(finalists, some):
        calls.append(list(some))
        return next(weights)

    monkeypatch.setattr(TimeBudget, "affordable_fits", lambda *_: 2)
    monkeypatch.setattr(search_and_refit, "_weigh", weigh)
    monkeypatch.setattr(search_and_refit._Finalists, "weights", known)
    X, y, _ = _data()
    model = _ensemble().fit(X, y)
    assert calls == [[0, 1, 2], [1, 2]]
    assert_array_equal(model.weights_, [0.7, 0.3])


# ------------------------------------------------------------------------------------ kinds of input


@pytest.fixture(scope="module")
def by_arrays():
    """Return data and the predictions of an ensemble that was fitted on arrays, with few iterations."""
    X, y, _ = _data()
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        return X, y, _ensemble().fit(X, y).predict(X)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_data_frames(by_arrays, library):
    X, y, expected = by_arrays
    frame = library.DataFrame({name: X[:, k] for k, name in enumerate("abc")})
    model = _ensemble().fit(frame, library.Series(y))
    assert list(model.feature_names_in_) == list("abc")
    assert list(model.members_[0].feature_names_in_) == list("abc")
    assert_array_equal(model.predict(frame), expected)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(library.DataFrame({name: X[:, k] for k, name in enumerate("abd")}))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files(by_arrays, tmp_path, suffix):
    X, y, expected = by_arrays
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    path = tmp_path / f"table.{suffix}"
    (table.write_csv if suffix == "csv" else table.write_parquet)(path)
    model = _ensemble().fit(path, "y")
    assert_allclose(model.predict(path), expected, atol=1e-6)
    assert model.score(path, "y") == pytest.approx(r2_score(y, expected), abs=1e-6)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("device", [None, "cpu"])
def test_tensors(by_arrays, device):
    torch = pytest.importorskip("torch")
    X, y, expected = by_arrays
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    model = _ensemble(device=device).fit(X, y)
    found = model.predict(X)
    assert torch.is_tensor(found)
    assert_allclose(found.numpy(), expected, atol=1e-5)
    for member in model.members_:
        assert not any(torch.is_tensor(value) for value in vars(member).values())


@pytest.mark.usefixtures("quick")
def test_dask_collections(by_arrays):
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    X, y, expected = by_arrays
    X, y = da.from_array(X, chunks=(25, 3)), da.from_array(y, chunks=25)
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None):
        found = _ensemble().fit(X, y).predict(X)
        assert isinstance(found, da.Array)
        assert_allclose(found.compute(), expected, atol=1e-6)


# ------------------------------------------------------------------------------------ odd data


@pytest.mark.usefixtures("quick")
def test_constant_columns_have_no_influence():
    """Test that an additional constant column has no importance, and changes the predictions by less than the noise.

    The predictions change a little, because the random starting maps have an additional column.
    """
    X, y, _ = _data(noise=0.1)
    wide = np.hstack([X, np.full((60, 1), 7.0)])
    model = _ensemble().fit(wide, y)
    difference = model.predict(wide) - _ensemble().fit(X, y).predict(X)
    assert np.sqrt(np.mean(difference**2)) < 0.1
    assert_array_equal(model.predict(np.hstack([X, np.full((60, 1), -1e3)])), model.predict(wide))
    assert model.feature_importances_[3] == 0.0


@pytest.mark.usefixtures("quick")
def test_a_constant_target_is_predicted_exactly():
    X, y, _ = _data()
    assert_array_equal(_ensemble().fit(X, np.full(60, 3.0)).predict(X), 3.0)
    model = _ensemble().fit(X, np.column_stack([y, np.full(60, 3.0)]))
    assert_array_equal(model.predict(X)[:, 1], 3.0)
    assert r2_score(y, model.predict(X)[:, 0]) > 0.9


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")
def test_two_rows():
    X, y, _ = _data()
    found = _ensemble().fit(X[:2], y[:2]).predict(X[:2])
    assert np.all((found >= y[:2].min()) & (found <= y[:2].max()))


def test_one_column():
    X = np.random.default_rng(0).normal(size=(300, 1))
    y = np.sin(2.0 * X[:, 0])
    assert _ensemble().fit(X[:50], y[:50]).score(X[50:], y[50:]) > 0.99


@pytest.mark.usefixtures("quick")
def test_copies_of_all_rows_change_little():
    """Test that a fit to data that contain each row twice gives about the same function."""
    X, y, _ = _data()
    once, twice = _ensemble().fit(X, y), _ensemble().fit(np.vstack([X, X]), np.tile(y, 2))
    assert r2_score(once.predict(X), twice.predict(X)) > 0.99


def test_outliers():
    """Test that outliers have little effect on the fit, are reported, and do not count in the truncation.

    In 5% of the rows, the targets are wrong by 20 standard deviations.
    """
    X, y, F = _data(620)
    rows = np.random.default_rng(0).choice(120, 6, replace=False)
    y[rows] += 20.0 * F.std() * np.tile([-1.0, 1.0], 3)
    model = _ensemble().fit(X[:120], y[:120])
    assert model.score(X[120:], F[120:]) > 0.9
    assert set(rows) <= set(model.diagnostics_.outliers)
    # Outliers do not count in the truncation of the predictions.
    clean = 2.0 * np.max(np.abs(np.delete(y[:120], rows)))
    assert model.truncation_ == pytest.approx(clean)
    assert all(member.truncation_ == model.truncation_ for member in model.members_)


# ------------------------------------------------------------------------------------ time limits, callbacks, Ctrl-C


@pytest.mark.parametrize("time_limit", [1e-6, pytest.param(2.0, marks=pytest.mark.thorough)])
def test_a_time_limit_still_gives_a_model(time_limit):
    X, y, F = _data(300)
    model = _ensemble(time_limit=time_limit).fit(X[:100], y[:100])
    assert model.score(X[100:], F[100:]) > 0.5


@pytest.mark.usefixtures("quick")
def test_callbacks_see_all_stages_and_do_not_change_the_model(by_arrays):
    X, y, expected = by_arrays
    states = []
    model = _ensemble(callbacks=[states.append]).fit(X, y)
    assert_array_equal(model.predict(X), expected)
    phases = [state.phase for state in states]
    assert [phase for phase in Phase if phase in phases] == list(dict.fromkeys(phases))
    assert {Phase.STARTS, Phase.KERNELS, Phase.WEIGHTS, Phase.FINAL_FIT} <= set(phases)
    assert r2_score(y, states[-1].predict(X)) > 0.9


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("phase", [Phase.STARTS, Phase.KERNELS, Phase.WEIGHTS])
def test_a_callback_stops_the_search(phase):
    X, y, _ = _data()
    seen = []

    def stop(state):
        seen.append(state.phase)
        return state.phase is phase

    model = _ensemble(callbacks=[stop]).fit(X, y)
    assert_array_equal(model.weights_, [1.0])
    assert model.diagnostics_.stopped == "callback"
    later = {Phase.KERNELS, Phase.FINALISTS, Phase.WEIGHTS} if phase is Phase.STARTS else set()
    assert not later & set(seen)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.usefixtures("quick")
def test_ctrl_c_without_a_checkpoint_leaves_the_estimator_unchanged(monkeypatch):
    X, y, _ = _data()
    model = _ensemble()
    monkeypatch.setattr(search_and_refit, "_weigh", breaking(search_and_refit._weigh, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not hasattr(model, "members_")
    assert not hasattr(model, "n_features_in_")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["_largest_first", "final_fit"])
def test_ctrl_c_with_a_checkpoint_keeps_the_best_model_and_the_fit_can_be_resumed(
    by_arrays, monkeypatch, tmp_path, where
):
    X, y, expected = by_arrays
    model = _ensemble(checkpoint=tmp_path / "fit.checkpoint")
    with monkeypatch.context() as patch:
        # `_largest_first` is called when the weights are known. For "final_fit", the second final fit is interrupted,
        # so that the first one is in the checkpoint.
        at = {"_largest_first": 1, "final_fit": 2}[where]
        patch.setattr(search_and_refit, where, breaking(getattr(search_and_refit, where), KeyboardInterrupt(), at))
        with pytest.raises(KeyboardInterrupt, match="the estimator holds the best model so far"):
            model.fit(X, y)
    assert len(model.members_) == 1
    assert_array_equal(model.weights_, [1.0])
    assert model.members_[0].result_.reason == "interrupted"
    assert model.score(X, y) > 0.5
    assert not hasattr(model, "diagnostics_")
    resumed = clone(model).fit(X, y)
    assert len(resumed.members_) > 1
    assert_array_equal(resumed.predict(X), expected)


@pytest.mark.usefixtures("quick")
def test_ctrl_c_keeps_the_best_candidate_that_can_be_fitted(by_arrays, monkeypatch, tmp_path):
    """Test that if the quick fit of the best candidate fails, the candidate that was the best before it is kept."""
    X, y, _ = by_arrays
    failed, original = [], search_and_refit.quick_fit

    def quick_fit(rows, candidate, with_uncertainty):
        if not failed:
            failed.append(candidate)
            raise FloatingPointError("not positive definite")
        return original(rows, candidate, with_uncertainty)

    monkeypatch.setattr(search_and_refit, "quick_fit", quick_fit)
    monkeypatch.setattr(search_and_refit, "_weigh", breaking(None, KeyboardInterrupt()))
    model = _ensemble(checkpoint=tmp_path / "fit.checkpoint")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(failed) == 1
    assert model.score(X, y) > 0.5


@pytest.mark.usefixtures("quick")
def test_members_whose_final_fit_fails_are_left_out(by_arrays, monkeypatch):
    """Test that the weights are computed again without such members, and that the error is raised if none is left."""
    X, y, _ = by_arrays
    whole, original, calls = _ensemble().fit(X, y), search_and_refit.final_fit, []

    def fails(*numbers):
        def final_fit(*given):
            calls.append(given)
            if len(calls) in numbers or not numbers:
                raise FloatingPointError("not positive definite")
            return original(*given)

        calls.clear()
        monkeypatch.setattr(search_and_refit, "final_fit", final_fit)

    assert len(whole.members_) > 1
    fails(1)
    model = _ensemble().fit(X, y)
    assert len(model.members_) < len(whole.members_)
    assert str(whole.members_[0].kernel) not in [str(one.kernel) for one in model.members_]
    assert np.sum(model.weights_) == pytest.approx(1.0, abs=0.2)  # 0.2 is the standard deviation of its prior
    fails()
    with pytest.raises(FloatingPointError):
        _ensemble().fit(X, y)


@pytest.mark.usefixtures("quick")
def test_a_finished_checkpoint_is_replayed(by_arrays, monkeypatch, tmp_path):
    X, y, expected = by_arrays
    model = _ensemble(checkpoint=tmp_path / "fit.checkpoint").fit(X, y)
    assert_array_equal(model.predict(X), expected)
    monkeypatch.setattr("hkrr.solvers.lbfgs.LBFGS.minimize", breaking(None, AssertionError("a run is made again")))
    again = clone(model).fit(X, y)
    assert_array_equal(again.predict(X), expected)
    assert_array_equal(again.interval_scores_, model.interval_scores_)


@pytest.mark.usefixtures("quick")
def test_a_second_fit_forgets_the_first_one(by_arrays):
    """Test that an earlier fit with other columns and targets leaves no attributes behind in the estimator."""
    X, y, expected = by_arrays
    model = _ensemble()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:, :2], np.column_stack([y, y**3]))
    model.fit(X, y)
    fresh = _ensemble().fit(X, y)
    assert set(vars(model)) == set(vars(fresh))
    assert_array_equal(model.predict(X), expected)
    assert model.interval_scores_.shape == (60,)


# ------------------------------------------------------------------------------------ parameters and output


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_init", 0),
        ("refit", "half"),
        ("refit", 0),
        ("time_limit", -1.0),
        ("fit_intercept", "yes"),
        ("scale_features", 2),
        ("block_size", 0),
        ("n_jobs", 0),
        ("verbose", -1),
        ("random_state", "zero"),
        ("checkpoint", 3),
        ("checkpoint_every", -1.0),
        ("callbacks", print),
        ("callbacks", [3]),
        ("device", "abacus"),
    ],
)
def test_invalid_parameters(name, value):
    X, y, _ = _data()
    with pytest.raises(ValueError, match=name if name != "random_state" else "zero"):
        HyperKernelEnsemble(**{name: value}).fit(X, y)


@pytest.mark.usefixtures("quick")
def test_refit_limits_the_number_of_centers():
    X, y, _ = _data()
    assert {len(member.centers_) for member in _ensemble(refit=25).fit(X, y).members_} == {25}


@pytest.mark.usefixtures("quick")
def test_without_an_intercept():
    X, y, _ = _data()
    model = _ensemble(fit_intercept=False).fit(X, y)
    assert model.intercept_ == 0.0
    total = sum(w * member.predict(X) for w, member in zip(model.weights_, model.members_, strict=True))
    assert_allclose(model.predict(X), total, rtol=1e-12)


@pytest.mark.usefixtures("quick")
def test_verbose_prints_the_stages(capsys):
    X, y, _ = _data()
    _ensemble().fit(X, y)
    assert capsys.readouterr().out == ""
    _ensemble(verbose=1).fit(X, y)
    lines = [line.split(" s  ", 1)[1].strip() for line in capsys.readouterr().out.splitlines()]
    stages = [
        "kernels and maps on 40 rows",
        "kernels and maps on 60 rows",
        "weights of the ensemble",
        "final fit on all rows",
        "the fit is complete",
    ]
    assert [line for line in lines if line in stages] == stages
    assert any(line.startswith("best so far: ") for line in lines)


def test_all_members_have_the_same_rows_if_time_is_short(monkeypatch):
    """Test that all members have 60 rows if there is time for 80 rows with one kernel and 60 rows with another kernel.

    The leave-one-out errors of the members are added row by row, so the members must be fitted to the same rows.
    """
    make_quick(monkeypatch)
    sizes = itertools.cycle([(80, 80), (60, 60)])
    monkeypatch.setattr(TimeBudget, "affordable_size", lambda *given: next(sizes))
    equal = replace(LEAST_SQUARES, weights=lambda predictions, *_: np.full(len(predictions), 0.2))
    monkeypatch.setattr(HyperKernelEnsemble, "_stacking", equal)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    model = HyperKernelEnsemble(n_init=1, random_state=0).fit(X, np.abs(X[:, 0]) + 0.3 * rng.normal(size=80))
    assert len(model.members_) > 1
    assert {len(member.centers_) for member in model.members_} == {60}
    assert len(model.interval_scores_) == 60
