"""Tests of searches that a time limit or a callback stops, and of the results of searches with outliers.

If the errors of the selected map have heavy tails, a second search with robust (heavy-tailed) noise is made.
"""

import math

import numpy as np
import pytest

import hkrr.estimators.search.search_stages as stages
from hkrr import HyperKernelRidgeCV
from hkrr.criteria import Evidence
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.progress import Phase, Progress
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows


def _data(n=1300, D=10, noise=0.1, seed=0):
    """Return X, y and the function without noise, which depends on two directions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    Z = X @ np.linalg.qr(rng.normal(size=(D, 2)))[0]
    f = np.sin(2.0 * Z[:, 0]) + Z[:, 0] * Z[:, 1]
    return X, f + noise * rng.normal(size=n), f


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")
def test_truncations_are_kept_if_the_deadline_passes_before_they_are_optimized(monkeypatch):
    """Test that a search with given values of `n_components` scores all truncations of a wide map.

    In this test, the deadline passes when the wide map is found, so that at most one truncation is optimized. The
    search must still not select the smallest number of directions.
    """
    X, y, f = _data()
    search = stages.DirectionSearch
    start_wide = search._start_wide

    def until_deadline(self):
        found = start_wide(self)
        object.__setattr__(self.problem, "deadline", 0.0)
        return found

    monkeypatch.setattr(search, "_start_wide", until_deadline)
    model = HyperKernelRidgeCV([1, 2, 3], random_state=0).fit(X[:300], y[:300])
    assert model.n_components_ in (2, 3)
    assert model.score(X[300:], f[300:]) > 0.9


def _plain_and_map(monkeypatch, rival_value, map_value, n_rows=4000):
    """Return the origin of the candidate that `_at_least_plain` keeps.

    The candidates are plain kernel ridge regression (the rival) and a 5 x 50 map. The arguments are their values of the
    criterion, in nats per row.
    """
    X, y, _ = _data(n_rows, D=50)
    problem = stages.SearchProblem(
        InMemoryRows(X, y), Evidence, range(1, 51), True, 1, np.random.RandomState(0), deadline=0.0
    )
    plain = Candidate(Origin.PLAIN, Gaussian(gamma=1.0), np.ones(50), 0.1, shape=stages.Scaled(np.ones(50)))
    winner = Candidate(Origin.POLISHED, Gaussian(gamma=1.0), np.ones((5, 50)), 0.1)

    def reduced(self, B):
        return Candidate(Origin.PLAIN, Gaussian(gamma=1.0), B, 0.1, value=map_value)

    monkeypatch.setattr(Evidence, "reduced", reduced)
    rival, few = stages.replace(plain, value=rival_value), problem.rows.subset(np.arange(300))
    return stages._at_least_plain(problem, (few, rival), winner, "result", [])[0].origin


def test_a_stopped_search_weighs_its_map_with_all_rows(monkeypatch):
    """Test that a map is kept because of its gain on all 4,000 rows, although the comparison uses only 300 rows.

    The map has five directions of 50 columns. The penalty for its parameters exceeds the gain on 300 rows, but not the
    gain on 4,000 rows.
    """
    assert _plain_and_map(monkeypatch, rival_value=0.5, map_value=-0.5) is Origin.POLISHED
    assert _plain_and_map(monkeypatch, rival_value=0.5, map_value=-0.5, n_rows=300) is Origin.PLAIN


def test_a_stopped_search_prefers_plain_kernel_ridge_to_a_small_lead(monkeypatch):
    """Test that plain kernel ridge regression is kept if the lead of the map is so small that a check is needed.

    There is no time for this check, which compares the map and plain kernel ridge regression on held-out rows.
    """
    assert _plain_and_map(monkeypatch, rival_value=0.5, map_value=0.1) is Origin.PLAIN


def test_a_second_search_replaces_the_best_candidate_only_when_it_refines_its_own():
    progress = Progress()
    first, second = (Candidate(Origin.RANDOM, Gaussian(gamma=1.0), np.eye(d), 0.1) for d in (1, 2))
    progress.hold()  # no candidate was found yet
    progress.found(first)
    progress.hold()
    progress.begin("starts", Phase.STARTS)
    progress.found(second)
    assert progress.best == [first]
    progress.begin("polishing", Phase.POLISHING)
    progress.found(second)
    assert progress.best == [first, second]


def test_stopping_a_second_search_keeps_the_result_of_the_first():
    X, y, _ = _data(300, D=6)
    y[[5, 50, 150]] += [4.0, -4.0, 5.0]
    states = []

    def stop_in_second(state):
        states.append(state)
        return state.phase is Phase.CUT and any(each.phase is Phase.POLISHING for each in states)

    model = HyperKernelRidgeCV(random_state=0, callbacks=[stop_in_second]).fit(X[:300], y)
    *_, last_of_first = (state for state in states if state.phase is Phase.AGAINST_PLAIN)
    assert [state.phase for state in states[-2:]] == [Phase.CUT, Phase.FINAL_FIT]
    assert model.result_.reason == "callback"
    assert (model.n_components_, model.best_score_) == (last_of_first.n_components, last_of_first.score)


@pytest.mark.parametrize("other", ["constant", pytest.param("binary", marks=pytest.mark.thorough)])
def test_outliers_of_one_target_are_found_beside_a_target_of_few_values(other):
    X, y, f = _data(900, D=6)
    spoiled = y[:300].copy()
    spoiled[7] += 50.0
    beside = np.ones(300) if other == "constant" else (X[:300, 0] > 0.8).astype(float)
    model = HyperKernelRidgeCV(random_state=0).fit(X[:300], np.column_stack([spoiled, beside]))
    assert 7 in model.diagnostics_.outliers
    predicted = model.predict(X[300:])[:, 0]
    assert 1.0 - np.mean((predicted - f[300:]) ** 2) / np.var(f[300:]) > 0.9


@pytest.mark.thorough
def test_outliers_change_neither_the_intervals_nor_the_truncation():
    X, y, _ = _data(2400)
    spoiled = y[:400].copy()
    spoiled[[7, 100, 250, 399]] += [30.0, -30.0, 25.0, 400.0]
    clean, robust = (HyperKernelRidgeCV(2, random_state=0).fit(X[:400], target) for target in (y[:400], spoiled))
    assert set(robust.diagnostics_.outliers) == {7, 100, 250, 399}
    assert robust.truncation_ <= 2.0 * np.max(np.abs(y[:400]))

    def coverage(model, level):
        lower, upper = model.predict_interval(X[400:], level)
        return np.mean((lower <= y[400:]) & (y[400:] <= upper))

    for level in (0.5, 0.8, 0.9):
        assert coverage(robust, level) == pytest.approx(coverage(clean, level), abs=0.05)
    errors, std = y[400:] - robust.predict(X[400:]), robust.predict(X[400:], return_std=True)[1]
    assert 0.8 < math.sqrt(np.mean((errors / std) ** 2)) < 1.25
