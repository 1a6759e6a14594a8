"""time_limit ends a fit: by a clock that goes on by one tick for each evaluation of a criterion, and not otherwise."""

from collections import Counter
from threading import Lock, get_ident
from types import SimpleNamespace

import numpy as np
import pytest

from hkrr import HyperKernelRidgeCV, candidates, kernel_search, last_fit, search, selection, tuning
from hkrr.criteria import Criterion
from hkrr.solvers import LBFGS, base

READERS = [candidates, kernel_search, last_fit, search, selection, tuning, base]  # of the clock


class Ticks:
    """The clock, and all evaluations: when each began, in which run, and the how many-th it was there."""

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
    """Fit within the limit; return how many evaluations were begun beyond it, within runs and elsewhere.

    Of a run that goes on no second one may be: a run has to evaluate its start, and then looks at the clock.
    """
    monkeypatch.setattr("hkrr._model.blas_threads", lambda: n_threads)
    ticks, rng = Ticks(monkeypatch), np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=100)
    model = HyperKernelRidgeCV(n_init=3, random_state=0, time_limit=limit, **options).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))
    assert len(ticks.begun) >= limit  # there was more to do than there was time for
    late = [(run, k) for now, run, k in ticks.begun if now > limit]
    inside = [k for run, k in late if run is not None]
    # Each of the other threads may have looked at the clock just before.
    assert np.count_nonzero(inside) <= n_threads - 1
    return len(inside), len(late) - len(inside)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # there is no time for more directions
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("limit", [0.5, 20.5, 99.5, 250.5, 400.5, 600.5])
def test_with_a_given_kernel_no_run_goes_on_beyond_the_limit(monkeypatch, limit, n_threads):
    """Each start that is still to come is evaluated once, four of them and the two that survive; and what is polished.

    Where a map is being grown, the one direction that it is at may be tried at its other two lengths.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, n_threads)
    assert in_runs <= 4 + 2 + 1
    assert elsewhere <= 2


@pytest.mark.parametrize("limit", [0.5, 20.5, 99.5, 250.5, 400.5, 600.5, 900.5])
def test_with_any_kernel_no_run_goes_on_or_begins_beyond_the_limit(monkeypatch, limit):
    """But for the last, at the map that was found by then; and, to rank them, the best of the candidates is evaluated.

    Where there is no time at all, each start for one direction is evaluated once before, and the two that survive.
    """
    in_runs, elsewhere = _late(monkeypatch, limit, 1, kernel="auto")
    assert in_runs <= (1 if limit > 20.0 else 2 + 2 + 1)
    assert elsewhere <= 1


@pytest.mark.parametrize("limit", [20.5, 99.5, 250.5, 400.5, 900.5])
def test_with_any_kernel_on_threads_each_start_is_evaluated_once_at_most(monkeypatch, limit):
    """Two diagonal maps for each of seven kernels are the most that begin together."""
    in_runs, elsewhere = _late(monkeypatch, limit, 2, kernel="auto")
    assert in_runs <= 14 + 1
    assert elsewhere <= 1
