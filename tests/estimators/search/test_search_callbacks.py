"""Tests of the callbacks of a search: their argument, stopping the search, and no effect on the result otherwise."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import hkrr
from hkrr.datasets import make_mim_sines
from hkrr.estimators.fitted.conformal import estimate_uncertainty
from hkrr.estimators.search.progress import Phase, SearchState

DATA = make_mim_sines(200, 4, 2, random_state=0)
X, Y, X_NEW = DATA.X[:100], DATA.y[:100], DATA.X[100:]
SETTINGS = {
    "directions": {"n_components": [1, 2], "n_init": 1},
    "against plain": {"n_init": 1},
    "kernels": {"kernel": "auto", "n_components": [1, 2], "n_init": 1},
}
START, CUT = "4 directions at the start, gaussian", "keeping the directions that matter, gaussian"


def _model(which, **options):
    return hkrr.HyperKernelRidgeCV(random_state=0, **SETTINGS[which], **options)


@pytest.fixture(scope="module", params=SETTINGS)
def observed(request):
    """Return a model with callbacks, a model without callbacks, and the states and predictions of the callbacks."""
    states, predicted = [], []

    def look(state):
        states.append(state)
        if state.n_components is not None:
            predicted.append(state.predict(X_NEW))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hkrr.EdgeWarning)  # the larger of [1, 2] is selected
        found = _model(request.param, callbacks=[look]).fit(X, Y)
        plain = _model(request.param).fit(X, Y)
    return found, plain, states, predicted


def test_callbacks_do_not_change_the_model(observed):
    found, plain, _, _ = observed
    assert_array_equal(found.predict(X_NEW), plain.predict(X_NEW))
    assert found.path_["start"] == plain.path_["start"]


def test_states(observed):
    found, _, states, predicted = observed
    assert (states[0].n_components, states[0].n_found) == (None, 0)
    with pytest.raises(ValueError, match="no candidate was found yet"):
        states[0].predict(X_NEW)
    assert states[0].stage == START
    assert CUT in [state.stage for state in states]
    assert states[-1].stage == "final fit on all rows"
    assert [state.seconds for state in states] == sorted(state.seconds for state in states)
    assert [state.n_found for state in states] == sorted(state.n_found for state in states)
    last = states[-1]
    assert (last.n_components, last.shape) == (found.n_components_, found.map_shape_)
    assert {type(shape) for shape in (last.shape, found.map_shape_, *found.path_["shape"])} == {str}
    assert last.kernel in found.path_["kernel"]
    assert np.isfinite(last.score)
    # The predictions of the last state are close to the predictions of the final model. Both use all rows as centers.
    assert np.mean((predicted[-1] - found.predict(X_NEW)) ** 2) < 0.05 * np.var(found.predict(X_NEW))
    assert np.mean((predicted[0] - DATA.y[100:]) ** 2) > np.mean((predicted[-1] - DATA.y[100:]) ** 2)


def test_the_phase_agrees_with_the_description(observed):
    descriptions = {
        Phase.STARTS: r"(\d+ directions at the start|one direction), gaussian",
        Phase.CUT: r"keeping the directions that matter, gaussian",
        Phase.WIDENING: r"directions in addition to the \d+ found, gaussian",
        Phase.POLISHING: r"refining the best directions",
        Phase.AGAINST_PLAIN: r"comparison with plain kernel ridge on all columns",
        Phase.KERNELS: r"kernels and maps on \d+ rows",
        Phase.FINALISTS: r"kernels and maps on [\d,]+ rows",
        Phase.WEIGHTS: r"weights of the ensemble",
        Phase.HELD_OUT_CHECK: r"checking the directions on held-out rows",
        Phase.FINAL_FIT: r"final fit on all rows",
    }
    assert set(descriptions) == set(Phase)
    for state in observed[2]:
        assert re.fullmatch(descriptions[state.phase], state.stage)


@pytest.mark.parametrize("which", SETTINGS)
def test_a_callback_stops_the_search(which):
    stages = []

    def stop(state):
        stages.append(state.stage)
        return len(stages) >= 1  # always True: the search stops when it has found its first candidate

    model = _model(which, callbacks=[stop]).fit(X, Y)
    # The maps with four directions are candidates only if the number of directions is not given.
    n_components, expected = (4, [START, START]) if which == "against plain" else (1, [START, CUT, CUT])
    assert (model.result_.reason, model.n_components_) == ("callback", n_components)
    assert model.path_["n_components"] == [n_components]
    assert stages == [*expected, "final fit on all rows"]
    assert np.all(np.isfinite(model.predict(X_NEW)))
    assert model.diagnostics_.stopped == "callback"


def test_only_true_stops_the_search():
    one = _model("directions", callbacks=[lambda state: 1, lambda state: "yes", lambda state: None])
    with pytest.warns(hkrr.EdgeWarning):
        assert one.fit(X, Y).n_components_ == 2


def test_arguments():
    for wrong in (print, [3]):
        with pytest.raises(ValueError, match="callbacks must be a list of functions"):
            _model("directions", callbacks=wrong).fit(X, Y)
    with pytest.raises(ValueError, match="callbacks cannot be combined with cv"):
        hkrr.HyperKernelRidgeCV(cv=2, callbacks=[print]).fit(X, Y)


def test_callbacks_are_not_stored_in_checkpoints_and_model_files(tmp_path):
    """Test that a fit can be resumed without its callbacks, and that model files do not contain callbacks.

    A fit that is made inside a callback is not recorded in the checkpoint.
    """

    def other_fit(state):
        if state.n_found == 1:
            state.predict(X_NEW)
            hkrr.HyperKernelRidge(1, n_init=1, max_iter=3, random_state=1).fit(X, Y)
        if state.phase is Phase.CUT:
            raise RuntimeError("a mistake in a callback")

    path = tmp_path / "fit.checkpoint"
    with pytest.raises(RuntimeError, match="a mistake"):
        _model("against plain", callbacks=[other_fit], checkpoint=path, checkpoint_every=0).fit(X, Y)
    model = _model("against plain", checkpoint=path).fit(X, Y)
    assert_array_equal(model.predict(X_NEW), _model("against plain").fit(X, Y).predict(X_NEW))
    model.set_params(callbacks=[print])
    hkrr.save(model, tmp_path / "model")
    assert hkrr.load(tmp_path / "model").callbacks is None
    assert clone(model).callbacks == [print]


def test_predictions_during_the_search_do_not_compute_uncertainty(monkeypatch):
    asked, looks = [], []

    def counted(*arguments):
        asked.append(1)
        return estimate_uncertainty(*arguments)

    def look(state):
        if state.n_components is not None:
            looks.append(state.predict(X_NEW))

    monkeypatch.setattr("hkrr.estimators.search.final_fit.estimate_uncertainty", counted)
    with pytest.warns(hkrr.EdgeWarning):
        model = _model("directions", callbacks=[look]).fit(X, Y)
    assert len(looks) > 1
    assert len(asked) == 1
    assert model.interval_scores_.shape == (100,)


def test_states_compare_and_show():
    state = SearchState("a stage", 1.0)
    assert state == SearchState("a stage", 1.0)
    assert "stage='a stage'" in repr(state)
