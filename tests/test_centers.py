"""Tests of leverage scores and their sampling frequencies, uniform sampling, k-means, and the number of centers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2
from sklearn.utils import check_random_state

from hkrr import centers, kernels
from hkrr.rows import InMemoryRows
from support import oracles
from support.random_problems import ONE_GAMMA, case_id, make_problem


def _rows(m=40, D=4, seed=0, **options):
    p = make_problem(m=m, D=D, seed=seed)
    return p, InMemoryRows(p.X, p.y, **options)


@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
@pytest.mark.parametrize("t", [1e-3, 0.1, 10.0])
def test_scores_are_exact_when_the_pilot_is_all_rows(case, t):
    """Test that approximate leverage scores are exact, up to 1e-8, if the pilot sample contains all rows.

    The scores at the regularization t are approximated from the rows of the pilot sample. Let K be the m x m kernel
    matrix. The condition number of K + t m I is below 1e5, so rounding errors and the jitter added to K are below the
    tolerance.
    """
    p, rows = _rows(block_size=7)
    scores = centers.approximate_leverage_scores(rows, p.B, case.kernel, t, p.X)
    assert_allclose(scores, oracles.leverage_scores(case.value, p.X, p.B, t), rtol=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "matern52", "matern32"])
@pytest.mark.parametrize("t", [1e-2, 0.1])
def test_scores_of_a_partial_pilot_are_within_a_factor_two(kernel, t):
    """Test that the scores differ from the exact scores by at most a factor 2 if the pilot sample has half of the rows.

    The kernels are smooth and the points B x lie in a plane. The kernel functions at the 100 rows of the pilot sample
    therefore nearly span the eigenfunctions of K / m whose eigenvalues are not much smaller than the regularization t.
    """
    p, rows = _rows(m=200)
    kernel = kernels.get_kernel(kernel).with_gamma(0.3)
    K = kernel(p.X @ p.B.T, p.X @ p.B.T)
    exact = np.diag(np.linalg.solve(K + t * 200 * np.eye(200), K))
    pilot = centers.uniform(rows, 100, check_random_state(0))
    ratio = centers.approximate_leverage_scores(rows, p.B, kernel, t, pilot) / exact
    assert ratio.min() >= 0.5
    assert ratio.max() <= 2.0


def test_leverage_draws_in_proportion_to_the_scores():
    """Test that the probability of drawing a row is proportional to its leverage score, by a chi-square test.

    The level of the test is 1e-9. The first nine rows form a tight cluster and have small scores. The last three rows
    are outliers and have larger scores.
    """
    rng = np.random.default_rng(1)
    X = np.vstack([0.2 * rng.normal(size=(9, 2)), 10.0 + rng.normal(size=(3, 2))])
    kernel, B, t0, n = kernels.Gaussian(gamma=0.5), np.eye(2), 0.05, 20_000
    rows = InMemoryRows(X, np.zeros(12))
    scores = oracles.leverage_scores(lambda p, c: oracles.gaussian(p, c, 0.5), X, B, t0)
    expected = n * scores / scores.sum()
    drawn = centers.leverage(rows, n, check_random_state(2), B=B, kernel=kernel, t0=t0)
    assert drawn.shape == (n, 2)
    counts = np.array([(drawn == x).all(axis=1).sum() for x in X])
    assert counts.sum() == n
    statistic = np.sum((counts - expected) ** 2 / expected)
    limit = chi2.isf(1e-9, df=11)
    assert statistic <= limit
    # The counts differ so much from equal counts that the test above would detect uniform sampling.
    assert np.sum((counts - n / 12) ** 2 / (n / 12)) > 20.0 * limit


def test_uniform_draws_distinct_rows():
    p, rows = _rows(m=30)
    drawn = centers.uniform(rows, 12, check_random_state(3))
    matches = np.array([[np.array_equal(x, c) for x in p.X] for c in drawn])
    assert drawn.shape == (12, 4)
    assert_array_equal(matches.sum(axis=1), 1)
    assert matches.sum(axis=0).max() == 1
    everything = centers.uniform(rows, 30, check_random_state(3))
    assert_array_equal(np.sort(everything, axis=0), np.sort(p.X, axis=0))


def test_uniform_draws_every_row_equally_often():
    """Test that each of 10 rows is drawn equally often in 2,000 draws of 3 rows, by a chi-square test.

    The level of the test is 1e-9. Each draw is without replacement, so the chi-square statistic tends to be smaller
    than for independent draws.
    """
    X = np.arange(10.0)[:, None]
    rows, rng = InMemoryRows(X, np.zeros(10)), check_random_state(4)
    counts = np.zeros(10)
    for _ in range(2000):
        counts[centers.uniform(rows, 3, rng)[:, 0].astype(int)] += 1
    assert counts.sum() == 6000
    assert np.sum((counts - 600.0) ** 2 / 600.0) <= chi2.isf(1e-9, df=9)


def test_uniform_cannot_draw_more_rows_than_there_are():
    _, rows = _rows(m=5)
    with pytest.raises(ValueError, match=r"larger|more"):
        centers.uniform(rows, 6, check_random_state(0))


def _leverage(rows, n, rng):
    return centers.leverage(rows, n, rng, B=np.eye(4)[:2], kernel=kernels.Matern(gamma=0.3), t0=0.01)


every_way = pytest.mark.parametrize(
    "choose", [centers.uniform, centers.kmeans, _leverage], ids=["uniform", "kmeans", "als"]
)


@every_way
def test_centers_are_finite_reproducible_and_in_the_rows_coordinates(choose):
    p = make_problem(m=60)
    offset, scale = np.full(4, 100.0), np.array([1.0, 10.0, 0.1, 1.0])
    rows = InMemoryRows(p.X, p.y, x_offset=offset, x_scale=scale)
    moved = (p.X - offset) / scale
    before = np.random.get_state()  # noqa: NPY002  # the test checks the global state
    drawn, again = choose(rows, 7, check_random_state(5)), choose(rows, 7, check_random_state(5))
    after = np.random.get_state()  # noqa: NPY002  # the test checks the global state
    assert drawn.shape == (7, 4)
    assert np.isfinite(drawn).all()
    assert (drawn >= moved.min(axis=0) - 1e-9).all()
    assert (drawn <= moved.max(axis=0) + 1e-9).all()
    assert_array_equal(drawn, again)
    assert not np.array_equal(drawn, choose(rows, 7, check_random_state(6)))
    assert_array_equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_kmeans_finds_separated_clusters():
    rng = np.random.default_rng(7)
    means = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]])
    X = np.vstack([mean + 0.1 * rng.normal(size=(25, 2)) for mean in means])
    found = centers.kmeans(InMemoryRows(X, np.zeros(100)), 4, check_random_state(8))
    gaps = np.linalg.norm(found[:, None] - means[None], axis=2)
    # The mean of 25 points with standard deviation 0.1 lies within 5 * 0.02 * sqrt(2) of the cluster's mean.
    assert gaps.min(axis=0).max() <= 0.15


def test_auto_size_follows_its_rule():
    """Test that the default number of centers is kappa / lambda, rounded up, where kappa is the maximum of k(x, x).

    The number is at least 100, but never exceeds the number of rows. It is limited so that four square float64 matrices
    of this size fit into 256 MiB.
    """
    assert centers.auto_size(10_000, 1 / 256) == 256
    assert centers.auto_size(10_000, 0.003) == 334
    assert centers.auto_size(10_000, 1 / 256, kappa=2.0) == 512
    assert centers.auto_size(50, 1e-3) == 50
    assert centers.auto_size(1000, 10.0) == 100
    assert 4 * 8 * centers.auto_size(10**9, 1e-12) ** 2 <= 256 * 2**20


def test_auto_size_is_monotone():
    lambdas = np.logspace(1, -12, 27)
    sizes = np.array([[centers.auto_size(m, reg) for reg in lambdas] for m in (1, 10, 1000, 100_000, 10_000_000)])
    assert (np.diff(sizes, axis=1) >= 0).all()
    assert (np.diff(sizes, axis=0) >= 0).all()
    assert (sizes >= 1).all()
    assert (sizes <= np.array([[1], [10], [1000], [100_000], [10_000_000]])).all()
    kappas = [centers.auto_size(10_000, 1e-3, kappa=kappa) for kappa in (0.1, 1.0, 3.0, 100.0)]
    assert kappas == sorted(kappas)
