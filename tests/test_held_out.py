"""Whether a map holds up on rows that it was not learned on: leads that are little, and planted and useless maps."""

import math

import numpy as np
import pytest

from hkrr import held_out
from hkrr.candidates import Candidate
from hkrr.criteria import Evidence
from hkrr.held_out import holds_up, is_doubtful
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from hkrr.shapes import Diagonal, Full, Scaled
from oracles import gram, project
from problems import kernel_cases

KERNEL = Gaussian(gamma=1.0)
SHAPES = {"full": Full(), "diagonal": Diagonal(), "identity": Scaled(np.ones(5))}


@pytest.mark.parametrize(("lead", "doubtful"), [(-1.0, True), (0.0, True), (17.9, True), (18.1, False), (500.0, False)])
def test_a_lead_of_less_than_two_nats_for_each_parameter_is_little(lead, doubtful):
    """Two directions of five columns have nine parameters. Maps of few parameters are never in doubt."""
    rival = Candidate("plain", KERNEL, np.ones(5), 0.1, score=10.0, shape=SHAPES["identity"])
    for name, shape in SHAPES.items():
        B = np.eye(2, 5) if name == "full" else np.ones(5)
        chosen = Candidate("s", KERNEL, B, 0.1, score=10.0 - lead, shape=shape)
        assert is_doubtful(chosen, rival) == (doubtful and name == "full")


def _wave(X, rng):
    return np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))


def _distance(X, rng):
    return np.linalg.norm(X, axis=1) + 0.1 * rng.normal(size=len(X))


def _noise(X, rng):
    return rng.normal(size=len(X))


def _asked(target, seed=0, m=200, D=8, **options):
    """Whether a map of one direction, the first column, holds up against plain regression."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D))
    y = target(X, rng)
    chosen = Candidate("polished", KERNEL, np.eye(1, D), 0.1)
    rival = Candidate("plain", KERNEL, np.full(D, 0.2), 0.1, shape=Scaled(np.ones(D)))
    options = {"n_starts": 2, "rng": np.random.RandomState(seed)} | options
    return holds_up(Evidence, InMemoryRows(X, y - y.mean()), chosen, rival, **options)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_direction_holds_up_and_one_of_many_alike_does_not(seed):
    assert _asked(_wave, seed)
    assert not _asked(_distance, seed)


def test_the_map_is_learned_anew():
    """What it was is of no matter: all there is to say is whether a map of its size can be learned from these rows."""
    for B in (np.eye(1, 8, 5), 1e3 * np.eye(1, 8)):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 8))
        y = _wave(X, rng)
        rival = Candidate("plain", KERNEL, np.full(8, 0.2), 0.1, shape=Scaled(np.ones(8)))
        chosen = Candidate("polished", KERNEL, B, 0.1)
        rows = InMemoryRows(X, y - y.mean())
        assert holds_up(Evidence, rows, chosen, rival, n_starts=2, rng=np.random.RandomState(0))


def test_threads_change_nothing(monkeypatch):
    told = []
    error = held_out._error
    monkeypatch.setattr(held_out, "_error", lambda *given: told.append(error(*given)) or told[-1])
    for n_threads in (1, 2):
        _asked(_noise, n_threads=n_threads)
    assert len(told) == 4
    assert told[:2] == told[2:]


@pytest.mark.parametrize("m", [2, 3])
def test_too_few_rows_to_hold_any_out_raise_no_doubt(m):
    assert _asked(_noise, m=m)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_the_error_is_that_of_the_fit_on_the_others(weighted, diagonal):
    """(K + nu / w) a = y on the first 20 rows, weighted squares on the last 7; one that failed has an infinite one."""
    rng = np.random.default_rng(0)
    X, Y, w = rng.normal(size=(27, 3)), rng.normal(size=(27, 2)), rng.uniform(0.5, 2.0, size=27)
    w = w if weighted else np.ones(27)
    rows = InMemoryRows(X, Y, w if weighted else None)
    learn, last = rows.subset(np.arange(20)), rows.subset(np.arange(20, 27))
    B = np.array([0.3, 1.0, 0.5]) if diagonal else rng.normal(size=(2, 3))
    candidate = Candidate("s", KERNEL, B, 0.4, 0.0, shape=Diagonal() if diagonal else Full())
    P, k = project(X, np.diag(B) if diagonal else B), kernel_cases(1.0)[0].value
    alpha = np.linalg.solve(gram(k, P[:20], P[:20]) + np.diag(0.4 / w[:20]), Y[:20])
    squares = np.sum((Y[20:] - gram(k, P[20:], P[:20]) @ alpha) ** 2, axis=1)
    assert held_out._error(learn, last, candidate) == pytest.approx(
        np.sum(w[20:] * squares) / np.sum(w[20:]), rel=1e-10
    )
    assert held_out._error(learn, last, Candidate("s", KERNEL, B, 0.4)) == math.inf
