"""Test the progress display of hkrr fit, on a terminal and without one, and its estimate of the remaining time."""

import io
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import hkrr
from hkrr.cli import _live_view
from hkrr.cli._live_view import View
from hkrr.cli._time_left import TimeLeft, format_time_left
from hkrr.estimators.search.progress import Phase, SearchState
from hkrr.tables.task import REGRESSION, Task
from support.stopped_fits import breaking

# The four lists below are the stages of four recorded fits. Each entry has the start of a stage in seconds, and its
# phase. The last entry is the end of the fit.
#
# A fit to data from a planted model.
PLANTED = [
    (0.0, Phase.STARTS),
    (1.7, Phase.CUT),
    (2.6, Phase.POLISHING),
    (4.3, Phase.AGAINST_PLAIN),
    (4.5, Phase.FINAL_FIT),
    (4.6, None),
]
# A fit to a data table. The search compares several kernels.
TABLE = [
    (0.1, Phase.STARTS),
    (1.2, Phase.CUT),
    (2.1, Phase.KERNELS),
    (10.8, Phase.FINALISTS),
    (18.0, Phase.WEIGHTS),
    (18.5, Phase.FINAL_FIT),
    (19.4, None),
]
# A fit to a data table with outliers. The search is repeated with heavy-tailed noise.
OUTLIERS = [
    (0.2, Phase.STARTS),
    (2.4, Phase.CUT),
    (5.0, Phase.KERNELS),
    (19.6, Phase.STARTS),
    (21.6, Phase.CUT),
    (25.6, Phase.KERNELS),
    (47.5, Phase.WEIGHTS),
    (47.6, Phase.FINAL_FIT),
    (48.0, None),
]
# A fit whose map may not generalize, so that the map is checked on held-out rows.
DOUBTFUL = [
    (0.0, Phase.STARTS),
    (3.1, Phase.CUT),
    (5.9, Phase.WIDENING),
    (7.6, Phase.CUT),
    (9.1, Phase.POLISHING),
    (11.4, Phase.AGAINST_PLAIN),
    (15.3, Phase.HELD_OUT_CHECK),
    (28.0, Phase.FINAL_FIT),
    (28.2, None),
]


def start_of(phase, seconds):
    """Return the state of a search at the start of a stage."""
    return SearchState("a stage", seconds, phase=phase)


def displayed(stages, any_kernel):
    """Return the times at which a terminal is updated during a recorded fit, and the remaining seconds shown then.

    The parameter `any_kernel` says whether the search compares several kernels.
    """
    time_left, end = TimeLeft(any_kernel), stages[-1][0]
    coming, times = list(stages[:-1]), np.arange(0.25, end, 0.25)
    values = []
    for now in times:
        while coming and coming[0][0] <= now:
            at, phase = coming.pop(0)
            time_left.start_stage(start_of(phase, at))
        values.append(time_left.smoothed(now))
    return times, values


@pytest.mark.parametrize("speed", [1.0, 10.0, 600.0])
@pytest.mark.parametrize(
    ("stages", "any_kernel"), [(PLANTED, False), (DOUBTFUL, False), (TABLE, True), (OUTLIERS, True)]
)
def test_the_time_left_is_roughly_right_and_never_jumps(stages, any_kernel, speed):
    stages = [(speed * at, phase) for at, phase in stages]
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
    # A held-out check and a second search take about half of the total time, and cannot be foreseen.
    unforeseen = [at for at, phase in stages[1:] if phase in (Phase.HELD_OUT_CHECK, Phase.STARTS)]
    late = times > max([total / 3, *unforeseen])
    assert np.all((estimate[late] > 0.5) & (estimate[late] < 2.0))
    # The bound of 1.5 is not closer to 1, because the fractions of the time that the stages take differ between tables.
    assert np.all(estimate[times > 2 * total / 3] < 1.5)


def test_a_very_long_stage_and_an_unknown_stage():
    time_left = TimeLeft(False)
    time_left.start_stage(start_of(Phase.CUT, 2.0))
    time_left.start_stage(start_of(None, 3.0))
    found = [time_left.smoothed(now) for now in range(3, 3000)]
    assert min(found) > 0
    assert found[-1] > found[100]  # the estimate grows while a stage takes longer than expected


def test_stages_from_a_checkpoint_are_not_timed():
    """Test that stages which are read from a checkpoint, and therefore take almost no time, are not timed.

    No remaining time is shown during the first three stages, of which the first two are read from the checkpoint.
    """
    time_left = TimeLeft(True, resumed=True)
    for k, (_, phase) in enumerate(TABLE[:3]):
        time_left.start_stage(start_of(phase, 0.1 * k))
        assert time_left.smoothed(0.1 * k) is None
    time_left.start_stage(start_of(TABLE[3][1], 8.9))  # the third stage took 8.7 seconds, and 8.6 are left
    assert 5.0 < time_left.smoothed(8.9) < 12.0


def test_every_stage_of_a_search_is_known():
    X = np.random.default_rng(0).standard_normal((40, 2))
    for estimator in (hkrr.HyperKernelRidgeCV, hkrr.HyperKernelEnsemble):
        states, time_left = [], TimeLeft(estimator is hkrr.HyperKernelEnsemble)
        record = lambda state, states=states: states.append(state)  # noqa: E731
        estimator(n_init=1, random_state=0, callbacks=[record]).fit(X, np.sin(X[:, 0]))
        ends = [time_left._shares(state)[1] for state in states]
        assert min(ends) > 0
        assert ends[-1] == max(ends)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "a few seconds left"),
        (3.0, "a few seconds left"),
        (12.0, "about 10 s left"),
        (22.0, "about 20 s left"),
        (59.0, "about 60 s left"),
        (94.0, "about 90 s left"),
        (180.0, "about 3 min left"),
        (1000.0, "about 17 min left"),
        (7200.0, "about 2.0 h left"),
    ],
)
def test_format_time_left(seconds, text):
    assert format_time_left(seconds) == text


STAGES = {
    Phase.STARTS: "8 directions at the start, gaussian",
    Phase.CUT: "keeping the directions that matter, gaussian",
    Phase.WIDENING: "directions in addition to the 1 found, gaussian",
    Phase.POLISHING: "refining the best directions",
}


def state(phase, seconds, n_found=0, error=0.0, **more):
    """Return the state of a search with `n_found` candidates.

    The best candidate, if there is one, predicts the first column plus the constant `error`.
    """
    best = {"n_components": 1, "kernel": "gaussian", "shape": "full", "score": 0.0} if n_found else {}
    predict = lambda X: X[:, 0] + error  # noqa: E731
    options = {"_predict": predict, **best, **more}
    return SearchState(STAGES[phase], seconds, n_found=n_found, phase=phase, **options)


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of the view by a clock that the test sets, and return this clock."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(_live_view, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def made_view(terminal, **options):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    split = SimpleNamespace(test=frame, y_test=np.array([0.0, 1.0, 2.0]), task=REGRESSION)
    model = SimpleNamespace(transform=lambda frame: frame.to_numpy())
    return View(console, model, split, **{"any_kernel": False, **options}), console.file


def test_without_a_terminal_each_stage_is_a_line(clock):
    view, file = made_view(False)
    view.start_stage("baselines")
    with view.shown():
        for seconds, phase, n_found, error in (
            (0.0, Phase.STARTS, 0, 0.0),
            (8.0, Phase.CUT, 1, 0.5),
            (18.0, Phase.WIDENING, 2, 0.1),
            (18.0, Phase.WIDENING, 2, 0.1),
            (28.0, Phase.POLISHING, 3, 0.2),  # this candidate is worse, so the displayed R2 does not change
        ):
            clock.now = 101.0 + seconds
            view(state(phase, seconds, n_found, error))
    assert file.getvalue().splitlines() == [
        "    0 s  baselines",
        "    1 s  8 directions at the start, gaussian",
        "    9 s  keeping the directions that matter, gaussian  (best held-out R2 so far 0.625; about 10 s left)",
        "   19 s  directions in addition to the 1 found, gaussian  (best held-out R2 so far 0.985; about 20 s left)",
        "   29 s  refining the best directions  (best held-out R2 so far 0.985; about 25 s left)",
    ]


def test_classes_have_an_accuracy(clock):
    """Test that the accuracy is displayed for classes. A candidate predicts one column of scores for each class."""
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0]})
    labels = {"y_train": np.array(["b", "a", "c", "a"]), "y_test": np.array(["a", "b", "c", "d"])}
    split = SimpleNamespace(test=frame, task=Task("classification"), **labels)
    view = View(console, SimpleNamespace(transform=lambda frame: frame.to_numpy()), split, any_kernel=True)
    for seconds, n_found, columns in ((0.0, 1, [0, 0, 2, 2]), (30.0, 2, [0, 1, 2, 2]), (60.0, 3, [1, 1, 1, 1])):
        clock.now = 101.0 + seconds
        predict = lambda X, columns=columns: np.eye(3)[columns]  # noqa: E731
        view(state(list(STAGES)[n_found], seconds, n_found, _predict=predict))
    scores = re.findall(r"best held-out accuracy so far (\d\.\d{3})", console.file.getvalue())
    assert scores == ["0.500", "0.750", "0.750"]  # the class d is not in the training rows
    assert "best held-out accuracy  0.750 (preliminary)" in _text(view)


@pytest.mark.parametrize("error", [FloatingPointError("no fit"), np.linalg.LinAlgError("no fit")])
def test_a_candidate_that_cannot_be_fitted_has_no_score(clock, error):
    """Test that the search goes on if the fit of a candidate fails, and that the score before is still displayed."""
    view, file = made_view(False)
    view(state(Phase.STARTS, 0.0, 1, 0.1))
    clock.now += 30.0
    view(state(Phase.CUT, 30.0, 2, _predict=breaking(None, error)))
    assert file.getvalue().count("best held-out R2 so far 0.985") == 2


def test_the_message_on_a_checkpoint_is_printed_once(clock):
    view, file = made_view(False, resume_message="Resuming from c")
    assert file.getvalue() == ""
    for phase in (Phase.STARTS, Phase.CUT):
        view(state(phase, 0.0))
    assert file.getvalue().splitlines()[0] == "Resuming from c"
    assert file.getvalue().count("Resuming") == 1


def test_a_terminal_shows_the_stage_the_score_and_the_time(clock):
    view, file = made_view(True, time_limit=60.0)
    with view.shown():
        clock.now += 10.0
        assert "at most 50 s left" in _text(view)
        view(state(Phase.CUT, 8.0, 1, 0.1))
        clock.now += 30.0
        view(state(Phase.WIDENING, 38.0, 2, 0.5, n_components=2, shape="diagonal"))
    text = _text(view)
    assert "stage             directions in addition to the 1 found, gaussian" in text
    assert "best so far       a scale for each column, gaussian" in text
    assert "best held-out R2  0.985 (preliminary)" in text
    assert "time              40 s, about 20 s left" in text  # the estimate is longer, but the time limit is 60 s
    assert "best held-out R2" in file.getvalue()


def _text(view):
    console = Console(file=io.StringIO(), width=80)
    console.print(view._table())
    return console.file.getvalue()
