"""Test the progress display of hkrr fit, on a terminal and without one, and its estimate of the remaining time."""

import io
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import hkrr
from hkrr.cli import _live_view as _view
from hkrr.cli._live_view import View
from hkrr.cli._time_left import TimeLeft, format_time_left
from hkrr.estimators.search.progress import Phase, SearchState

# Stages of three recorded fits: the start of the stage in seconds, its phase, the number of directions that it tries,
# and the number of directions of the best candidate so far. The last entry is the end of the fit.
PLANTED = [
    (0.1, Phase.DIRECTIONS, 1, None),
    (2.8, Phase.DIRECTIONS, 2, 1),
    (6.2, Phase.DIRECTIONS, 3, 2),
    (10.1, Phase.DIRECTIONS, 4, 3),
    (14.2, Phase.DIRECTIONS, 5, 3),
    (19.4, Phase.POLISHING, None, 3),
    (21.6, Phase.AGAINST_PLAIN, None, 3),
    (25.0, Phase.FINAL_FIT, None, 3),
    (25.1, None, None, None),
]
TABLE = [
    (0.1, Phase.DIRECTIONS, 1, None),
    (1.0, Phase.DIRECTIONS, 2, 1),
    (2.0, Phase.DIRECTIONS, 3, 2),
    (5.0, Phase.DIRECTIONS, 4, 3),
    (7.0, Phase.DIRECTIONS, 5, 4),
    (10.0, Phase.DIRECTIONS, 6, 4),
    (13.0, Phase.KERNELS_OF_DIRECTIONS, None, 4),
    (13.3, Phase.KERNELS_OF_DIRECTIONS, None, 4),
    (14.0, Phase.KERNELS_OF_PLAIN, None, 4),
    (15.0, Phase.KERNELS_OF_SCALES, None, 8),
    (18.0, Phase.KERNELS_OF_SCALES, None, 8),
    (19.0, Phase.KERNELS_OF_DIRECTIONS, None, 8),
    (21.0, Phase.FINALISTS, None, 8),
    (25.0, Phase.FINALISTS, None, 8),
    (26.0, Phase.FINAL_FIT, None, 8),
    (26.5, None, None, None),
]
DOUBTFUL = [
    (0.1, Phase.DIRECTIONS, 1, None),
    (3.3, Phase.DIRECTIONS, 2, 1),
    (8.9, Phase.DIRECTIONS, 3, 2),
    (15.2, Phase.DIRECTIONS, 4, 3),
    (20.7, Phase.DIRECTIONS, 5, 3),
    (24.2, Phase.DIRECTIONS, 6, 4),
    (28.9, Phase.POLISHING, None, 4),
    (31.7, Phase.AGAINST_PLAIN, None, 4),
    (34.0, Phase.HELD_OUT_CHECK, None, 4),
    (54.0, Phase.FINAL_FIT, None, 4),
    (54.1, None, None, None),
]


def start_of(phase, tried, best, seconds):
    """Return the state of a search at the start of a stage."""
    return SearchState("a stage", seconds, n_components=best, phase=phase, n_components_tried=tried)


def displayed(stages, any_kernel):
    """Return the times at which a terminal is updated during a recorded fit, and the remaining seconds shown then."""
    time_left, end = TimeLeft(any_kernel), stages[-1][0]
    coming, times = list(stages[:-1]), np.arange(0.25, end, 0.25)
    values = []
    for now in times:
        while coming and coming[0][0] <= now:
            at, *stage = coming.pop(0)
            time_left.start_stage(start_of(*stage, at))
        values.append(time_left.smoothed(now))
    return times, values


@pytest.mark.parametrize("speed", [1.0, 10.0, 600.0])
@pytest.mark.parametrize(("stages", "any_kernel"), [(PLANTED, False), (DOUBTFUL, False), (TABLE, True)])
def test_the_time_left_is_roughly_right_and_never_jumps(stages, any_kernel, speed):
    stages = [(speed * at, *stage) for at, *stage in stages]
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
    time_left.start_stage(start_of(Phase.DIRECTIONS, 2, 1, 2.0))
    time_left.start_stage(start_of(None, None, 1, 3.0))
    found = [time_left.smoothed(now) for now in range(3, 3000)]
    assert min(found) > 0
    assert found[-1] > found[100]  # the estimate grows while a stage takes longer than expected


def test_stages_from_a_checkpoint_are_not_timed():
    """Test that stages read from a checkpoint are ignored. The first four of five stages take no time."""
    time_left = TimeLeft(False, resumed=True)
    for k, (_, *stage) in enumerate(PLANTED[:5]):
        time_left.start_stage(start_of(*stage, 0.1 * k))
        assert time_left.smoothed(0.1 * k) is None
    time_left.start_stage(start_of(*PLANTED[5][1:], 5.6))  # the fifth stage took 5.2 seconds, and 5.7 are left
    assert 3.0 < time_left.smoothed(5.6) < 12.0


def test_every_stage_of_a_search_is_known():
    X = np.random.default_rng(0).standard_normal((40, 2))
    for kernel in ("gaussian", "auto"):
        states, time_left = [], TimeLeft(kernel == "auto")
        record = lambda state, states=states: states.append(state)  # noqa: E731
        model = hkrr.HyperKernelRidgeCV(kernel=kernel, n_init=1, random_state=0, callbacks=[record])
        model.fit(X, np.sin(X[:, 0]))
        ends = [time_left._shares(replace(state, n_components=1))[1] for state in states]
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


def state(tried, seconds, n_found=0, error=0.0, **more):
    """Return the state of a search that tries a number of directions with the Gaussian kernel.

    Its best candidate predicts the first column plus a constant error.
    """
    stage = f"{tried} direction{'s' if tried != 1 else ''}, gaussian"
    current = {"phase": Phase.DIRECTIONS, "n_components_tried": tried}
    best = {"n_components": 1, "kernel": "gaussian", "shape": "full", "score": 0.0} if n_found else {}
    return SearchState(
        stage, seconds, n_found=n_found, _predict=lambda X: X[:, 0] + error, **{**current, **best, **more}
    )


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
        for seconds, tried, n_found, error in ((0.0, 1, 0, 0.0), (4.0, 2, 1, 0.5), (9.0, 3, 2, 0.1), (9.0, 3, 2, 0.1)):
            clock.now = 101.0 + seconds
            view(state(tried, seconds, n_found, error))
        clock.now = 120.0
        last = state(None, 19.0, 3, 0.2)  # this candidate is worse, so the displayed R2 does not change
        view(replace(last, stage="refining the best directions on more rows", phase=Phase.POLISHING))
    assert file.getvalue().splitlines() == [
        "    0 s  baselines",
        "    1 s  1 direction, gaussian",
        "    5 s  2 directions, gaussian  (best held-out R2 so far 0.625; about 35 s left)",
        "   10 s  3 directions, gaussian  (best held-out R2 so far 0.985; about 30 s left)",
        "   20 s  refining the best directions on more rows  (best held-out R2 so far 0.985; a few seconds left)",
    ]


def test_the_message_on_a_checkpoint_is_printed_once(clock):
    view, file = made_view(False, resume_message="Resuming from c")
    assert file.getvalue() == ""
    for tried in (1, 2):
        view(state(tried, 0.0))
    assert file.getvalue().splitlines()[0] == "Resuming from c"
    assert file.getvalue().count("Resuming") == 1


def test_a_terminal_shows_the_stage_the_score_and_the_time(clock):
    view, file = made_view(True, time_limit=60.0)
    with view.shown():
        clock.now += 10.0
        assert "at most 50 s left" in _text(view)
        view(state(2, 8.0, 1, 0.1))
        clock.now += 30.0
        view(state(3, 38.0, 2, 0.5, n_components=2, shape="diagonal"))
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
