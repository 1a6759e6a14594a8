"""Tests of the plots of a classifier. The appearance of its link function is tested in test_reference_pictures."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr.estimators.classification.class_link import ClassLink
from hkrr.plotting import (
    ImportanceDisplay,
    LinkDisplay,
    PathDisplay,
    PredictionErrorDisplay,
    SubspaceDisplay,
    TrainingDisplay,
)
from hkrr.plotting._style import CATEGORIES
from support import reference_pictures as pictures
from support.handmade_models import made_classifier, made_labels


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.mark.parametrize("K", [2, 3])
def test_curves_are_probabilities(K):
    model = made_classifier(1, 3, K)
    X, y = made_labels(model)
    display = LinkDisplay.from_estimator(model, X, y)
    b = model.components_[0]
    p = model.predict_proba(display.grid[0][:, None] * b / (b @ b))
    assert_allclose(display.values, p, rtol=1e-9)
    shown = [1] if K == 2 else range(K)
    assert [line.get_label() for line in display.line_] == [f"p({'abc'[k]})" for k in shown]
    for k, line in zip(shown, display.line_, strict=True):
        assert_allclose(line.get_ydata(), p[:, k], rtol=1e-9)
        assert line.get_color() == CATEGORIES[k]
    # The rows of each class are in a strip outside [0, 1], where there are no curves.
    for label, points in zip(model.classes_, display.scatter_, strict=True):
        at = points.get_offsets()
        assert_allclose(np.sort(at[:, 0]), np.sort(model.transform(X[y == label])[:, 0]))
        assert np.all((at[:, 1] < 0) | (at[:, 1] > 1))
    assert display.ax_.get_legend() is not None


@pytest.mark.parametrize("K", [2, 3, 8])
def test_regions_are_probabilities(K):
    model = made_classifier(2, 4, K, names=pictures.NAMES)
    X, y = made_labels(model)
    display = LinkDisplay.from_estimator(model, X, y)
    i, j = 7, 31
    x = np.linalg.lstsq(model.components_, [display.grid[0][i], display.grid[1][j]], rcond=None)[0]
    assert_allclose(display.values[i, j], model.predict_proba(type(X)([x], columns=X.columns))[0], rtol=1e-9)
    assert [len(points.get_offsets()) for points in display.scatter_] == [np.sum(y == each) for each in model.classes_]
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == list(model.classes_)
    looks = {
        (points.get_facecolor()[0].tobytes(), points.get_paths()[0].vertices.tobytes()) for points in display.scatter_
    }
    assert len(looks) == K


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_without_labels_and_with_rows_of_one_class(n_components):
    model = made_classifier(n_components, 4, 2)
    X, y = made_labels(model)
    assert LinkDisplay.from_estimator(model, X).y is None
    display = LinkDisplay.from_estimator(model, X[y == "b"], pd.Series(y[y == "b"]))
    assert_array_equal(display.y, 1)
    model.members_[0].dual_coef_ = np.zeros_like(model.members_[0].dual_coef_)  # constant probabilities
    LinkDisplay.from_estimator(model, X, y).figure_.canvas.draw()


def test_column_with_a_negative_coefficient_is_not_mirrored():
    model = made_classifier(2, 2, 2, names=["age", "height"])
    model.members_[0].map_ = np.diag([-0.5, 1.0])
    X, y = made_labels(model)
    display = LinkDisplay.from_estimator(model, X, y)
    assert_allclose(display.points, X)
    image, places = display.surface_.get_array(), display.surface_.get_extent()
    side = np.sort(display.grid[0])
    assert places[:2] == [side[0], side[-1]]
    # The amount of orange follows the probability of the second class.
    orange = image[30, :, 0] - image[30, :, 2]
    p = model.predict_proba(type(X)({"age": side, "height": np.full(60, np.sort(display.grid[1])[30])}))[:, 1]
    assert np.corrcoef(orange, p)[0, 1] > 0.8


@pytest.mark.parametrize("n_members", [1, 2])
def test_other_displays_use_the_map_of_the_first_member(n_members):
    model = made_classifier(2, 4, 3, n_members=n_members, names=pictures.NAMES)
    model.scores_.path_ = pictures.race()
    importance = ImportanceDisplay.from_estimator(model)
    assert [bar.get_width() for bar in importance.bars_] == sorted(model.feature_importances_, reverse=True)
    subspace = SubspaceDisplay.from_estimator(model, B_true=np.eye(2, 4))
    assert len(subspace.bars_) == 2
    assert subspace.said == ("" if n_members == 1 else "member 1 of 2, weight 0.75")
    assert subspace.names == pictures.NAMES
    assert TrainingDisplay.from_estimator(model).history is model.members_[0].result_.history
    path = PathDisplay.from_estimator(model)
    assert path.table is model.path_
    expected = {("gaussian", "full", 2): 1.0} if n_members == 1 else {("gaussian", "full", 2): 0.75}
    assert path.chosen == (expected if n_members == 1 else {**expected, ("anova", "diagonal", 4): 0.5})
    assert not path.given


def test_the_search_of_one_kernel_is_drawn_over_the_directions():
    model = made_classifier(2, 4, 3)
    found = pictures.searched()
    model.scores_.path_, model.members_[0].spectrum_ = found.path_, found.spectrum_
    assert len(PathDisplay.from_estimator(model).bars_) == 4


@pytest.mark.parametrize("refined", [True, False])
def test_the_link_of_the_first_of_two_members(refined):
    """Test that the probabilities are those of the first member, with the weights of both members."""
    model = made_classifier(2, 4, 3, n_members=2, refined=refined, names=pictures.NAMES)
    X, y = made_labels(model)
    display = LinkDisplay.from_estimator(model, X, y)
    assert display.said == "member 1 of 2, weight 0.75"
    i, j = 7, 31
    x = np.linalg.lstsq(model.components_, [display.grid[0][i], display.grid[1][j]], rcond=None)[0]
    scores = model.members_[0].predict(x[None])
    expected = ClassLink(np.array([1.25]), np.zeros(3), of_logarithms=not refined).probabilities([scores])
    assert_allclose(display.values[i, j], expected[0], rtol=1e-9)
    assert len(model.members_) == 2


def test_bad_arguments():
    model = made_classifier(2, 4)
    X, y = made_labels(model)
    with pytest.raises(TypeError, match=r"sklearn\.metrics\.ConfusionMatrixDisplay or sklearn\.calibration"):
        PredictionErrorDisplay.from_estimator(model, X, y)
    for options in ({"kind": "surface"}, {"target": 1}, {"coverage": 0.9}):
        with pytest.raises(ValueError, match="target, coverage and kind apply only to regressors"):
            LinkDisplay.from_estimator(model, X, y, **options)
    with pytest.raises(ValueError, match="y has the label 'z', which is not in classes_"):
        LinkDisplay.from_estimator(model, X, np.where(y == "a", "z", y))
    with pytest.raises(ValueError, match="y must hold one label for each row"):
        LinkDisplay.from_estimator(model, X, np.zeros((len(X), 2)))
    with pytest.raises(ValueError, match="y has 5 entries, but X has 120 rows"):
        LinkDisplay.from_estimator(model, X, y[:5])
