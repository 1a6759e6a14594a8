"""Tests of the stages of a search: polishing, the comparison with plain kernel ridge regression, rescaling.

Polishing refines the best candidates of the search for directions on all rows of the search.
"""

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from hkrr import FitError, HyperKernelRidgeCV
from hkrr.criteria import Evidence
from hkrr.datasets import make_planted
from hkrr.estimators.search import directions, search_stages
from hkrr.estimators.search.candidates import Candidate, Origin, plain_kernel_ridge
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.kernels import KERNELS, Gaussian
from hkrr.rows import InMemoryRows
from support import oracles
from support import oracles_criteria as criteria_oracles
from support.random_problems import SEEDS, kernel_cases

KERNEL = Gaussian(gamma=1.0)
VALUE = kernel_cases(1.0)[0].value


def _single(m, D, seed, noise=1.0, m_test=0):
    """Return X, y and a direction b. y is a function of X b with noise in the first m of m + `m_test` rows.

    `noise` is the ratio of the noise variance to the signal variance.
    """
    rng = np.random.default_rng(seed)
    X, b = rng.normal(size=(m + m_test, D)), rng.normal(size=D)
    v = X @ b / np.linalg.norm(b)
    z = np.sin(2.0 * v) + 0.5 * v
    return X, np.append(z[:m] + math.sqrt(noise) * z.std() * rng.normal(size=m), z[m:]), b


def _task(X, y, w=None, **options):
    options = {"choose_dimension": True, "n_starts": 1, "rng": np.random.RandomState(0)} | options
    return SearchProblem(InMemoryRows(X, y - y.mean(), w), Evidence, range(1, X.shape[1] + 1), **options)


# ------------------------------------------------------------------------------- the first model with a time limit


@pytest.mark.parametrize(("seconds", "n_rows"), [(1e-6, 60), (0.1, None), (1e6, 200)])
def test_the_first_model_uses_as_many_rows_as_the_time_allows(monkeypatch, seconds, n_rows):
    """Test that plain kernel ridge regression is refitted on more rows if there is time, but on at most 200 rows.

    On more rows, the criterion at the end of the refit is at most that of the first fit. With 0.1 s, the number of rows
    depends on the speed of the machine.
    """
    monkeypatch.setattr(search_stages, "_FEW_ROWS", 60)
    monkeypatch.setattr(search_stages, "_EXACT_ROWS", 200)
    X, y, _ = _single(400, 4, 0)
    problem = _task(X, y, deadline=time.perf_counter() + seconds)
    rows, plain = search_stages._begin_with_plain(problem, KERNEL)
    criterion, found = problem.criterion(rows, None, KERNEL), rows.n_rows
    assert 60 <= found <= 200
    assert n_rows in (None, found)
    (first,) = problem.progress.best
    values = [criterion.at(one.nu / found, one.kernel).reduced(one.B).value for one in (plain, first)]
    assert values[0] == pytest.approx(plain.value)
    assert values[0] <= values[1] + 1e-9


def test_without_a_time_limit_there_is_no_first_model():
    assert search_stages._begin_with_plain(_task(*_single(100, 4, 0)[:2]), KERNEL) is None


# ------------------------------------------------------------------------------------------- polishing


def _found(losses, n, D=10):
    """Return candidates with 1, 2, ... directions, sorted by their scores on n rows.

    `losses` has their values of the criterion, in nats per row.
    """
    dof = [d * D - d * (d - 1) / 2 for d in range(1, len(losses) + 1)]
    scores = [n * loss + count / 2.0 * math.log(n) for loss, count in zip(losses, dof, strict=True)]
    found = [
        Candidate(Origin.RANDOM, KERNEL, np.eye(d, D), 0.1, loss, score)
        for d, (loss, score) in enumerate(zip(losses, scores, strict=True), 1)
    ]
    return sorted(found, key=lambda candidate: candidate.score)


@pytest.mark.parametrize(
    ("n_rows", "losses", "expected"),
    [
        (500, [0.0, -0.01], [1]),  # all rows were searched
        (20_000, [0.0, -0.03], [2]),  # two directions win on the sample
        (20_000, [0.0, -0.01], [1, 2]),  # a gain of 200 nats, a penalty of 44.6 and optimism of 40.5
        (20_000, [0.0, -0.003], [1]),  # a gain of 60 nats exceeds the penalty, but not the penalty plus optimism
        (20_000, [0.0, -0.001], [1]),
        (20_000, [0.0, -0.001, -0.02], [1, 3]),  # a gain of 400 nats, a penalty of 84.2 and optimism of 76.5
    ],
)
def test_the_best_candidates_on_the_sample_and_on_all_rows_are_polished(n_rows, losses, expected):
    """Test which candidates are polished: the best on the sample of 2,000 rows, and the best extrapolated to all rows.

    Extrapolated to all n_rows rows, p additional parameters pay off if their gain exceeds the sum of a penalty of
    (p / 2) log(n_rows) nats and an optimism of (p / 2) (n_rows / 2000 - 1) nats. With ten columns, a second direction
    adds 9 parameters and a third direction adds 8. `losses` contains the losses per row with 1, 2 and 3 directions, in
    nats. `expected` contains the number of directions of each polished candidate.
    """
    problem, n_searched = _task(np.zeros((n_rows, 10)), np.zeros(n_rows)), min(n_rows, 2000)
    chosen = search_stages.select_for_polishing(problem, _found(losses, n_searched), n_searched)
    assert [candidate.n_components for candidate in chosen] == expected


def test_of_equal_candidates_only_the_first_is_polished():
    problem, (one, *_) = _task(np.zeros((5000, 10)), np.zeros(5000)), _found([0.0], 2000)
    assert search_stages.select_for_polishing(problem, [one, replace(one, origin=Origin.WIDENED)], 2000.0) == [one]


def test_frequency_weights_are_not_extrapolated():
    """Test that the scores of fifty rows of weight 100 count as scores of 5,000 rows, without extrapolation."""
    problem = _task(np.zeros((50, 10)), np.zeros(50), np.full(50, 100.0))
    found = _found([0.0, -0.0075], 5000)  # a gain of 37.5 nats, a penalty of 38.3
    chosen = search_stages.select_for_polishing(problem, found, problem.rows.total_weight)
    assert [candidate.n_components for candidate in chosen] == [1]


def _polish_to(monkeypatch, scores, deadline=math.inf):
    """Polish candidates whose runs end with the given scores. A score of None means that the run fails.

    Return the candidates, the selected candidate, its run, and the number of runs.
    """
    begun = []

    def fake(criterion, start, *rest, **options):
        begun.append(start)
        if scores[len(begun) - 1] is None:
            raise FitError("on more rows")
        return replace(start, score=scores[len(begun) - 1]), f"run {len(begun)}"

    monkeypatch.setattr(search_stages, "descend", fake)
    X, y, _ = _single(30, 3, 0)
    candidates = [Candidate(Origin.RANDOM, KERNEL, np.eye(d + 1, 3), 0.3, 0.5, seconds=5.0) for d in range(len(scores))]
    end, run = search_stages.polish(_task(X, y, deadline=deadline), candidates)
    assert {(start.label, start.seconds) for start in begun} <= {("polished", 0.0)}
    return candidates, end, run, len(begun)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([3.0], 1), ([3.0, 2.0], 2), ([2.0, 3.0], 1), ([2.0, 2.0], 1), ([None, 3.0], 2), ([3.0, None], 1)],
)
def test_the_lowest_score_after_polishing_wins(monkeypatch, scores, chosen):
    """Test that the candidate with the lowest score after polishing is selected. Ties go to the first candidate.

    A candidate that cannot be evaluated on more rows is ignored.
    """
    _, end, run, n_begun = _polish_to(monkeypatch, scores)
    assert (end.n_components, run, n_begun) == (chosen, f"run {chosen}", len(scores))


@pytest.mark.parametrize(("deadline", "reason"), [(0.0, "time_limit"), (math.inf, "stalled")])
def test_a_candidate_that_cannot_be_polished_is_kept(monkeypatch, deadline, reason):
    """Test that the first candidate is returned if all runs fail, or after the deadline, when no run is started."""
    candidates, end, run, n_begun = _polish_to(monkeypatch, [None, None], deadline)
    assert end is candidates[0]
    assert n_begun == (0 if reason == "time_limit" else 2)
    assert type(run.reason) is str
    assert (run.reason, run.n_iter, run.objective, run.reg_lambda) == (reason, 0, 0.5, 0.01)
    assert_array_equal(run.B, candidates[0].B)
    assert set(map(len, run.history.values())) == {0}


@pytest.mark.parametrize(
    ("m", "n_centers", "expected"), [(60, [5], 10), (60, [5, 9], 18), (60, [30], 40), (60, [None], 40), (50, [5], 50)]
)
def test_polishing_takes_twice_as_many_centers_as_the_search(monkeypatch, m, n_centers, expected):
    """Test that the candidates are polished with twice as many centers as in the search, but with at most 40 centers.

    If the number of centers of a candidate is not known (None), there are 40 centers. If there are at most 50 rows, all
    rows are centers.
    """
    monkeypatch.setattr(search_stages, "_EXACT_ROWS", 50)
    monkeypatch.setattr(search_stages, "_POLISH_CENTERS", 40)
    criteria = []
    monkeypatch.setattr(
        search_stages, "descend", lambda criterion, start, *_, **__: (criteria.append(criterion) or start, "")
    )
    candidates = [Candidate(Origin.CUT, KERNEL, np.eye(1, 3), 0.3, n_centers=number) for number in n_centers]
    X, y, _ = _single(m, 3, 0)
    search_stages.polish(_task(X, y), candidates)
    assert [(one.rows.n_rows, one.n_centers) for one in criteria] == [(m, expected)] * len(n_centers)


# ---------------------------------------------------------- comparison with plain kernel ridge regression


def _compare(monkeypatch, m=150, seed=0, few_rows=60, exact_rows=100):
    """Compare plain kernel ridge regression with a map along the true direction whose scale and noise are too large.

    Return the map, the criteria used for the comparison, and the result of the comparison.
    """
    monkeypatch.setattr(search_stages, "_FEW_ROWS", few_rows)
    monkeypatch.setattr(search_stages, "_EXACT_ROWS", exact_rows)
    given = []

    def recorded(criterion, *others):
        given.append(criterion)
        return plain_kernel_ridge(criterion, *others)

    monkeypatch.setattr(search_stages, "plain_kernel_ridge", recorded)
    X, y, b = _single(m, 3, seed, noise=0.05)
    problem = _task(X, y)
    polished = Candidate(Origin.POLISHED, KERNEL, 3.0 * b[None, :] / np.linalg.norm(b), 2.0, -9.0, -99.0)
    return polished, given, search_stages._against_plain(problem, polished, "its run", ["before"])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_the_map_refits_its_scale_and_noise_for_the_comparison(monkeypatch, seed):
    """Test that the scale and noise of the map are refitted for the comparison with plain kernel ridge regression.

    All 60 rows of the comparison are centers, and the scores are extrapolated to all 150 rows. The lead of the map is
    so clear that there is no second comparison on more rows.
    """
    polished, (exact,), (winner, run, ends) = _compare(monkeypatch, seed=seed)
    before, compared, rival = ends
    (X, Y, _), nus = exact.rows.gather(), (polished.nu, compared.nu)
    assert (before, len(X), compared.label, rival.label) == ("before", 60, "compared", "plain")
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
    # The winner is the polished map, which was learned on more rows, with the score of the comparison.
    assert (compared.shape.name, winner.shape.name, run) == ("full", "full", "its run")
    assert_array_equal(winner.B, polished.B)
    assert (winner.nu, winner.score) == (polished.nu, compared.score)


@pytest.mark.parametrize("reason", ["small lead", "plain leads"])
def test_an_unclear_comparison_is_repeated_on_more_rows(monkeypatch, reason):
    """Test that the comparison on 60 rows is repeated on 100 rows if the map does not lead clearly."""
    if reason == "small lead":
        monkeypatch.setattr(search_stages, "needs_check", lambda chosen, rival: True)
    else:
        # On 60 rows plain kernel ridge regression leads, and on 100 rows the map, which has more parameters.
        sign = {60: 1.0, 100: -1.0}
        score = lambda criterion, value, one, W: sign[criterion.rows.n_rows] * one.degrees_of_freedom  # noqa: E731
        monkeypatch.setattr(search_stages, "score", score)
        monkeypatch.setattr(search_stages, "needs_check", lambda chosen, rival: False)
    decided = []
    monkeypatch.setattr(search_stages, "_is_better", lambda problem, *both: (decided.append(both) or True, []))
    _, criteria, (winner, _, (_, compared, rival)) = _compare(monkeypatch)
    assert [criterion.rows.n_rows for criterion in criteria] == [60, 100]
    # Only the second comparison counts.
    assert decided == [(compared, rival)]
    assert winner.score == compared.score
    for one in (compared, rival):
        found = criteria[1].at(one.nu / 100).reduced(oracles.as_matrix(one.B))
        assert one.value == pytest.approx(found.value, rel=1e-9)


def test_a_comparison_that_fails_keeps_the_map(monkeypatch):
    def failing(*given, **options):
        raise FitError("in the comparison")

    monkeypatch.setattr(search_stages, "descend", failing)
    polished, _, (winner, run, ends) = _compare(monkeypatch)
    assert (winner, run, ends) == (polished, "its run", ["before"])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_strong_noise_does_not_hide_a_direction_that_many_rows_show(monkeypatch, seed):
    """Test that one direction is selected if signal and noise have equal variance, with 1,500 rows of 30 columns.

    Only 150 rows are used for the comparison. If the scores were not extrapolated to 1,500 rows, plain kernel ridge
    regression would win, because of the penalty of log(150) / 2 nats per parameter.
    """
    monkeypatch.setattr(directions, "SIZES", ((math.inf, 400, 100),))
    sizes = {"_FEW_ROWS": 150, "_EXACT_ROWS": 150, "_POLISH_CENTERS": 60}
    for name, size in sizes.items():
        monkeypatch.setattr(search_stages, name, size)
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
def test_messages_do_not_mention_parameters_that_do_not_exist(monkeypatch, kernel):
    """Test that the message of a run that reached its iteration limit does not suggest a larger max_iter.

    HyperKernelRidgeCV has no parameter max_iter.
    """
    monkeypatch.setattr(directions, "SIZES", ((math.inf, 60, 4),))
    for name, size in {"_POLISH_ITERATIONS": 1, "_RESCALE_ITERATIONS": 1}.items():
        monkeypatch.setattr(search_stages, name, size)
    X, y, _ = _single(60, 2, 0, noise=0.1)
    found = HyperKernelRidgeCV(1, kernel=kernel, n_init=1, random_state=0).fit(X, y)
    assert found.result_.reason == "max_iter"
    assert not hasattr(found, "max_iter")
    assert "max_iter" not in found.result_.message
    assert "search" in found.result_.message


@pytest.mark.parametrize("kernel", ["gaussian", "product_matern32"])
def test_rescaling_refits_the_scales_and_keeps_the_directions(kernel):
    """Test that rescaling improves poor scales and a poor noise level without changing the directions.

    At the end, doubling or halving a scale or the noise does not improve the evidence.
    """
    X, y, *_ = _single(120, 4, seed=0, noise=0.3)
    problem = _task(X, y)
    B = np.random.default_rng(1).normal(size=(2, 4))
    start = Candidate(Origin.POLISHED, KERNELS[kernel].with_gamma(1.0), B, nu=10.0)
    end = search_stages.rescale(problem, start)
    assert (end.label, end.shape.name) == ("rescaled", "full")
    assert np.linalg.matrix_rank(np.vstack([end.B, B])) == 2
    if kernel != "gaussian":  # this kernel is not rotation invariant, so each row must keep its direction
        cosines = np.sum(end.B * B, axis=1) / np.linalg.norm(end.B, axis=1) / np.linalg.norm(B, axis=1)
        np.testing.assert_allclose(cosines, 1.0, rtol=1e-12)
    exact = Evidence(problem.rows, None, start.kernel, 1.0, True)

    def evidence(B, nu):
        return exact.reduced(B, nu / problem.rows.total_weight).value

    assert end.value == pytest.approx(evidence(end.B, end.nu))
    assert end.value < evidence(B, 10.0) - 0.01
    for factor in (0.5, 2.0):
        assert end.value <= evidence(end.B, factor * end.nu) + 1e-6
        for scales in (np.array([[factor], [1.0]]), np.array([[1.0], [factor]])):
            assert end.value <= evidence(scales * end.B, end.nu) + 1e-6


# ------------------------------------------------------------------------------------------- kernel of the directions


@pytest.mark.parametrize("name", ["steps", "ratio"])
def test_the_kernel_of_the_directions_follows_the_smoothness_of_the_target(name):
    """Test that a function with jumps gets a rough kernel and a smaller error, and a smooth function does not."""
    data = make_planted(name, 1200, n_features=8, random_state=0)
    X, y = data.X[:200], data.y[:200]
    smooth, chosen = (HyperKernelRidgeCV(kernel=kernel, random_state=0).fit(X, y) for kernel in ("gaussian", "auto"))
    assert chosen.n_components_ == smooth.n_components_ == 2
    if name == "ratio":
        assert isinstance(chosen.kernel_, Gaussian)
        np.testing.assert_allclose(chosen.components_, smooth.components_, rtol=1e-10)
    else:
        assert not isinstance(chosen.kernel_, Gaussian)
        test = data.X[200:], data.y[200:]
        assert chosen.score(*test) > smooth.score(*test)


def test_the_kernel_is_kept_if_no_other_kernel_is_clearly_better():
    """Test that the polished candidate is returned unchanged if the scores of other kernels are not clearly lower."""
    X, y, _ = _single(60, 3, 0, noise=0.1)
    problem = _task(X, y)
    candidate = Candidate(Origin.POLISHED, KERNEL, np.eye(1, 3), 0.1, n_centers=60)
    *tried, kept = search_stages._best_kernel(problem, candidate, [KERNEL, KERNEL])
    assert kept is candidate
    assert [one.origin for one in tried] == [Origin.DIRECTIONS] * 3
    assert len({one.score for one in tried}) == 1
