"""The live view of hkrr fit: what it says on a terminal and elsewhere, and how long it says that the fit will take."""

import inspect
import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import hkrr
from hkrr import selection, tuning
from hkrr.cli import _view
from hkrr.cli._time_left import _ONE_KERNEL, TimeLeft, in_words
from hkrr.cli._view import View
from hkrr.progress import SearchState

# When the stages of fits began, the directions of the best model by then, and when all was over: as they were watched.
PLANTED = [
    (0.1, "1 direction, gaussian", None),
    (2.8, "2 directions, gaussian", 1),
    (6.2, "3 directions, gaussian", 2),
    (10.1, "4 directions, gaussian", 3),
    (14.2, "5 directions, gaussian", 3),
    (19.4, "the best directions on more rows", 3),
    (21.6, "plain kernel ridge on all columns", 3),
    (25.0, "the last fit, on all rows", 3),
    (25.1, "", None),
]
TABLE = [
    (0.1, "1 direction, gaussian", None),
    (1.0, "2 directions, gaussian", 1),
    (2.0, "3 directions, gaussian", 2),
    (5.0, "4 directions, gaussian", 3),
    (7.0, "5 directions, gaussian", 4),
    (10.0, "6 directions, gaussian", 4),
    (13.0, "directions, gaussian", 4),
    (13.3, "directions, 3 kernels", 4),
    (14.0, "plain kernel ridge, 7 kernels", 4),
    (15.0, "a scale for each column, 7 kernels", 8),
    (18.0, "a scale for each column, 2 kernels", 8),
    (19.0, "directions, laplace", 8),
    (21.0, "finalists: a scale for each column and plain kernel ridge, 2 kernels", 8),
    (25.0, "finalists: plain kernel ridge, product_laplace", 8),
    (26.0, "the last fit, on all rows", 8),
    (26.5, "", None),
]
DOUBTFUL = [
    (0.1, "1 direction, gaussian", None),
    (3.3, "2 directions, gaussian", 1),
    (8.9, "3 directions, gaussian", 2),
    (15.2, "4 directions, gaussian", 3),
    (20.7, "5 directions, gaussian", 3),
    (24.2, "6 directions, gaussian", 4),
    (28.9, "the best directions on more rows", 4),
    (31.7, "plain kernel ridge on all columns", 4),
    (34.0, "whether the directions hold up on rows not learned from", 4),
    (54.0, "the last fit, on all rows", 4),
    (54.1, "", None),
]


def watched(stages, any_kernel):
    """Return the times at which a terminal asks, and what it is told."""
    time_left, end = TimeLeft(any_kernel), stages[-1][0]
    coming, times = list(stages[:-1]), np.arange(0.25, end, 0.25)
    told = []
    for now in times:
        while coming and coming[0][0] <= now:
            at, stage, best = coming.pop(0)
            time_left.reached(stage, best, at)
        told.append(time_left.at(now))
    return times, told


@pytest.mark.parametrize("speed", [1.0, 10.0, 600.0])
@pytest.mark.parametrize(("stages", "any_kernel"), [(PLANTED, False), (DOUBTFUL, False), (TABLE, True)])
def test_the_time_left_is_about_right_and_never_jumps(stages, any_kernel, speed):
    stages = [(speed * at, stage, best) for at, stage, best in stages]
    times, told = watched(stages, any_kernel)
    assert told[0] is None
    known = [k for k, left in enumerate(told) if left is not None]
    assert known[0] > 0
    assert known == list(range(known[0], len(told)))
    times, left = times[known], np.array([told[k] for k in known])
    total = stages[-1][0]
    assert np.all(left >= 0.0)
    # Beside counting down, it changes by a twentieth of all the time at most, from one quarter of a second to the next.
    assert np.all(np.abs(np.diff(left) + np.diff(times)) <= 0.05 * total + 0.25)
    estimate = (times + left) / total
    assert np.all((estimate[times > total / 3] > 0.5) & (estimate[times > total / 3] < 2.0))
    assert np.all(estimate[times > 2 * total / 3] < 1.5)  # an estimate from shares that differ from table to table


def test_a_stage_that_takes_forever_and_one_that_is_not_known():
    time_left = TimeLeft(False)
    time_left.reached("2 directions, gaussian", 1, 2.0)
    time_left.reached("something new", 1, 3.0)
    found = [time_left.at(now) for now in range(3, 3000)]
    assert min(found) > 0
    assert found[-1] > found[100]  # the longer this takes, the longer may the rest


def test_stages_from_a_checkpoint_took_no_time():
    """The first four of five stages are there at once: the rest is foretold from the fifth."""
    time_left = TimeLeft(False, going_on=True)
    for k, (_, stage, best) in enumerate(PLANTED[:5]):
        time_left.reached(stage, best, 0.1 * k)
        assert time_left.at(0.1 * k) is None
    time_left.reached(*PLANTED[5][1:], 5.6)  # which took 5.2 seconds, as before; 5.7 were left
    assert 3.0 < time_left.at(5.6) < 12.0


def test_every_stage_of_a_search_is_known():
    X = np.random.default_rng(0).standard_normal((40, 2))
    for kernel in ("gaussian", "auto"):
        stages, time_left = [], TimeLeft(kernel == "auto")
        note = lambda state, stages=stages: stages.append(state.stage)  # noqa: E731
        model = hkrr.HyperKernelRidgeCV(kernel=kernel, n_init=1, random_state=0, callbacks=[note])
        model.fit(X, np.sin(X[:, 0]))
        ends = [time_left._shares(stage, 1)[1] for stage in stages]
        assert min(ends) > 0
        assert ends[-1] == max(ends)


def test_stages_of_the_plan_are_stages_of_a_search():
    """Those too that few searches come to."""
    told = "".join(inspect.getsource(module) for module in (tuning, selection))
    for name, _ in _ONE_KERNEL:
        assert f'report.trying("{name}' in told


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "a few seconds left"),
        (12.0, "about 10 s left"),
        (59.0, "about 60 s left"),
        (180.0, "about 3 min left"),
        (7200.0, "about 2.0 h left"),
    ],
)
def test_time_in_words(seconds, said):
    assert in_words(seconds) == said


def state(stage, seconds, n_found=0, error=0.0, **more):
    """Return the state of a search whose best model so far is off by so much."""
    best = {"n_components": 1, "kernel": "gaussian", "shape": "full", "score": 0.0} if n_found else {}
    return SearchState(stage, seconds, n_found=n_found, _predict=lambda X: X[:, 0] + error, **{**best, **more})


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless it is told to go on."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(_view, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def made_view(terminal, **options):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    split = SimpleNamespace(test=frame, y_test=np.array([0.0, 1.0, 2.0]))
    model = SimpleNamespace(transform=lambda frame: frame.to_numpy())
    return View(console, model, split, **{"any_kernel": False, **options}), console.file


def test_lines_where_there_is_no_terminal(clock):
    view, file = made_view(False)
    view.trying("others")
    with view.shown():
        for seconds, stage, n_found, error in (
            (0.0, "1 direction, gaussian", 0, 0.0),
            (4.0, "2 directions, gaussian", 1, 0.5),
            (9.0, "3 directions, gaussian", 2, 0.1),
            (9.0, "3 directions, gaussian", 2, 0.1),
            (19.0, "the best directions on more rows", 3, 0.2),  # worse: the best is what it was
        ):
            clock.now = 101.0 + seconds
            view(state(stage, seconds, n_found, error))
    assert file.getvalue().splitlines() == [
        "    0 s  others",
        "    1 s  1 direction, gaussian",
        "    5 s  2 directions, gaussian  (best held-out R2 so far 0.625; about 35 s left)",
        "   10 s  3 directions, gaussian  (best held-out R2 so far 0.985; about 30 s left)",
        "   20 s  the best directions on more rows  (best held-out R2 so far 0.985; a few seconds left)",
    ]


def test_a_checkpoint_is_named_once_the_fit_goes_on_from_it(clock):
    view, file = made_view(False, going_on="going on from c: it holds 3 steps of the search")
    assert file.getvalue() == ""
    for stage in ("1 direction, gaussian", "2 directions, gaussian"):
        view(state(stage, 0.0))
    assert file.getvalue().splitlines()[0] == "going on from c: it holds 3 steps of the search"
    assert file.getvalue().count("going on") == 1


def test_a_terminal_shows_stage_score_and_time(clock):
    view, file = made_view(True, time_limit=60.0)
    with view.shown():
        clock.now += 10.0
        assert "at most 50 s left" in _text(view)
        view(state("2 directions, gaussian", 8.0, 1, 0.1))
        clock.now += 30.0
        view(state("3 directions, gaussian", 38.0, 2, 0.5, n_components=2, shape="diagonal"))
    said = _text(view)
    assert "trying            3 directions, gaussian" in said
    assert "best so far       a scale for each column, gaussian" in said
    assert "best held-out R2  0.985 (a quick look)" in said
    assert "time              40 s, about 20 s left" in said  # by the limit: the search would take longer
    assert "best held-out R2" in file.getvalue()


def _text(view):
    console = Console(file=io.StringIO(), width=80)
    console.print(view._table())
    return console.file.getvalue()
