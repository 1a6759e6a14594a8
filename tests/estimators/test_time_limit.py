"""Tests of time_limit, with a fake clock that advances by one second for each evaluation of a criterion."""

from collections import Counter
from threading import Lock, get_ident
from types import SimpleNamespace

import numpy as np
import pytest

from hkrr import HyperKernelRidgeCV
from hkrr.criteria import Criterion, Evidence
from hkrr.estimators import ridge_cv
from hkrr.estimators.search import candidates, directions, search_problem, search_stages, time_budget
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from hkrr.solvers import LBFGS, driver

# Modules that read the clock.
READERS = [candidates, search_problem, time_budget, ridge_cv, search_stages, driver]


class Ticks:
    """The fake clock.

    The list ``begun`` has an entry for each evaluation of a criterion: the time, the number of the run (None outside of
    runs), and the index of the evaluation within the run.
    """

    def __init__(self, monkeypatch):
        self.now, self.begun = 0.0, []
        self._lock, self._run, self._of_run, self._n_runs = Lock(), {}, Counter(), 0
        for module in READERS:
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        minimize = LBFGS.minimize

        def counted(evaluate):
            def call(criterion, *given):
                with self._lock:
                    run = self._run.get(get_ident())
                    self.begun.append((self.now, run, self._of_run[run]))
                    self._of_run[run] += 1
                    self.now += 1.0
                return evaluate(criterion, *given)

            return call

        def watched(solver, *given):
            with self._lock:
                self._n_runs += 1
                self._run[get_ident()] = self._n_runs
            try:
                minimize(solver, *given)
            finally:
                del self._run[get_ident()]

        for evaluate in (Criterion.reduced, Criterion.profiled):
            monkeypatch.setattr(Criterion, evaluate.__name__, counted(evaluate))
        monkeypatch.setattr(LBFGS, "minimize", watched)


def _late(monkeypatch, limit, n_threads, n_unlimited=0, **options):
    """Fit with a time limit. Return the numbers of evaluations after the deadline: inside and outside of solver runs.

    The deadline is the limit minus a reserve (`time_budget.reserve`). After the deadline, a run may evaluate its
    starting map, but nothing else: it checks the clock before every further evaluation. The first `n_unlimited` runs
    have no limit and do not count.
    """
    monkeypatch.setattr("hkrr._base.threads.blas_threads", lambda: n_threads)
    ticks, rng = Ticks(monkeypatch), np.random.default_rng(0)
    X = rng.normal(size=(130, 4))  # more rows than the 100 centers of the first runs
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=130)
    model = HyperKernelRidgeCV(n_init=3, random_state=0, time_limit=limit, **options).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))
    deadline = limit - time_budget.reserve(limit)
    assert len(ticks.begun) >= deadline  # the deadline was reached
    late = [(run, k) for now, run, k in ticks.begun if now > deadline]
    elsewhere = [k for run, k in late if run is None]
    inside = [k for run, k in late if run is not None and run > n_unlimited]
    # With several threads, each thread but one may have checked the clock just before the deadline. It then makes one
    # evaluation after the deadline.
    assert np.count_nonzero(inside) <= n_threads - 1
    return len(inside), len(elsewhere)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # there is no time for more directions
@pytest.mark.parametrize(
    ("limit", "n_threads"),
    [
        (0.5, 1),
        (99.5, 1),
        (250.5, 2),
        *(
            pytest.param(limit, n_threads, marks=pytest.mark.thorough)
            for limit in (0.5, 20.5, 99.5, 250.5, 400.5, 500.5)
            for n_threads in (1, 2)
            if (limit, n_threads) not in ((0.5, 1), (99.5, 1), (250.5, 2))
        ),
    ],
)
def test_with_a_given_kernel_no_run_continues_after_the_limit(monkeypatch, limit, n_threads):
    """Test the number of evaluations after the time limit with a given kernel.

    The first two runs fit plain kernel ridge regression without a limit, so that there is always a simple model. After
    the limit, solver runs evaluate only the first starting map and the first survivor (a map that is kept after the
    short runs), once each. Each further thread evaluates at most one more start. Outside of solver runs, a wide map of
    four directions may be truncated to 1, ..., 4 directions. One evaluation finds what the map leaves unexplained, and
    one compares the best map with plain kernel ridge regression.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, n_threads, n_unlimited=2)
    assert in_runs <= 2 + n_threads - 1
    assert elsewhere <= 4 + 2


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of the given numbers, the largest may be selected
@pytest.mark.parametrize("n_components", [2, [1, 2]], ids=str)
@pytest.mark.parametrize(
    "limit", [0.5, 99.5, *(pytest.param(limit, marks=pytest.mark.thorough) for limit in (20.5, 150.5, 200.5, 250.5))]
)
def test_with_given_directions_no_run_continues_after_the_limit(monkeypatch, limit, n_components):
    """Test that there is a model after any time limit, although the first maps have four directions.

    The first start, the first survivor and the first truncated map are evaluated once each. Each of the two wide maps
    is truncated to each value in `n_components`.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, 1, n_components=n_components)
    assert in_runs <= 3
    assert elsewhere <= 2 * np.size(n_components)


def test_the_best_map_is_kept_if_there_is_no_time_to_improve_all_maps_with_more_centers():
    """Test that, after the limit, the map with the lowest score is the one that is evaluated with more centers."""
    rng = np.random.default_rng(0)
    rows, kernel = InMemoryRows(rng.normal(size=(110, 3)), rng.normal(size=110)), Gaussian(gamma=1.0)
    given = search_problem.SearchProblem(rows, Evidence, [1, 2, 3], True, 1, np.random.RandomState(0), deadline=0.0)
    search = directions.DirectionSearch(given, kernel)
    assert search._resize(0)  # 100 centers
    search.best = {
        d: candidates.Candidate(candidates.Origin.CUT, kernel, np.eye(d, 3), 0.1, 0.0, score)
        for d, score in ((3, 5.0), (1, -5.0), (2, 0.0))
    }
    assert search._resize(1)  # all 110 rows
    assert list(search.best) == [1]


@pytest.mark.parametrize(
    "limit",
    [0.5, 250.5, *(pytest.param(limit, marks=pytest.mark.thorough) for limit in (20.5, 99.5, 400.5, 600.5, 900.5))],
)
def test_with_kernel_auto_no_run_continues_or_starts_after_the_limit(monkeypatch, limit):
    """Test the number of evaluations after the time limit with kernel="auto".

    The first two runs fit plain kernel ridge regression without a limit. After the limit, only the first starting map
    and the first survivor are evaluated, and the best candidate is compared with plain kernel ridge regression. With
    the shortest limit, the survivor may be truncated to 1, ..., 4 directions.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, 1, n_unlimited=2, kernel="auto")
    assert in_runs <= 2
    assert elsewhere <= (1 if limit > 20.0 else 5)


@pytest.mark.parametrize(
    "limit", [99.5, *(pytest.param(limit, marks=pytest.mark.thorough) for limit in (20.5, 250.5, 400.5, 900.5))]
)
def test_with_kernel_auto_and_threads_each_start_is_evaluated_at_most_once(monkeypatch, limit):
    """Test that two threads evaluate each start at most once after the limit.

    At most 14 starts are run together: two diagonal maps for each of seven kernels.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, 2, n_unlimited=2, kernel="auto")
    assert in_runs <= 14 + 1
    assert elsewhere <= 2
