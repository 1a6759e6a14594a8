"""What a search tells its callbacks, that it is the same search with them, and that they can end it."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import hkrr
from hkrr.conformal import uncertainty_of
from hkrr.datasets import make_mim_sines
from hkrr.progress import SearchState

DATA = make_mim_sines(200, 4, 2, random_state=0)
X, Y, X_NEW = DATA.X[:100], DATA.y[:100], DATA.X[100:]
SETTINGS = {
    "directions": {"n_components": [1, 2], "n_init": 1},
    "against plain": {"n_init": 1},
    "kernels": {"kernel": "auto", "n_components": [1, 2], "n_init": 1},
}


def _model(which, **options):
    return hkrr.HyperKernelRidgeCV(random_state=0, **SETTINGS[which], **options)


@pytest.fixture(scope="module", params=SETTINGS)
def told(request):
    """Return a model, one fitted without callbacks, and what the callbacks of the first were told."""
    states, predicted = [], []

    def look(state):
        states.append(state)
        if state.n_components is not None:
            predicted.append(state.predict(X_NEW))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hkrr.EdgeWarning)  # of [1, 2] the last is chosen
        found = _model(request.param, callbacks=[look]).fit(X, Y)
        plain = _model(request.param).fit(X, Y)
    return found, plain, states, predicted


def test_callbacks_change_nothing(told):
    found, plain, _, _ = told
    assert_array_equal(found.predict(X_NEW), plain.predict(X_NEW))
    assert found.path_["start"] == plain.path_["start"]


def test_what_is_told(told):
    found, _, states, predicted = told
    assert (states[0].n_components, states[0].n_found) == (None, 0)
    with pytest.raises(ValueError, match="nothing was found yet"):
        states[0].predict(X_NEW)
    assert states[0].stage == "1 direction, gaussian"
    assert "2 directions, gaussian" in [state.stage for state in states]
    assert states[-1].stage == "the last fit, on all rows"
    assert [state.seconds for state in states] == sorted(state.seconds for state in states)
    assert [state.n_found for state in states] == sorted(state.n_found for state in states)
    last = states[-1]
    assert (last.n_components, last.shape) == (found.n_components_, found.map_shape_)
    assert last.kernel in found.path_["kernel"]
    assert np.isfinite(last.score)
    # The last one known before the last fit is next to it: that has all rows for centers too.
    assert np.mean((predicted[-1] - found.predict(X_NEW)) ** 2) < 0.05 * np.var(found.predict(X_NEW))
    assert np.mean((predicted[0] - DATA.y[100:]) ** 2) > np.mean((predicted[-1] - DATA.y[100:]) ** 2)


@pytest.mark.parametrize("which", SETTINGS)
def test_a_callback_ends_the_search(which):
    stages = []

    def enough(state):
        stages.append(state.stage)
        return len(stages) >= 1  # before anything is found: then at the first that is

    model = _model(which, callbacks=[enough]).fit(X, Y)
    assert (model.result_.reason, model.n_components_) == ("callback", 1)
    assert len(model.path_["start"]) == 1
    assert stages == ["1 direction, gaussian", "1 direction, gaussian", "the last fit, on all rows"]
    assert np.all(np.isfinite(model.predict(X_NEW)))
    assert model.diagnostics_.stopped == "callback"


def test_only_true_ends_it():
    one = _model("directions", callbacks=[lambda state: 1, lambda state: "yes", lambda state: None])
    with pytest.warns(hkrr.EdgeWarning):
        assert one.fit(X, Y).n_components_ == 2


def test_arguments():
    for wrong in (print, [3]):
        with pytest.raises(ValueError, match="callbacks must be a list of functions"):
            _model("directions", callbacks=wrong).fit(X, Y)
    with pytest.raises(ValueError, match="give one of callbacks and cv"):
        hkrr.HyperKernelRidgeCV(cv=2, callbacks=[print]).fit(X, Y)


def test_callbacks_are_no_part_of_a_checkpoint_or_a_file(tmp_path):
    """A fit with a checkpoint goes on without its callbacks, and the fit of one of them is not noted there."""

    def other_fit(state):
        if state.n_found == 1:
            state.predict(X_NEW)
            hkrr.HyperKernelRidge(1, n_init=1, max_iter=3, random_state=1).fit(X, Y)
        if state.stage.startswith("2"):
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


def test_a_look_at_the_search_does_not_ask_how_sure_the_model_is(monkeypatch):
    asked, looks = [], []

    def counted(*arguments):
        asked.append(1)
        return uncertainty_of(*arguments)

    def look(state):
        if state.n_components is not None:
            looks.append(state.predict(X_NEW))

    monkeypatch.setattr("hkrr.last_fit.uncertainty_of", counted)
    with pytest.warns(hkrr.EdgeWarning):
        model = _model("directions", callbacks=[look]).fit(X, Y)
    assert len(looks) > 1
    assert len(asked) == 1
    assert model.interval_scores_.shape == (100,)


def test_states_compare_and_show():
    state = SearchState("a stage", 1.0)
    assert state == SearchState("a stage", 1.0)
    assert "stage='a stage'" in repr(state)
