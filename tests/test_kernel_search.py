"""kernel="auto": the kernel and the shape of the map that it chooses, the scores it says it chose by, and odd data."""

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import criteria_oracles
from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV, kernel_search
from hkrr.candidates import Candidate
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.datasets import make_mim_sines
from hkrr.kernel_search import PRODUCT, RADIAL, grouped, search_kernels
from hkrr.kernels import KERNELS, Radial, kernel_name
from hkrr.metrics import subspace_distance
from hkrr.rows import InMemoryRows
from problems import kernel_cases

COLUMNS = ["start", "kernel", "shape", "n_components", "reg_lambda", "gamma", "criterion", "score", "seconds"]
VALUES = {case.kernel: case.value for case in kernel_cases(1.0)}  # the scale of a candidate is its map's own
ORACLES = {Evidence: criteria_oracles.evidence, LeaveOneOut: criteria_oracles.leave_one_out}


def _zigzags(seed, m=150):
    """Four zigzags, one of each column, of different frequencies; and 500 rows to test on, without noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(m + 500, 4))
    z = np.abs(np.mod(X * [6.0, 3.0, 1.5, 0.5], 2.0) - 1.0) @ [1.0, 1.5, 2.0, 1.0]
    return X[:m], z[:m] + 0.1 * rng.normal(size=m), X[m:], z[m:]


def _small(m=80, D=3, T=1, seed=0):
    rng = np.random.default_rng([seed, m, D, T])
    X = rng.normal(size=(m, D))
    y = np.stack([np.sin(2.0 * X[:, 0] + t) for t in range(T)], axis=1) + 0.3 * rng.normal(size=(m, T))
    return X, y[:, 0] if T == 1 else y


def _auto(**options):
    return HyperKernelRidgeCV(**{"kernel": "auto", "random_state": 0} | options)


@pytest.fixture(scope="module")
def model():
    """One fit that several tests look at."""
    return _auto().fit(*_small())


@pytest.mark.parametrize("seed", [0, 1])
def test_a_scale_for_each_column_where_each_column_counts_by_itself(seed):
    X, y, X_test, z_test = _zigzags(seed)
    found = _auto(random_state=seed).fit(X, y)
    path = pd.DataFrame(found.path_)
    finalists = path[path["start"].str.contains("finalist")]
    best = finalists.loc[finalists["score"].idxmin()]
    assert best["shape"] == found.map_shape_
    assert best["shape"] in ("diagonal", "identity")
    assert best["kernel"] in PRODUCT
    assert best["kernel"] == kernel_name(found.kernel_)
    assert best["n_components"] == found.n_components_ == 4
    assert_array_equal(found.components_, np.diag(np.diag(found.components_)))
    assert best["score"] < path.loc[path["shape"] == "full", "score"].min()
    gaussian = HyperKernelRidgeCV(random_state=seed).fit(X, y)
    assert found.score(X_test, z_test) > gaussian.score(X_test, z_test) + 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_map_keeps_its_directions(seed):
    data = make_mim_sines(700, 15, 2, random_state=seed)
    found = _auto(random_state=seed).fit(data.X[:250], data.y[:250])
    assert (found.n_components_, found.map_shape_) == (2, "full")
    assert kernel_name(found.kernel_) in RADIAL
    assert subspace_distance(found.components_, data.B) < 0.2
    assert found.score(data.X[250:], data.y[250:]) > 0.95


@pytest.mark.parametrize("seed", [0, 1])
def test_idle_columns_do_not_hide_the_others(seed):
    """Their scales go to nothing, and so does the typical scale of all."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((800, 12))
    y = np.sin(3.0 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(800)
    found = _auto(random_state=seed).fit(X[:300], y[:300])
    assert found.map_shape_ == "diagonal"
    assert found.score(X[300:], y[300:]) > 0.9


def test_the_path_is_a_table(model):
    assert list(model.path_) == COLUMNS
    assert len({len(column) for column in model.path_.values()}) == 1
    path = pd.DataFrame(model.path_)
    assert set(path["kernel"]) == {*RADIAL, *PRODUCT}
    assert set(path["shape"]) == {"identity", "diagonal", "full"}
    assert set(path.loc[path["shape"] == "full", "kernel"]) <= set(RADIAL)
    assert np.all(np.isfinite(path[["reg_lambda", "gamma", "criterion", "score", "seconds"]]))
    assert path["seconds"].min() >= 0.0
    assert model.reg_lambda_ == pytest.approx(path["reg_lambda"].iloc[-1], rel=1e-9)
    assert model.best_score_ == path["score"].iloc[-1]


def test_the_scores_of_the_path_are_the_criterion_and_the_price_of_the_map(model):
    """80 rows, one target: 80 l + (dof/2) log 80, with one scale, three, or d D less the angles of a rotation."""
    dof = {"identity": lambda d: 1, "diagonal": lambda d: 3, "full": lambda d: 3 * d - d * (d - 1) / 2}
    path = pd.DataFrame(model.path_)
    price = [dof[row.shape](row.n_components) / 2.0 * math.log(80) for row in path.itertuples(index=False)]
    assert_allclose(path["score"], 80.0 * path["criterion"] + price, rtol=1e-10)


def test_a_fitted_model_pickles_and_a_clone_fits_to_the_same(model):
    X, y = _small()
    predicted = model.predict(X)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), predicted)
    again = clone(model)
    assert again.kernel == "auto"
    assert not hasattr(again, "kernel_")
    assert_array_equal(again.fit(X, y).predict(X), predicted)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_same_model_for_every_n_jobs(model, n_jobs):
    X, y = _small()
    assert_array_equal(_auto(n_jobs=n_jobs).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("seconds", [1e-9, 0.1, 0.4, 1.0])
def test_it_has_a_model_when_its_time_is_up(seconds):
    X, y, X_test, _ = _zigzags(2, m=300)
    found = _auto(time_limit=seconds).fit(X, y)
    assert found.predict(X_test).shape == (500,)
    assert np.all(np.isfinite(found.predict(X_test)))
    assert len({len(column) for column in found.path_.values()}) == 1


ODD = {
    "one feature": lambda r: (r.normal(size=(60, 1)), None),
    "constant column": lambda r: (np.c_[r.normal(size=(60, 2)), np.full(60, 0.3)], None),
    "nothing but constant columns": lambda r: (np.ones((40, 2)), r.normal(size=40)),
    "constant target": lambda r: (r.normal(size=(50, 3)), np.ones(50)),
    "duplicate rows": lambda r: (np.repeat(r.normal(size=(20, 3)), 4, axis=0), None),
    "duplicate columns": lambda r: (r.normal(size=(60, 1)) * np.ones(3), None),
    "fewer rows than features": lambda r: (r.normal(size=(20, 40)), None),
    "two rows": lambda r: (r.normal(size=(2, 3)), None),
    "units": lambda r: (r.normal(size=(80, 3)) * [1e-6, 1.0, 1e6], None),
    "two targets": lambda r: (r.normal(size=(80, 3)), r.normal(size=(80, 2))),
    "no noise": lambda r: (x := r.normal(size=(60, 2)), np.abs(x[:, 0])),
}


ODD_FOR_LOO = [
    "one feature",
    "constant target",
    "duplicate rows",
    "fewer rows than features",
    "two targets",
    "no noise",
]


@pytest.mark.parametrize(
    ("criterion", "case"), [*(("evidence", case) for case in ODD), *(("loo", case) for case in ODD_FOR_LOO)]
)
def test_odd_data_is_fitted_and_predicted_finitely(criterion, case):
    rng = np.random.default_rng(0)
    X, y = ODD[case](rng)
    if y is None:
        y = np.sin(X[:, 0] / X[:, 0].std()) + 0.1 * rng.normal(size=len(X))
    predicted = _auto(criterion=criterion).fit(X, y).predict(X)
    assert predicted.shape == y.shape
    assert np.all(np.isfinite(predicted))


def test_several_targets_are_each_predicted():
    X, y = _small(m=400, T=2)
    found = _auto().fit(X[:120], y[:120])
    for t in range(2):
        z = np.sin(2.0 * X[120:, 0] + t)
        assert np.mean((found.predict(X[120:])[:, t] - z) ** 2) < 0.1 * np.var(z)


def test_rows_of_no_weight_have_no_say():
    X, y = _small()
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=len(X))
    absurd = _auto().fit(np.vstack([X, X[:10] + 5.0]), np.append(y, np.full(10, 1e3)), np.append(w, np.zeros(10)))
    assert_allclose(absurd.predict(X), _auto().fit(X, y, w).predict(X), rtol=0, atol=1e-6)


def test_heavy_rows_are_followed():
    """Two lines cross in the data; where the one has a hundred times the weight, it is predicted."""
    X = np.tile(np.linspace(-1.0, 1.0, 40), 2)[:, None]
    sign = np.repeat([1.0, -1.0], 40)
    for heavy in (1.0, -1.0):
        found = _auto().fit(X, sign * X[:, 0], np.where(sign == heavy, 100.0, 1.0))
        assert_allclose(found.predict(X), heavy * X[:, 0], atol=0.1)


@pytest.mark.parametrize("n_components", [2, [1, 2]], ids=str)
def test_a_number_of_directions_that_was_asked_for_is_kept(n_components):
    """On data where, left alone, it takes all four columns."""
    X, y, *_ = _zigzags(0)
    found = _auto(n_components=n_components).fit(X, y)
    assert found.n_components_ in np.atleast_1d(n_components)
    assert found.components_.shape == (found.n_components_, 4)
    assert found.map_shape_ == "full"
    assert kernel_name(found.kernel_) in RADIAL


def test_refit_is_the_number_of_centers():
    X, y = _small()
    assert _auto(refit=30).fit(X, y).centers_.shape == (30, 3)


def test_verbose_says_something(capfd):
    _auto(verbose=1).fit(*_small(m=40, D=1))
    assert "".join(capfd.readouterr())


@pytest.mark.parametrize("cv", [3, "holdout"])
def test_auto_is_not_for_cv(cv):
    with pytest.raises(ValueError, match=r"kernel.*cv|cv.*kernel"):
        _auto(cv=cv).fit(*_small())


def test_unknown_kernels_are_named():
    X, y = _small()
    with pytest.raises(ValueError, match=r"kernel.*nonsense"):
        _auto(kernel="nonsense").fit(X, y)
    with pytest.raises(ValueError, match="kernel"):
        HyperKernelRidge(kernel="auto").fit(X, y)


# ------------------------------------------------------------------------------------------------- search_kernels


def _search(make=Evidence, m=40, T=1, weighted=False, starts=1, only=False, **options):
    """The search over standardised rows, from given maps of two directions."""
    X, y = _small(m=m, T=T)
    w = np.random.default_rng(3).uniform(0.5, 1.5, size=m) if weighted else None
    X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    rng = np.random.default_rng(4)
    given = [
        Candidate("given", KERNELS["gaussian"].with_gamma(1.0), rng.normal(size=(2, 3)), 0.1) for _ in range(starts)
    ]
    options = {"few_directions_only": only, "rng": np.random.RandomState(0)} | options
    best, tried = search_kernels(make, InMemoryRows(X, y, w), given, **options)
    return X, y.reshape(m, -1), np.ones(m) if w is None else w, best, tried


@pytest.mark.parametrize(("T", "weighted"), [(1, False), (2, True)])
@pytest.mark.parametrize("make", ORACLES, ids=["evidence", "loo"])
def test_candidates_are_worth_what_the_oracle_says(make, T, weighted):
    """40 rows are one group at every stage. Where nu is tiny the oracle's inverse has not the digits."""
    X, Y, w, _, tried = _search(make, T=T, weighted=weighted)
    W, noisy = sum(w), [candidate for candidate in tried if candidate.nu > 1e-4]
    assert len(noisy) > len(tried) / 2
    for candidate in noisy:
        d, D = candidate.B.shape
        dof = {"identity": 1, "diagonal": D, "full": d * D - d * (d - 1) / 2}[candidate.shape.name]
        value = ORACLES[make](VALUES[candidate.kernel], X, Y, w, None, candidate.nu / W, candidate.B)
        nats = value if make is Evidence else math.log(value) / 2.0
        assert candidate.value == pytest.approx(value, rel=1e-8, abs=1e-8)
        assert candidate.score == pytest.approx(T * W * nats + dof / 2.0 * math.log(W), rel=1e-8, abs=1e-6)


def test_maps_have_the_shape_they_are_said_to_have():
    *_, tried = _search()
    for candidate in tried:
        B, name = candidate.B, candidate.shape.name
        if name == "full":
            assert candidate.kernel.rotation_invariant
            assert candidate.n_components == len(B) <= 3
        else:
            assert_array_equal(B, np.diag(np.diag(B)))
            assert np.all(np.diag(B) > 0.0)
        if name == "identity":
            assert_allclose(np.diag(B), B[0, 0], rtol=1e-14)
    assert {candidate.shape.name for candidate in tried} == {"identity", "diagonal", "full"}


def test_the_lowest_score_of_the_finalists_wins_and_they_come_last():
    *_, best, tried = _search()
    final = ["finalist" in candidate.start for candidate in tried]
    finalists = [candidate for candidate, is_final in zip(tried, final, strict=True) if is_final]
    assert final == sorted(final)
    assert finalists
    assert best.score == min(candidate.score for candidate in finalists)
    # The rows are the same throughout, and steps only go down: nothing tried is better.
    assert best.score <= min(candidate.score for candidate in tried) + 1e-6 * abs(best.score)


def test_a_given_number_of_directions_is_all_that_is_tried():
    *_, best, tried = _search(only=True, starts=2)
    assert {(candidate.shape.name, candidate.n_components) for candidate in [best, *tried]} == {("full", 2)}
    assert {kernel_name(candidate.kernel) for candidate in tried} == set(RADIAL)


@dataclass(frozen=True, kw_only=True)
class NotANumber(Radial):
    """A kernel that is never a number."""

    def value_and_decay(self, u):
        return np.full_like(u, np.nan), np.full_like(u, np.nan)


@dataclass(frozen=True, kw_only=True)
class Failing(Radial):
    """A kernel that cannot be evaluated."""

    def value_and_decay(self, u):
        raise FitError("in this kernel")


broken_kernels = pytest.mark.parametrize("broken", [NotANumber(), Failing()], ids=["nan", "error"])


@broken_kernels
@pytest.mark.parametrize("name", ["matern32", "anova", "gaussian"])
def test_a_kernel_that_fails_is_dropped(monkeypatch, broken, name):
    """The Gaussian too, which the given maps come with."""
    monkeypatch.setitem(KERNELS, name, broken)
    *_, best, tried = _search()
    worked = [candidate for candidate in tried if math.isfinite(candidate.score)]
    assert any(candidate is best for candidate in worked)
    assert {kernel_name(candidate.kernel) for candidate in worked} == {*RADIAL, *PRODUCT} - {name}


@broken_kernels
@pytest.mark.parametrize("name", ["matern32", "gaussian"])
def test_a_fit_does_without_a_kernel_that_fails(monkeypatch, broken, name):
    monkeypatch.setitem(KERNELS, name, broken)
    X, y = _small()
    assert _auto().fit(X, y).score(X, y) > 0.5


@broken_kernels
def test_no_kernel_no_fit(monkeypatch, broken):
    for name in KERNELS:
        monkeypatch.setitem(KERNELS, name, broken)
    with pytest.raises(FitError):
        _auto().fit(*_small())


@broken_kernels
def test_no_candidate_without_a_score_is_the_best(monkeypatch, broken):
    for name in KERNELS:
        monkeypatch.setitem(KERNELS, name, broken)
    with pytest.raises(FitError):
        _search()


@pytest.mark.parametrize("only", [False, True])
def test_without_time_the_first_of_the_given_maps_is_returned(only):
    X, y = _small(m=40)
    given = [Candidate("given", KERNELS["gaussian"].with_gamma(1.0), np.eye(d, 3), 0.1, 0.5, 20.0) for d in (2, 1)]
    options = {"few_directions_only": only, "rng": np.random.RandomState(0), "deadline": 0.0}
    best, tried = search_kernels(Evidence, InMemoryRows(X, y), given, **options)
    assert best is given[0]
    assert tried == []


def test_threads_change_not_a_bit():
    (*_, one), (*_, two) = (_search(n_threads=n) for n in (1, 2))
    assert [(c.start, c.value, c.score, c.nu) for c in one] == [(c.start, c.value, c.score, c.nu) for c in two]


@pytest.mark.parametrize(("few", "last"), [(10, 30), (40, 40)])
def test_rows_are_searched_by_groups_and_finalists_by_larger_ones_or_all(monkeypatch, few, last):
    """Groups made small: two of 12 of the 40 rows, then two of 15 or, where 40 rows are few, all."""
    sizes = {"_GROUP_ROWS": 12, "_GROUPS": 2, "_LARGE_GROUP_ROWS": 15, "_LARGE_GROUPS": 2, "_ONE_GROUP_ROWS": few}
    for name, size in sizes.items():
        monkeypatch.setattr(kernel_search, name, size)
    made = []
    monkeypatch.setattr(kernel_search, "grouped", lambda *given: made.append(grouped(*given)) or made[-1])
    X, Y, w, best, tried = _search()
    assert [(groups.rows.n_rows, groups.n_groups) for groups in made] == [(24, 2), (last, 2 if last == 30 else 1)]
    for candidate in tried:  # priced at all rows
        price = candidate.degrees_of_freedom / 2.0 * math.log(40)
        assert candidate.score == pytest.approx(40 * candidate.value + price, rel=1e-10)
    if last == 40:
        value = criteria_oracles.evidence(VALUES[best.kernel], X, Y, w, None, best.nu / 40, best.B)
        assert best.value == pytest.approx(value, rel=1e-8)
