"""Test the progress display of hkrr fit, on a terminal and without one, and its estimate of the remaining time."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import hkrr
from hkrr.cli import _live_view as _view
from hkrr.cli._live_view import View
from hkrr.cli._time_left import TimeLeft, format_time_left
from hkrr.estimators.search.progress import AGAINST_PLAIN, FINAL_FIT, HELD_OUT_CHECK, POLISHING, SearchState

# Stages of three recorded fits: the start of the stage in seconds, its name, and the number of directions of the best
# candidate so far. The last entry is the end of the fit.
PLANTED = [
    (0.1, "1 direction, gaussian", None),
    (2.8, "2 directions, gaussian", 1),
    (6.2, "3 directions, gaussian", 2),
    (10.1, "4 directions, gaussian", 3),
    (14.2, "5 directions, gaussian", 3),
    (19.4, POLISHING, 3),
    (21.6, AGAINST_PLAIN, 3),
    (25.0, FINAL_FIT, 3),
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
    (26.0, FINAL_FIT, 8),
    (26.5, "", None),
]
DOUBTFUL = [
    (0.1, "1 direction, gaussian", None),
    (3.3, "2 directions, gaussian", 1),
    (8.9, "3 directions, gaussian", 2),
    (15.2, "4 directions, gaussian", 3),
    (20.7, "5 directions, gaussian", 3),
    (24.2, "6 directions, gaussian", 4),
    (28.9, POLISHING, 4),
    (31.7, AGAINST_PLAIN, 4),
    (34.0, HELD_OUT_CHECK, 4),
    (54.0, FINAL_FIT, 4),
    (54.1, "", None),
]


def displayed(stages, any_kernel):
    """Return the times at which a terminal is updated during a recorded fit, and the remaining seconds shown then."""
    time_left, end = TimeLeft(any_kernel), stages[-1][0]
    coming, times = list(stages[:-1]), np.arange(0.25, end, 0.25)
    values = []
    for now in times:
        while coming and coming[0][0] <= now:
            at, stage, best = coming.pop(0)
            time_left.start_stage(stage, best, at)
        values.append(time_left.smoothed(now))
    return times, values


@pytest.mark.parametrize("speed", [1.0, 10.0, 600.0])
@pytest.mark.parametrize(("stages", "any_kernel"), [(PLANTED, False), (DOUBTFUL, False), (TABLE, True)])
def test_the_time_left_is_roughly_right_and_never_jumps(stages, any_kernel, speed):
    stages = [(speed * at, stage, best) for at, stage, best in stages]
    times, values = displayed(stages, any_kernel)
    assert values[0] is None
    known = [k for k, left in enumerate(values) if left is not None]
    assert known[0] > 0
    assert known == list(range(known[0], len(values)))
    times, left = times[known], np.array([values[k] for k in known])
    total = stages[-1][0]
    assert np.all(left >= 0.0)
    # Apart from counting down, the value changes by at most 5% of the total time from one update to the next.
    assert np.all(np.abs(np.diff(left) + np.diff(times)) <= 0.05 * total + 0.25)
    estimate = (times + left) / total
    assert np.all((estimate[times > total / 3] > 0.5) & (estimate[times > total / 3] < 2.0))
    assert np.all(estimate[times > 2 * total / 3] < 1.5)  # the shares of the stages vary between tables


def test_a_very_long_stage_and_an_unknown_stage():
    time_left = TimeLeft(False)
    time_left.start_stage("2 directions, gaussian", 1, 2.0)
    time_left.start_stage("something new", 1, 3.0)
    found = [time_left.smoothed(now) for now in range(3, 3000)]
    assert min(found) > 0
    assert found[-1] > found[100]  # the estimate grows while a stage takes longer than expected


def test_stages_from_a_checkpoint_are_not_timed():
    """Test that stages read from a checkpoint are ignored. The first four of five stages take no time."""
    time_left = TimeLeft(False, resumed=True)
    for k, (_, stage, best) in enumerate(PLANTED[:5]):
        time_left.start_stage(stage, best, 0.1 * k)
        assert time_left.smoothed(0.1 * k) is None
    time_left.start_stage(*PLANTED[5][1:], 5.6)  # the fifth stage took 5.2 seconds, and 5.7 are left
    assert 3.0 < time_left.smoothed(5.6) < 12.0


def test_every_stage_of_a_search_is_known():
    X = np.random.default_rng(0).standard_normal((40, 2))
    for kernel in ("gaussian", "auto"):
        stages, time_left = [], TimeLeft(kernel == "auto")
        record = lambda state, stages=stages: stages.append(state.stage)  # noqa: E731
        model = hkrr.HyperKernelRidgeCV(kernel=kernel, n_init=1, random_state=0, callbacks=[record])
        model.fit(X, np.sin(X[:, 0]))
        ends = [time_left._shares(stage, 1)[1] for stage in stages]
        assert min(ends) > 0
        assert ends[-1] == max(ends)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "a few seconds left"),
        (12.0, "about 10 s left"),
        (59.0, "about 60 s left"),
        (180.0, "about 3 min left"),
        (7200.0, "about 2.0 h left"),
    ],
)
def test_format_time_left(seconds, text):
    assert format_time_left(seconds) == text


def state(stage, seconds, n_found=0, error=0.0, **more):
    """Return the state of a search whose best candidate predicts the first column plus a constant error."""
    best = {"n_components": 1, "kernel": "gaussian", "shape": "full", "score": 0.0} if n_found else {}
    return SearchState(stage, seconds, n_found=n_found, _predict=lambda X: X[:, 0] + error, **{**best, **more})


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of the view by a clock that the test sets, and return this clock."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(_view, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def made_view(terminal, **options):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    split = SimpleNamespace(test=frame, y_test=np.array([0.0, 1.0, 2.0]))
    model = SimpleNamespace(transform=lambda frame: frame.to_numpy())
    return View(console, model, split, **{"any_kernel": False, **options}), console.file


def test_without_a_terminal_each_stage_is_a_line(clock):
    view, file = made_view(False)
    view.start_stage("baselines")
    with view.shown():
        for seconds, stage, n_found, error in (
            (0.0, "1 direction, gaussian", 0, 0.0),
            (4.0, "2 directions, gaussian", 1, 0.5),
            (9.0, "3 directions, gaussian", 2, 0.1),
            (9.0, "3 directions, gaussian", 2, 0.1),
            (19.0, POLISHING, 3, 0.2),  # this candidate is worse, so the displayed R2 does not change
        ):
            clock.now = 101.0 + seconds
            view(state(stage, seconds, n_found, error))
    assert file.getvalue().splitlines() == [
        "    0 s  baselines",
        "    1 s  1 direction, gaussian",
        "    5 s  2 directions, gaussian  (best held-out R2 so far 0.625; about 35 s left)",
        "   10 s  3 directions, gaussian  (best held-out R2 so far 0.985; about 30 s left)",
        f"   20 s  {POLISHING}  (best held-out R2 so far 0.985; a few seconds left)",
    ]


def test_the_message_on_a_checkpoint_is_printed_once(clock):
    view, file = made_view(False, resume_message="Resuming from c")
    assert file.getvalue() == ""
    for stage in ("1 direction, gaussian", "2 directions, gaussian"):
        view(state(stage, 0.0))
    assert file.getvalue().splitlines()[0] == "Resuming from c"
    assert file.getvalue().count("Resuming") == 1


def test_a_terminal_shows_the_stage_the_score_and_the_time(clock):
    view, file = made_view(True, time_limit=60.0)
    with view.shown():
        clock.now += 10.0
        assert "at most 50 s left" in _text(view)
        view(state("2 directions, gaussian", 8.0, 1, 0.1))
        clock.now += 30.0
        view(state("3 directions, gaussian", 38.0, 2, 0.5, n_components=2, shape="diagonal"))
    text = _text(view)
    assert "stage             3 directions, gaussian" in text
    assert "best so far       a scale for each column, gaussian" in text
    assert "best held-out R2  0.985 (preliminary)" in text
    assert "time              40 s, about 20 s left" in text  # the estimate is longer, but the time limit is 60 s
    assert "best held-out R2" in file.getvalue()


def _text(view):
    console = Console(file=io.StringIO(), width=80)
    console.print(view._table())
    return console.file.getvalue()
