"""Whether a map holds up on rows that it was not learned on: leads that are little, and planted and useless maps."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from hkrr import HyperKernelRidgeCV, held_out, tuning
from hkrr.candidates import Candidate
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.datasets import make_mim_sines
from hkrr.held_out import HeldOut, Verdict, is_doubtful, squared_errors
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from hkrr.shapes import Diagonal, Full, Scaled
from hkrr.tuning import DID_NOT_HOLD_UP
from problems import SEEDS

KERNEL = Gaussian(gamma=1.0)
SHAPES = {"full": Full(), "diagonal": Diagonal(), "identity": Scaled(np.ones(5))}


@pytest.mark.parametrize(("lead", "doubtful"), [(-1.0, True), (0.0, True), (26.9, True), (27.1, False), (500.0, False)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_lead_of_less_than_three_nats_for_each_parameter_is_little(lead, doubtful, shape):
    """Two directions of five columns have nine parameters. Maps of few parameters are never in doubt."""
    rival = Candidate("plain", KERNEL, np.ones(5), 0.1, score=10.0, shape=SHAPES["identity"])
    B = np.eye(2, 5) if shape == "full" else np.ones(5)
    chosen = Candidate("s", KERNEL, B, 0.1, score=10.0 - lead, shape=SHAPES[shape])
    assert is_doubtful(chosen, rival) == (doubtful and shape == "full")


def test_a_lead_counts_by_the_parameters_that_the_data_can_see():
    """Of a thousand columns of which five are free a lead of 27 nats is large for two directions."""
    rival = Candidate("plain", KERNEL, np.ones(1000), 0.1, score=0.0, shape=Scaled(np.ones(1000)))
    leads = {26.9: True, 27.1: False}
    for lead, doubtful in leads.items():
        chosen = Candidate("s", KERNEL, np.eye(2, 1000), 0.1, score=-lead, n_free_columns=5)
        assert is_doubtful(chosen, rival) == doubtful


def _wave(X, rng):
    return np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))


def _distance(X, rng):
    return np.linalg.norm(X, axis=1) + 0.1 * rng.normal(size=len(X))


def _noise(X, rng):
    return rng.normal(size=len(X))


def _data(target, seed=0, m=80, D=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D))
    y = target(X, rng)
    return X, y - y.mean()


def _candidates(D, d=1):
    """The map of the first columns, and plain kernel ridge regression."""
    rival = Candidate("plain", KERNEL, np.full(D, 0.2), 0.1, shape=Scaled(np.ones(D)))
    return Candidate("polished", KERNEL, np.eye(d, D), 0.1), rival


def _compare(X, y, w=None, d=1, seed=0, make=Evidence, **options):
    check = HeldOut(make, 2, np.random.RandomState(seed), **options)
    return check.compare(InMemoryRows(X, y, w), *_candidates(X.shape[1], d))


# ------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_planted_direction_holds_up(seed):
    verdict = _compare(*_data(_wave, seed), seed=seed)
    assert verdict.holds
    assert verdict.error < verdict.error_of_rival < 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_map_that_fits_noise_is_turned_down(seed):
    """Forty parameters from 75 rows of pure noise: far worse than the mean, which plain regression falls back to."""
    verdict = _compare(*_data(_noise, seed, m=100, D=40), seed=seed)
    assert not verdict.holds
    assert verdict.error > 1.3
    assert verdict.error_of_rival == pytest.approx(1.0, abs=0.2)


def test_one_direction_of_many_alike_is_turned_down():
    verdict = _compare(*_data(_distance, m=120, D=6))
    assert not verdict.holds
    assert verdict.error_of_rival < 0.5 < verdict.error


@pytest.mark.parametrize("B", [np.eye(1, 4, 2), 1e3 * np.eye(1, 4)], ids=["another", "too long"])
def test_the_map_is_learned_anew(B):
    """What it was is of no matter: all there is to say is whether a map of its size can be learned from these rows."""
    X, y = _data(_wave)
    _, rival = _candidates(4)
    verdict = HeldOut(Evidence, 2, np.random.RandomState(0)).compare(
        InMemoryRows(X, y), Candidate("polished", KERNEL, B, 0.1), rival
    )
    assert verdict == _compare(X, y)


def test_threads_change_nothing():
    X, y = _data(_wave)
    assert _compare(X, y, n_threads=2) == _compare(X, y)


def test_past_the_deadline_there_is_no_verdict_and_the_map_stays():
    verdict = _compare(*_data(_noise, m=100, D=40), deadline=0.0)
    assert verdict.holds is True
    assert math.isnan(verdict.error)
    assert math.isnan(verdict.error_of_rival)


@pytest.mark.parametrize("m", [2, 3, 7])
def test_too_few_rows_to_hold_any_out_raise_no_doubt(m):
    verdict = _compare(*_data(_noise, m=m))
    assert verdict.holds is True
    assert math.isnan(verdict.error)


def test_rows_of_no_weight_are_too_few_to_tell_by():
    X, y = _data(_noise, m=100)
    verdict = _compare(X, y, np.where(np.arange(100) < 7, 1.0, 0.0))
    assert verdict.holds is True
    assert math.isnan(verdict.error)


# ------------------------------------------------------------------------------------------------------- the rule


def _errors_given(monkeypatch, mine, theirs):
    """Let every fit be at hand, and the errors of the map and of its rival be these functions of the rows held out."""
    monkeypatch.setattr(HeldOut, "_map_anew", lambda self, groups, chosen: chosen)
    monkeypatch.setattr(HeldOut, "_scales_anew", lambda self, groups, rival: rival)
    told = []

    def errors(learn, last, candidate):
        told.append((learn, last))
        return (mine if candidate.shape.name == "full" else theirs)(last.gather()[1][:, 0])

    monkeypatch.setattr(held_out, "squared_errors", errors)
    return told


@pytest.mark.parametrize(("excess", "holds"), [(-1.0, True), (0.0, True), (0.02, False), (5.0, False)])
def test_a_map_that_predicts_worse_goes(monkeypatch, excess, holds):
    """By the mean over all the rows held out, whatever single rows say."""
    difference = np.where(np.arange(100) % 2, 1.0, -1.0) + excess
    _errors_given(monkeypatch, lambda y: 3.0 + y, lambda y: np.full(len(y), 3.0))
    verdict = _compare(np.zeros((100, 3)), difference)
    assert verdict.holds is holds
    assert verdict.error == pytest.approx(3.0 + excess)
    assert verdict.error_of_rival == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("m", "turns", "last"),
    [(8, 4, 2), (999, 4, 250), (1000, 2, 250), (1999, 2, 500), (2000, 1, 500), (6000, 1, 1500), (9000, 1, 1500)],
)
def test_a_quarter_is_held_out_in_turn_the_more_often_the_fewer_rows(monkeypatch, m, turns, last):
    told = _errors_given(monkeypatch, np.zeros_like, np.zeros_like)
    _compare(np.zeros((m, 1)), np.arange(m, dtype=float))
    assert len(told) == 2 * turns
    seen = []
    for (learn, held), (learn_of_rival, held_of_rival) in zip(told[::2], told[1::2], strict=True):
        parts = [set(rows.gather()[1][:, 0]) for rows in (learn, held, learn_of_rival, held_of_rival)]
        assert parts[:2] == parts[2:]
        assert not parts[0] & parts[1]
        assert len(parts[0] | parts[1]) == min(m, 6000)
        assert len(parts[1]) == held.n_rows <= last
        seen += [*parts[1]]
    assert len(seen) == len(set(seen))  # no row is held out twice
    assert len(seen) == (m if turns == 4 else turns * last)


def test_rows_of_no_weight_are_left_out(monkeypatch):
    told = _errors_given(monkeypatch, np.zeros_like, np.zeros_like)
    y = np.arange(60.0)
    _compare(np.zeros((60, 1)), y, np.where(y < 20, 0.0, 1.5))
    assert len(told) == 8
    for learn, last in told:
        assert sorted([*learn.gather()[1][:, 0], *last.gather()[1][:, 0]]) == list(range(20, 60))


# ------------------------------------------------------------------------------------ nothing of the rows held out


def test_the_rows_held_out_are_not_learned_from(monkeypatch):
    """Two runs that differ in the targets of the first quarter alone: the same fits there, and other errors."""
    told = []

    def told_errors(learn, last, candidate):
        told.append((learn, last, candidate))
        return squared_errors(learn, last, candidate)

    monkeypatch.setattr(held_out, "squared_errors", told_errors)
    X, y = _data(_wave)
    drawn = InMemoryRows(X, y).draw(6000, np.random.RandomState(0))
    first = drawn[np.arange(len(drawn)) % 4 == 0]
    absurd = y.copy()
    absurd[first] = 1e3 * (-1.0) ** np.arange(len(first))
    verdicts = [_compare(X, targets) for targets in (y, absurd)]
    runs = told[:8], told[8:]
    for (learn, last, candidate), (same_learn, other_last, same) in zip(runs[0][:2], runs[1][:2], strict=True):
        assert_array_equal(last.gather()[0], X[first])
        for mine, theirs in zip(learn.gather()[:2], same_learn.gather()[:2], strict=True):
            assert_array_equal(mine, theirs)
        assert math.isfinite(candidate.value)
        assert_array_equal(candidate.B, same.B)
        assert (candidate.nu, candidate.value) == (same.nu, same.value)
        assert np.mean(squared_errors(same_learn, other_last, same)) > 1e3 * np.mean(
            squared_errors(learn, last, candidate)
        )
    assert not np.array_equal(runs[0][2][2].B, runs[1][2][2].B)  # the other turns learn from them
    assert verdicts[1].error > verdicts[0].error


# ---------------------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("make", [Evidence, LeaveOneOut])
def test_the_unit_of_the_target_is_of_no_matter(make):
    X, y = _data(_wave)
    expected, found = (_compare(X, c * y, make=make) for c in (1.0, 2.0**-30))
    assert found.holds == expected.holds
    assert_allclose(
        [found.error, found.error_of_rival], [expected.error, expected.error_of_rival], rtol=1e-6, equal_nan=False
    )


def test_the_unit_of_one_of_two_targets_is_of_no_matter():
    """Another wave along the same direction, in a unit of its own."""
    X, y = _data(_wave)
    Y = np.column_stack([y, np.cos(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=len(X))])
    Y -= Y.mean(axis=0)
    expected = _compare(X, Y)
    assert expected.holds
    for units in ([1.0, 2.0**-300], [2.0**30, 1.0]):
        found = _compare(X, Y * units)
        assert found.holds
        assert_allclose([found.error, found.error_of_rival], [expected.error, expected.error_of_rival], rtol=1e-6)


def test_a_second_target_of_tiny_unit_has_its_say():
    """Pure noise beside a wave: both are worth half of the error, whatever their units."""
    X, y = _data(_wave)
    noise = np.random.default_rng(1).normal(size=len(X))
    alone = _compare(X, y)
    both = _compare(X, np.column_stack([y, 1e-12 * (noise - noise.mean())]))
    assert both.error > alone.error + 0.3


# --------------------------------------------------------------------------------------------------------- errors


def _learn_and_last(weighted, T=2, m=27, D=3):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(m, D)), rng.normal(size=(m, T)) * [1.0, 50.0][:T]
    rows = InMemoryRows(X, Y, rng.uniform(0.5, 2.0, size=m) if weighted else None)
    return rows.subset(np.arange(20)), rows.subset(np.arange(20, m))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("B", [np.array([0.3, 1.0, 0.5]), np.array([[0.3, -1.0, 0.5], [0.2, 0.2, 1.0]])])
def test_the_errors_are_those_of_kernel_ridge_regression_on_the_others(weighted, T, B):
    """Each target in units of its mean square on the others (it is centred there), the weights with a mean of one."""
    learn, last = _learn_and_last(weighted, T)
    (X, Y, w), (X_last, Y_last, w_last) = learn.gather(), last.gather()
    matrix = np.diag(B) if B.ndim == 1 else B
    model = KernelRidge(alpha=0.4, kernel="rbf", gamma=KERNEL.gamma).fit(X @ matrix.T, Y, sample_weight=w)
    expected = np.mean((Y_last - model.predict(X_last @ matrix.T)) ** 2 / np.mean(Y**2, axis=0), axis=1)
    if weighted:
        expected *= w_last / w_last.mean()
    candidate = Candidate("s", KERNEL, B, 0.4, 0.0, shape=Diagonal() if B.ndim == 1 else Full())
    assert_allclose(squared_errors(learn, last, candidate), expected, rtol=1e-9)


def test_a_candidate_that_could_not_be_evaluated_predicts_the_mean():
    learn, last = _learn_and_last(weighted=False)
    expected = np.mean(last.gather()[1] ** 2 / np.mean(learn.gather()[1] ** 2, axis=0), axis=1)
    assert_allclose(squared_errors(learn, last, Candidate("s", KERNEL, np.eye(1, 3), 0.4)), expected, rtol=1e-12)


def test_a_constant_target_has_no_error():
    learn, last = _learn_and_last(weighted=False, T=1)
    X, Y, _ = learn.gather()
    X_last, Y_last, _ = last.gather()
    candidate = Candidate("s", KERNEL, np.eye(2, 3), 0.4, 0.0)
    alone = squared_errors(learn, last, candidate)
    both = squared_errors(
        InMemoryRows(X, np.column_stack([Y, 0.0 * Y])),
        InMemoryRows(X_last, np.column_stack([Y_last, 0.0 * Y_last])),
        candidate,
    )
    assert_allclose(both, alone / 2.0, rtol=1e-12)


def test_a_held_out_row_of_weight_w_is_w_of_them():
    learn, last = _learn_and_last(weighted=False)
    X, Y, _ = last.gather()
    counts = np.arange(1, len(X) + 1)
    candidate = Candidate("s", KERNEL, np.eye(2, 3), 0.4, 0.0)
    repeated = squared_errors(
        learn, InMemoryRows(np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0)), candidate
    )
    weighted = squared_errors(learn, InMemoryRows(X, Y, counts.astype(float)), candidate)
    assert np.mean(weighted) == pytest.approx(np.mean(repeated), rel=1e-12)
    assert np.mean(weighted) != pytest.approx(np.mean(squared_errors(learn, last, candidate)), rel=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_the_unit_of_the_weights_is_of_no_matter_to_the_errors(factor):
    """Lambda, the noise over all the weight, is what stays."""
    learn, last = _learn_and_last(weighted=True)
    rescaled = [InMemoryRows(X, Y, factor * w) for X, Y, w in (learn.gather(), last.gather())]
    one, other = (Candidate("s", KERNEL, np.eye(2, 3), c * 0.4, 0.0) for c in (1.0, factor))
    assert_allclose(squared_errors(*rescaled, other), squared_errors(learn, last, one), rtol=1e-9)


# -------------------------------------------------------------------------------------------------- the estimator


def _held_out_rows(model):
    return [k for k, start in enumerate(model.path_["start"]) if start == "held out"]


def _noise_fit(seed, w=None):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(100, 40)), rng.normal(size=100)
    return HyperKernelRidgeCV(n_init=2, random_state=seed).fit(X, y, w)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of a fit to noise
@pytest.mark.parametrize("seed", SEEDS)
def test_a_refused_map_leaves_its_errors_in_the_path(seed):
    """A hundred rows of noise in forty columns: the criterion is taken in, held-out rows are not."""
    model = _noise_fit(seed)
    assert model.map_shape_ == "identity"
    assert model.result_.message == DID_NOT_HOLD_UP
    chosen, rival = _held_out_rows(model)
    path = model.path_
    assert [path["shape"][k] for k in (chosen, rival)] == ["full", "identity"]
    assert path["n_components"][chosen] < 40
    assert path["criterion"][chosen] > path["criterion"][rival] > 0.5
    assert [path["score"][k] for k in (chosen, rival)] == [path["criterion"][k] for k in (chosen, rival)]


@pytest.mark.thorough
def test_the_unit_of_the_weights_is_of_no_matter_to_the_verdict():
    w = np.linspace(0.5, 2.0, 100)
    one, other = (_noise_fit(0, c * w) for c in (1.0, 1024.0))
    assert len(_held_out_rows(one)) == 2
    assert one.result_.message == other.result_.message
    for name in ("start", "criterion"):
        assert [one.path_[name][k] for k in _held_out_rows(one)] == [
            other.path_[name][k] for k in _held_out_rows(other)
        ]


@pytest.mark.parametrize("kernel", ["gaussian", pytest.param("auto", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("holds", [True, False])
def test_the_verdict_decides_and_its_errors_are_told(monkeypatch, kernel, holds):
    """A clear wave that is put in doubt: its map stays or goes by the verdict alone."""
    monkeypatch.setattr(tuning, "is_doubtful", lambda chosen, rival: chosen.shape.name == "full")
    monkeypatch.setattr(HeldOut, "compare", lambda self, rows, chosen, rival: Verdict(holds, 0.25, 0.75))
    X, y = _data(_wave, m=120, D=5)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    model = HyperKernelRidgeCV(kernel=kernel, n_init=2, random_state=0).fit(X @ rotation, y)
    assert (model.map_shape_ == "full") == holds
    assert (model.result_.message == DID_NOT_HOLD_UP) == (not holds)
    assert [model.path_["criterion"][k] for k in _held_out_rows(model)] == [0.25, 0.75]


def test_a_clear_lead_is_not_put_to_the_test(monkeypatch):
    def fail(*arguments):
        raise AssertionError("compared")

    monkeypatch.setattr(HeldOut, "compare", fail)
    X, y = _data(_wave, m=200, D=5)
    model = HyperKernelRidgeCV(n_init=2, random_state=0).fit(X, y)
    assert model.map_shape_ == "full"
    assert _held_out_rows(model) == []


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # nothing is found, and that is said
@pytest.mark.thorough
def test_a_spiky_function_of_one_direction_does_not_pass_for_a_model():
    """A wave too short for any search to find: a map of one direction led by 2.1 nats a parameter, and R2 was -0.4."""
    data = make_mim_sines(400, n_features=10, n_components=1, random_state=1)
    model = HyperKernelRidgeCV(random_state=0).fit(data.X[:300], data.y[:300])
    assert model.score(data.X[300:], data.y[300:]) > -0.05
