"""Test that the plots equal the reference pictures, and that the comparison notices missing or changed elements."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from support import reference_pictures as pictures


@pytest.fixture(autouse=True, scope="module")
def _style():
    """Use the default style, as the reference pictures do."""
    with plt.style.context("default"):
        yield


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_equals_its_reference(name, tmp_path):
    """Test that a plot equals its reference picture.

    After an intended change, run support/remake_reference_pictures.py and look at the new pictures.
    """
    path, expected = tmp_path / f"{name}.png", pictures.REFERENCE / f"{name}.png"
    figure = pictures.draw(name)
    pictures.save(figure, path)
    n = pictures.n_different(figure, name)
    assert n <= pictures.MOST_DIFFERENT, (
        f"{n} pixels of {path} differ from {expected}, which was drawn with the versions in constraints.txt"
    )
    assert expected.stat().st_size < 40_000


# Together, these pictures have all kinds of elements: curves, bands, points, bars, colour bars, legends, notes and two
# axes. The other pictures are tested only if thorough tests are selected.
QUICK = ("link_curve", "subspace_bars", "path_grid", "training")
QUICK_OR_THOROUGH = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in pictures.PICTURES
]


@pytest.mark.parametrize("name", QUICK_OR_THOROUGH)
def test_missing_part_is_noticed(name):
    """Test that the comparison fails if any line, point, bar, text, label or legend entry is hidden."""
    figure = pictures.draw(name)
    parts = pictures.parts(figure)
    unnoticed = []
    for part, artists in parts.items():
        plt.setp(artists, visible=False)
        if pictures.n_different(figure, name) <= pictures.MOST_DIFFERENT:
            unnoticed.append(part)
        plt.setp(artists, visible=True)
    assert unnoticed == []
    assert len(parts) > 5
    assert pictures.n_different(figure, name) <= pictures.MOST_DIFFERENT  # all elements are visible again


def test_every_reference_is_compared():
    assert {path.stem for path in pictures.REFERENCE.iterdir()} == set(pictures.PICTURES)


@pytest.mark.parametrize("name", QUICK_OR_THOROUGH)
def test_changed_numbers_are_noticed(name, monkeypatch):
    """Test that the comparison fails for a model whose numbers are up to 2% smaller."""

    def changed(make):
        def other(*args, **kwargs):
            model = make(*args, **kwargs)
            for one in (model, *getattr(model, "members_", [])):
                if hasattr(one, "map_"):
                    one.map_ = one.components_ * np.linspace(1.0, 0.98, one.n_features_in_)
            for table, column in (("history_", "objective"), ("path_", "score"), ("cv_results_", "mean_error")):
                if hasattr(model, table):
                    values = getattr(model, table)[column]
                    values[:] = values * np.linspace(1.0, 0.98, len(values))
            return model

        return other

    made = (
        "made_model",
        "made_classifier",
        "diagonal",
        "grid",
        "learned_grid",
        "searched",
        "kernels_searched",
        "ensemble",
    )
    for function in made:
        monkeypatch.setattr(pictures, function, changed(getattr(pictures, function)))
    assert pictures.n_different(pictures.draw(name), name) > pictures.MOST_DIFFERENT
