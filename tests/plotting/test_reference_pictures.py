"""Pictures: each as it was when somebody last looked at it, and nothing in it goes unnoticed."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import pictures


@pytest.fixture(autouse=True, scope="module")
def _style():
    """Matplotlib's own, as of the baselines."""
    with plt.style.context("default"):
        yield


@pytest.fixture(scope="module", params=pictures.PICTURES)
def drawn(request):
    figure = pictures.draw(request.param)
    yield request.param, figure
    plt.close(figure)


def test_pictures(drawn, tmp_path):
    """After a change that is meant: python tests/remake_baselines.py, and look."""
    name, figure = drawn
    path, expected = tmp_path / f"{name}.png", pictures.BASELINE / f"{name}.png"
    pictures.save(figure, path)
    n = pictures.n_different(figure, name)
    assert n <= pictures.ROOM, (
        f"{n} pixels of {path} differ from {expected}, drawn with the versions of constraints.txt"
    )
    assert expected.stat().st_size < 40_000


def test_every_part_is_noticed(drawn):
    """A picture that lacks any one of its lines, points, bars, texts, labels or entries of the legend."""
    name, figure = drawn
    parts = pictures.parts(figure)
    unnoticed = []
    for part, artists in parts.items():
        plt.setp(artists, visible=False)
        if pictures.n_different(figure, name) <= pictures.ROOM:
            unnoticed.append(part)
        plt.setp(artists, visible=True)
    assert unnoticed == []
    assert len(parts) > 5
    assert pictures.n_different(figure, name) <= pictures.ROOM  # with all of them there again


def test_every_baseline_is_compared():
    assert {path.stem for path in pictures.BASELINE.iterdir()} == set(pictures.PICTURES)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_another_picture_is_noticed(name, monkeypatch):
    """The same picture of a model whose numbers are up to two in a hundred less."""

    def changed(make):
        def other(*args, **kwargs):
            model = make(*args, **kwargs)
            model.components_ = model.components_ * np.linspace(1.0, 0.98, model.n_features_in_)
            for table, column in (("history_", "objective"), ("path_", "score"), ("cv_results_", "mean_error")):
                if hasattr(model, table):
                    values = getattr(model, table)[column]
                    values[:] = values * np.linspace(1.0, 0.98, len(values))
            return model

        return other

    made = ("made_model", "made_classifier", "diagonal", "grid", "learned_grid", "searched", "kernels_searched")
    for function in made:
        monkeypatch.setattr(pictures, function, changed(getattr(pictures, function)))
    assert pictures.n_different(pictures.draw(name), name) > pictures.ROOM
    plt.close("all")
