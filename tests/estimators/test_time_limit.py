"""Tests of time_limit, with a fake clock that advances by one second for each evaluation of a criterion."""

from collections import Counter
from threading import Lock, get_ident
from types import SimpleNamespace

import numpy as np
import pytest

from hkrr import HyperKernelRidgeCV
from hkrr.criteria import Criterion
from hkrr.estimators import ridge_cv
from hkrr.estimators.search import candidates, final_fit
from hkrr.estimators.search import kernel_and_map_shape as kernel_search
from hkrr.estimators.search import number_of_directions as dimensions
from hkrr.estimators.search import search_stages as tuning
from hkrr.solvers import LBFGS, driver

# Modules that read the clock.
READERS = [candidates, kernel_search, final_fit, dimensions, ridge_cv, tuning, driver]


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
        reduced, minimize = Criterion.reduced, LBFGS.minimize

        def counted(criterion, *given):
            with self._lock:
                run = self._run.get(get_ident())
                self.begun.append((self.now, run, self._of_run[run]))
                self._of_run[run] += 1
                self.now += 1.0
            return reduced(criterion, *given)

        def watched(solver, *given):
            with self._lock:
                self._n_runs += 1
                self._run[get_ident()] = self._n_runs
            try:
                minimize(solver, *given)
            finally:
                del self._run[get_ident()]

        monkeypatch.setattr(Criterion, "reduced", counted)
        monkeypatch.setattr(LBFGS, "minimize", watched)


def _late(monkeypatch, limit, n_threads, **options):
    """Fit with a time limit. Return the numbers of evaluations after the limit: inside and outside of solver runs.

    After the limit, a run may evaluate its starting map, but nothing else: it checks the clock before every further
    evaluation.
    """
    monkeypatch.setattr("hkrr.estimators.fitted.base.blas_threads", lambda: n_threads)
    ticks, rng = Ticks(monkeypatch), np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=100)
    model = HyperKernelRidgeCV(n_init=3, random_state=0, time_limit=limit, **options).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))
    assert len(ticks.begun) >= limit  # the limit was reached
    late = [(run, k) for now, run, k in ticks.begun if now > limit]
    inside = [k for run, k in late if run is not None]
    # With several threads, each thread but one may have checked the clock just before the limit.
    assert np.count_nonzero(inside) <= n_threads - 1
    return len(inside), len(late) - len(inside)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # there is no time for more directions
@pytest.mark.parametrize(
    ("limit", "n_threads"),
    [
        (0.5, 1),
        (99.5, 1),
        (250.5, 2),
        *(
            pytest.param(limit, n_threads, marks=pytest.mark.thorough)
            for limit in (0.5, 20.5, 99.5, 250.5, 400.5, 600.5)
            for n_threads in (1, 2)
            if (limit, n_threads) not in ((0.5, 1), (99.5, 1), (250.5, 2))
        ),
    ],
)
def test_with_a_given_kernel_no_run_continues_after_the_limit(monkeypatch, limit, n_threads):
    """Test the number of evaluations after the time limit with a given kernel.

    At most four starts, two survivors and one polished map are evaluated, once each. If a map is being grown when the
    limit is reached, the current direction may be tried with two more lengths.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, n_threads)
    assert in_runs <= 4 + 2 + 1
    assert elsewhere <= 2


@pytest.mark.parametrize(
    "limit",
    [0.5, 250.5, *(pytest.param(limit, marks=pytest.mark.thorough) for limit in (20.5, 99.5, 400.5, 600.5, 900.5))],
)
def test_with_kernel_auto_no_run_continues_or_starts_after_the_limit(monkeypatch, limit):
    """Test the number of evaluations after the time limit with kernel="auto".

    Only the final run at the map found so far and one leave-one-out error of the best candidate are evaluated. With the
    shortest limit, the starts for one direction and the two survivors are evaluated once each before the final run.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, 1, kernel="auto")
    assert in_runs <= (1 if limit > 20.0 else 2 + 2 + 1)
    assert elsewhere <= 1


@pytest.mark.parametrize(
    "limit", [99.5, *(pytest.param(limit, marks=pytest.mark.thorough) for limit in (20.5, 250.5, 400.5, 900.5))]
)
def test_with_kernel_auto_and_threads_each_start_is_evaluated_at_most_once(monkeypatch, limit):
    """Test that two threads evaluate each start of a batch at most once after the limit.

    The largest batch has two diagonal maps for each of seven kernels.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, 2, kernel="auto")
    assert in_runs <= 14 + 1
    assert elsewhere <= 1
