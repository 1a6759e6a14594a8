"""The stages of the tuning: which candidates are polished, and the map against plain kernel ridge regression."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.kernel_ridge import KernelRidge

import criteria_oracles
from hkrr import FitError, HyperKernelRidgeCV, tuning
from hkrr.candidates import Candidate, plain
from hkrr.criteria import Evidence
from hkrr.kernels import KERNELS, Gaussian
from hkrr.rows import InMemoryRows
from hkrr.tuning import Task
from problems import SEEDS, kernel_cases

KERNEL = Gaussian(gamma=1.0)
VALUE = kernel_cases(1.0)[0].value


def _single(m, D, seed, noise=1.0, m_test=0):
    """A wave along one direction; the noise has as much variance as it. The rows to test on have none."""
    rng = np.random.default_rng(seed)
    X, b = rng.normal(size=(m + m_test, D)), rng.normal(size=D)
    v = X @ b / np.linalg.norm(b)
    z = np.sin(2.0 * v) + 0.5 * v
    return X, np.append(z[:m] + math.sqrt(noise) * z.std() * rng.normal(size=m), z[m:]), b


def _task(X, y, w=None, **options):
    options = {"choose_dimension": True, "n_starts": 1, "rng": np.random.RandomState(0)} | options
    return Task(InMemoryRows(X, y - y.mean(), w), Evidence, range(1, X.shape[1] + 1), **options)


# ------------------------------------------------------------------------------------- what is polished


def _found(losses, n, D=10):
    """Candidates of 1, 2, ... directions whose criterion over n rows was this; the lowest score first."""
    dof = [d * D - d * (d - 1) / 2 for d in range(1, len(losses) + 1)]
    scores = [n * loss + price / 2.0 * math.log(n) for loss, price in zip(losses, dof, strict=True)]
    found = [
        Candidate("s", KERNEL, np.eye(d, D), 0.1, loss, score)
        for d, (loss, score) in enumerate(zip(losses, scores, strict=True), 1)
    ]
    return sorted(found, key=lambda candidate: candidate.score)


@pytest.mark.parametrize(
    ("n_rows", "losses", "expected"),
    [
        (500, [0.0, -0.01], [1]),  # all of them were searched: what is worth its price is known
        (20_000, [0.0, -0.03], [2]),  # worth it already
        (20_000, [0.0, -0.01], [1, 2]),  # 200 nats for 44.6 of price and 40.5 of chance
        (20_000, [0.0, -0.003], [1]),  # 60 nats: worth the price, but for chance
        (20_000, [0.0, -0.001], [1]),
        (20_000, [0.0, -0.001, -0.02], [1, 3]),  # 400 nats for 84.2 and 76.5
    ],
)
def test_the_best_of_the_search_is_polished_and_the_best_at_all_rows(n_rows, losses, expected):
    """2,000 rows were searched; a second direction of ten columns has 9 parameters more, a third 8."""
    task = _task(np.zeros((n_rows, 10)), np.zeros(n_rows))
    chosen = tuning.worth_polishing(task, _found(losses, min(n_rows, 2000)))
    assert [candidate.n_components for candidate in chosen] == expected


def test_of_equal_candidates_the_first_is_polished_alone():
    task, (one, *_) = _task(np.zeros((5000, 10)), np.zeros(5000)), _found([0.0], 2000)
    assert tuning.worth_polishing(task, [one, replace(one, start="again")]) == [one]


def test_frequencies_that_were_all_searched_are_extrapolated_to_nothing():
    """Fifty distinct rows that stand for 5,000: the scores are those of 5,000 already, and the lowest is the best."""
    task = _task(np.zeros((50, 10)), np.zeros(50), np.full(50, 100.0))
    chosen = tuning.worth_polishing(task, _found([0.0, -0.0075], 5000))  # 37.5 nats for 38.3 of price
    assert [candidate.n_components for candidate in chosen] == [1]


def _polish_to(monkeypatch, scores, deadline=math.inf):
    """Polish as many candidates, which get these scores by it, None where it fails; return what is chosen, of whom."""
    begun = []

    def fake(criterion, start, *rest, **options):
        begun.append(start)
        if scores[len(begun) - 1] is None:
            raise FitError("on more rows")
        return replace(start, score=scores[len(begun) - 1]), f"run {len(begun)}"

    monkeypatch.setattr(tuning, "descend", fake)
    X, y, _ = _single(30, 3, 0)
    candidates = [Candidate("s", KERNEL, np.eye(d + 1, 3), 0.3, 0.5, seconds=5.0) for d in range(len(scores))]
    end, run = tuning.polish(_task(X, y, deadline=deadline), candidates)
    assert {(start.start, start.seconds) for start in begun} <= {("polished", 0.0)}
    return candidates, end, run, len(begun)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([3.0], 1), ([3.0, 2.0], 2), ([2.0, 3.0], 1), ([2.0, 2.0], 1), ([None, 3.0], 2), ([3.0, None], 1)],
)
def test_the_lowest_score_after_polishing_is_chosen_with_its_run(monkeypatch, scores, chosen):
    """Of equal ones the first. One that cannot be evaluated on more rows leaves it to the other."""
    _, end, run, n_begun = _polish_to(monkeypatch, scores)
    assert (end.n_components, run, n_begun) == (chosen, f"run {chosen}", len(scores))


@pytest.mark.parametrize(("deadline", "reason"), [(0.0, "time_limit"), (math.inf, "stalled")])
def test_a_candidate_that_is_not_polished_stays_as_it_is(monkeypatch, deadline, reason):
    """Without time none is begun; without one that can be evaluated the first is kept."""
    candidates, end, run, n_begun = _polish_to(monkeypatch, [None, None], deadline)
    assert end is candidates[0]
    assert n_begun == (0 if reason == "time_limit" else 2)
    assert (run.reason, run.n_iter, run.objective, run.reg_lambda) == (reason, 0, 0.5, 0.01)
    assert_array_equal(run.B, candidates[0].B)
    assert set(map(len, run.history.values())) == {0}


# ------------------------------------------------------------------------------------------ against plain


def _compare(monkeypatch, m=150, seed=0, exact_rows=60):
    """A map along the planted direction, with too much noise and too short a scale, against plain regression."""
    monkeypatch.setattr(tuning, "_EXACT_ROWS", exact_rows)
    given = []
    monkeypatch.setattr(tuning, "plain", lambda *all_, **more: given.append(all_[0]) or plain(*all_, **more))
    X, y, b = _single(m, 3, seed, noise=0.05)
    task = _task(X, y)
    polished = Candidate("polished", KERNEL, 3.0 * b[None, :] / np.linalg.norm(b), 2.0, -9.0, -99.0)
    return polished, given, tuning._against_plain(task, polished, "its run", ["before"])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_map_learns_its_scale_and_noise_on_the_rows_compared(monkeypatch, seed):
    """Both are exact there; the price of their parameters, and their nats, are those of all rows."""
    polished, (exact,), (winner, run, ends) = _compare(monkeypatch, seed=seed)
    before, compared, rival = ends
    (X, Y, _), nus = exact.rows.gather(), (polished.nu, compared.nu)
    assert (before, len(X), compared.start, rival.start) == ("before", 60, "compared", "plain")
    ratio = compared.B / polished.B
    assert np.ptp(ratio) < 1e-9 * ratio.max()
    assert 0.0 < ratio[0, 0] < 1.0
    oracle = [
        criteria_oracles.evidence(VALUE, X, Y, np.ones(60), None, nu / 60, B)
        for nu, B in zip(nus, (polished.B, compared.B), strict=True)
    ]
    assert compared.value == pytest.approx(oracle[1], rel=1e-9)
    assert oracle[1] < oracle[0] - 0.05
    assert compared.score == pytest.approx(150 * compared.value + 3 / 2.0 * math.log(150), rel=1e-12)
    assert rival.score == pytest.approx(150 * rival.value + 1 / 2.0 * math.log(150), rel=1e-12)
    # What wins is the map as it was polished, on more rows than these, with the score it was compared by.
    assert (compared.shape.name, winner.shape.name, run) == ("full", "full", "its run")
    assert_array_equal(winner.B, polished.B)
    assert (winner.nu, winner.score) == (polished.nu, compared.score)


def test_a_comparison_that_fails_keeps_the_map(monkeypatch):
    def failing(*given, **options):
        raise FitError("in the comparison")

    monkeypatch.setattr(tuning, "descend", failing)
    polished, _, (winner, run, ends) = _compare(monkeypatch)
    assert (winner, run, ends) == (polished, "its run", ["before"])


@pytest.mark.parametrize("seed", SEEDS)
def test_strong_noise_does_not_hide_a_direction_that_many_rows_show(monkeypatch, seed):
    """Signal and noise of equal variance, 1,500 rows of 30 columns, stages made small: 150 rows are compared.

    By these alone, each parameter at log(150)/2 nats, plain kernel ridge regression would be taken.
    """
    sizes = {"SEARCH_ROWS": 400, "_EXACT_ROWS": 150, "_POLISH_CENTERS": 60}
    for name, size in sizes.items():
        monkeypatch.setattr(tuning, name, size)
    X, y, b = _single(1500, 30, seed, m_test=1000)
    found = HyperKernelRidgeCV(random_state=seed).fit(X[:1500], y[:1500])
    path = pd.DataFrame(found.path_).set_index("start")
    on_150 = {name: 150 * path.loc[name, "criterion"] for name in ("compared", "plain")}
    assert on_150["compared"] + 30 / 2.0 * math.log(150) > on_150["plain"] + 1 / 2.0 * math.log(150)
    assert (found.n_components_, found.map_shape_) == (1, "full")
    peers = [KernelRidge(kernel="rbf", alpha=alpha, gamma=0.01).fit(X[:1500], y[:1500]) for alpha in (0.1, 1.0, 10.0)]
    assert found.score(X[1500:], y[1500:]) > max(peer.score(X[1500:], y[1500:]) for peer in peers) + 0.2
    assert abs(found.components_[0] @ b) > 0.9 * np.linalg.norm(found.components_) * np.linalg.norm(b)


# --------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("kernel", ["gaussian", "auto"])
def test_no_message_asks_for_a_parameter_that_there_is_not(monkeypatch, kernel):
    """Where steps have run out, on rows or with centers that the search had not, there is no max_iter to raise."""
    sizes = {"SEARCH_CENTERS": 4, "_POLISH_ITERATIONS": 1, "_RESCALE_ITERATIONS": 1, "_RESCALE_ROWS": 40}
    for name, size in sizes.items():
        monkeypatch.setattr(tuning, name, size)
    X, y, _ = _single(60, 2, 0, noise=0.1)
    found = HyperKernelRidgeCV(1, kernel=kernel, n_init=1, random_state=0).fit(X, y)
    assert found.result_.reason == "max_iter"
    assert not hasattr(found, "max_iter")
    assert "max_iter" not in found.result_.message
    assert "search" in found.result_.message


@pytest.mark.parametrize("kernel", ["gaussian", "product_matern32"])
def test_the_scales_are_learned_anew_and_the_directions_held(kernel):
    """From scales and a noise that are far off, the evidence falls to where neither doubling nor halving any helps."""
    X, y, *_ = _single(120, 4, seed=0, noise=0.3)
    task = _task(X, y)
    B = np.random.default_rng(1).normal(size=(2, 4))
    start = Candidate("polished", KERNELS[kernel].with_gamma(1.0), B, nu=10.0)
    end = tuning.rescaled(task, start)
    assert (end.start, end.shape.name) == ("rescaled", "full")
    assert np.linalg.matrix_rank(np.vstack([end.B, B])) == 2
    if kernel != "gaussian":  # it is not the same along other axes of that plane
        cosines = np.sum(end.B * B, axis=1) / np.linalg.norm(end.B, axis=1) / np.linalg.norm(B, axis=1)
        np.testing.assert_allclose(cosines, 1.0, rtol=1e-12)
    exact = Evidence(task.rows, None, start.kernel, 1.0, True)

    def evidence(B, nu):
        return exact.reduced(B, nu / task.rows.total_weight).value

    assert end.value == pytest.approx(evidence(end.B, end.nu))
    assert end.value < evidence(B, 10.0) - 0.01
    for factor in (0.5, 2.0):
        assert end.value <= evidence(end.B, factor * end.nu) + 1e-6
        for scales in (np.array([[factor], [1.0]]), np.array([[1.0], [factor]])):
            assert end.value <= evidence(scales * end.B, end.nu) + 1e-6
