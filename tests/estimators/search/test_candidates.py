"""Candidates: their scores and degrees of freedom, runs by threads and workers, and what a run says of its end."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import criteria_oracles
from hkrr.candidates import LONG, Candidate, descend, improve, improve_each, optimism, plain, score
from hkrr.criteria import Evidence, Grouped, LeaveOneOut
from hkrr.kernels import KERNELS, Gaussian
from hkrr.rows import InMemoryRows
from hkrr.shapes import Diagonal, Full, Scaled
from problems import kernel_cases

KERNEL = Gaussian(gamma=1.0)
ROTATIONS_CHANGE_NOTHING = {
    "gaussian": True,
    "laplace": True,
    "matern12": True,
    "matern32": True,
    "matern52": True,
    "rational_quadratic": True,
    "inverse_multiquadric": True,
    "polynomial": True,
    "product_laplace": False,
    "product_matern32": False,
    "product_matern52": False,
    "anova": False,
}


def _rows(m=40, T=1, weighted=False, D=3):
    rng = np.random.default_rng([m, T, D])
    X = rng.normal(size=(m, D))
    Y = np.stack([np.sin(2.0 * X[:, 0] + t) for t in range(T)], axis=1) + 0.2 * rng.normal(size=(m, T))
    w = rng.uniform(0.5, 1.5, size=m) if weighted else None
    return InMemoryRows(X, Y - Y.mean(axis=0), w)


def _starts(n, D=3, seed=0):
    rng = np.random.default_rng(seed)
    return [Candidate(f"start {k}", KERNEL, rng.normal(size=(2, D)), 0.1) for k in range(n)]


# --------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize(("T", "constant", "counted"), [(1, 0, 1), (3, 0, 3), (3, 1, 2), (1, 1, 1)])
@pytest.mark.parametrize("make", [Evidence, LeaveOneOut])
def test_the_score_is_bic_in_nats_over_the_targets_that_vary(make, T, constant, counted):
    """T W l + (dof / 2) log W: W the sum of the weights, or whatever is given in its place."""
    rows = _rows(T=T, weighted=True)
    X, Y, w = rows.gather()
    Y[:, :constant] = 0.0
    criterion = make(InMemoryRows(X, Y, w), None, KERNEL, 0.05)
    nats = 0.7 if make is Evidence else math.log(0.7) / 2.0
    for dof in (0.0, 5.0):
        for W in (None, 7.0, 1e6):
            total = sum(w) if W is None else W
            expected = counted * total * nats + dof / 2.0 * math.log(total)
            assert score(criterion, 0.7, dof, W) == pytest.approx(expected, rel=1e-12)


def test_a_single_row_has_a_price_too():
    """The logarithm is that of two rows at least: parameters never cost nothing."""
    criterion = Evidence(_rows(), None, KERNEL, 0.05)
    assert score(criterion, 0.0, 6.0, 1.0) == score(criterion, 0.0, 6.0, 2.0) == pytest.approx(3.0 * math.log(2.0))


@pytest.mark.parametrize("dof", [0.0, 1.0, 7.0])
def test_optimism(dof):
    """Half a nat for each parameter and for each time the rows stand for others: none where they stand for themselves.

    Over n rows the log likelihood at its maximum is above that at the truth by dof / 2 on average, and below it by as
    much on other n; so W / n - 1 times that is what is too good in W / n times it.
    """
    assert optimism(dof, 100.0, 100.0) == 0.0
    assert optimism(dof, 100.0, 300.0) == pytest.approx(dof)
    assert optimism(dof, 400.0, 1000.0) == pytest.approx(0.75 * dof)
    assert optimism(dof, 100.0, 50.0) == 0.0  # never a reward


# --------------------------------------------------------------------------------- degrees of freedom


def test_every_kernel_is_in_the_table():
    assert {name: kernel.rotation_invariant for name, kernel in KERNELS.items()} == ROTATIONS_CHANGE_NOTHING


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("d", "D"), [(1, 1), (1, 4), (2, 4), (3, 4), (4, 4)])
def test_degrees_of_freedom_for_each_kernel_and_shape(name, d, D):
    kernel = KERNELS[name].with_gamma(1.0)
    full = d * D - (d * (d - 1) // 2 if ROTATIONS_CHANGE_NOTHING[name] else 0)
    assert Candidate("s", kernel, np.ones((d, D)), 0.1).degrees_of_freedom == full
    assert Candidate("s", kernel, np.ones(D), 0.1, shape=Diagonal()).degrees_of_freedom == D
    for base in (np.ones(D), np.ones((d, D))):
        assert Candidate("s", kernel, base, 0.1, shape=Scaled(base)).degrees_of_freedom == 1


RANKED = [case for case in kernel_cases(0.3) if case.shape.get("degree") != 1]


@pytest.mark.parametrize("case", RANKED, ids=lambda case: case.id)
@pytest.mark.parametrize(("d", "D"), [(1, 3), (2, 3), (3, 3)])
def test_degrees_of_freedom_are_the_directions_in_which_the_kernel_matrix_moves(case, d, D):
    """The rank of its Jacobian in the parameters of the shape, by differences of the oracle's formula at twelve points.

    Of a polynomial of degree one in few directions the matrix says no more; a parameter that moves nothing leaves 1e-9.
    """
    rng = np.random.default_rng([d, D])
    X, B, scales = rng.normal(size=(12, D)), rng.normal(size=(d, D)), rng.uniform(0.5, 1.5, size=D)
    pairs = np.array([(i, j) for i in range(12) for j in range(i)])

    def matrix(shape, parameters):
        B = shape.map(parameters)
        P = X @ (np.diag(B) if B.ndim == 1 else B).T
        return np.array([case.value(P[i], P[j]) for i, j in pairs])

    for shape, at in ((Full(), B), (Diagonal(), scales), (Scaled(np.ones(D)), np.ones(D)), (Scaled(B), B)):
        parameters, columns = shape.parameters(at), []
        for k in range(parameters.size):
            step = np.zeros(parameters.size)
            step[k] = 1e-5
            step = step.reshape(parameters.shape)
            columns.append((matrix(shape, parameters + step) - matrix(shape, parameters - step)) / 2e-5)
        singular = np.linalg.svd(np.array(columns), compute_uv=False)
        found = np.count_nonzero(singular > 1e-6 * singular[0])
        assert Candidate("s", case.kernel, at, 0.1, shape=shape).degrees_of_freedom == found


# ------------------------------------------------------------------------------------------------ runs


def _told(ends):
    return [(end.start, end.value, end.score, end.nu) for end in ends]


@pytest.mark.parametrize("given", [{"n_threads": 2}, {"n_threads": 5}, {"n_jobs": 1, "n_threads": 1}, {"n_jobs": 2}])
@pytest.mark.parametrize("grouped", [False, True])
def test_all_are_improved_in_their_order_by_whoever_runs_them(given, grouped):
    """As if one by one, to the last bit; fewer starts than threads, or none, are no matter."""
    rows = _rows()
    criterion = (
        Grouped(Evidence, rows, 2, KERNEL, 1.0) if grouped else Evidence(rows, rows.take([1, 5, 9]), KERNEL, 1.0)
    )
    for n in (0, 3):
        starts = _starts(n)
        one_by_one = [improve(criterion, start, 5) for start in starts]
        ends = improve_each(criterion, starts, 5, **given)
        assert _told(ends) == _told(one_by_one)
        assert len({end.value for end in ends}) == n
        for end, expected in zip(ends, one_by_one, strict=True):
            assert_array_equal(end.B, expected.B)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_start_that_cannot_be_evaluated_keeps_its_place(n_threads):
    rows = _rows()
    starts = _starts(3)
    starts[1] = replace(starts[1], B=np.full((2, 3), np.nan), value=-1.0, score=-1.0)
    ends = improve_each(Evidence(rows, None, KERNEL, 1.0), starts, 5, n_threads=n_threads)
    assert [end.start for end in ends] == ["start 0", "start 1", "start 2"]
    assert (ends[1].value, ends[1].score) == (math.inf, math.inf)
    assert all(math.isfinite(end.value) for end in (ends[0], ends[2]))


@pytest.mark.parametrize("shape", ["full", "diagonal", "identity"])
@pytest.mark.parametrize("max_iter", [0, 1, 7])
def test_an_end_is_worth_what_the_oracle_says_and_no_more_than_its_start(shape, max_iter):
    rows, kernel = _rows(weighted=True), kernel_cases(1.0)[0].value
    (X, Y, w), W = rows.gather(), rows.total_weight
    B = {"full": np.eye(2, 3), "diagonal": np.array([0.5, 1.0, 2.0]), "identity": np.ones(3)}[shape]
    start = Candidate("s", KERNEL, B, 0.3, shape={"full": Full(), "diagonal": Diagonal(), "identity": Scaled(B)}[shape])
    end, result = descend(Evidence(rows, None, KERNEL, 1.0), start, max_iter)
    values = [criteria_oracles.evidence(kernel, X, Y, w, None, one.nu / W, one.matrix) for one in (start, end)]
    assert end.value == result.objective == pytest.approx(values[1], rel=1e-9)
    assert end.value < values[0] if max_iter else end.value == pytest.approx(values[0], rel=1e-9)
    assert end.score == pytest.approx(W * values[1] + end.degrees_of_freedom / 2.0 * math.log(W), rel=1e-9)
    assert (end.B.shape, end.start, result.n_iter <= max_iter) == (B.shape, "s", True)
    assert_array_equal(end.B, result.B)
    assert end.nu == pytest.approx(result.reg_lambda * W)


def test_a_run_of_the_search_never_speaks_of_parameters_that_nobody_gave():
    """The search's numbers of steps are its own: raising max_iter is no advice."""
    criterion, start = Evidence(_rows(), None, KERNEL, 1.0), _starts(1)[0]
    short, flat = descend(criterion, start, 1)[1], descend(criterion, start, 1000, tol=0.0)[1]
    assert (short.reason, flat.reason) == ("max_iter", "stalled")  # the second by the callback that sees a plateau
    assert "max_iter" not in short.message
    assert "callback" not in flat.message


@pytest.mark.parametrize("noises", [(0.1,), (1e-8, 1.0, 30.0)])
def test_plain_is_the_best_of_runs_from_each_noise(noises):
    criterion = Evidence(_rows(m=60), None, KERNEL, 1.0)
    best, result = plain(criterion, KERNEL, noises, np.random.RandomState(0))
    typical = math.sqrt(KERNEL.median_gamma(criterion.rows.gather()[0]))  # all rows: they are fewer than the sample
    starts = [Candidate("plain", KERNEL, np.full(3, typical), nu, shape=Scaled(np.ones(3))) for nu in noises]
    lowest = min(descend(criterion, start, LONG)[0].value for start in starts)
    assert best.value == result.objective == pytest.approx(lowest, rel=1e-9)
    assert (best.start, best.shape.name, best.n_components) == ("plain", "identity", 3)
    assert_allclose(best.B, best.B[0], rtol=1e-14)


@pytest.mark.parametrize(("reg_lambda", "expected"), [(1e-12, True), (1e-3, False), (1e3, True)])
def test_a_lambda_at_its_bound_is_still_so_once_improved(reg_lambda, expected):
    """Without a step, so that it stays where it began: by a descent, by `improve`, and by a worker."""
    rows = _rows()
    criterion = Evidence(rows, None, KERNEL, 1.0)
    start = replace(_starts(1)[0], nu=reg_lambda * rows.total_weight, lambda_at_bound=not expected)
    ends = [descend(criterion, start, 0)[0], improve(criterion, start, 0)]
    ends += improve_each(criterion, [start], 0, n_jobs=2)
    assert [end.lambda_at_bound for end in ends] == [expected] * 3
