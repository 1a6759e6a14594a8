"""Test that plots of a table regressor, a pipeline or a search show the hkrr model inside it, with its columns."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from hkrr import HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.plotting import (
    ImportanceDisplay,
    LinkDisplay,
    PathDisplay,
    PredictionErrorDisplay,
    SubspaceDisplay,
    TrainingDisplay,
)
from hkrr.tables import TableRegressor

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"area": RNG.normal(size=60), "age": RNG.normal(size=60)})
TEXTS = FRAME.assign(colour=RNG.choice(["red", "blue"], 60))
Y = FRAME["area"].to_numpy() + 2.0 * (TEXTS["colour"] == "red").to_numpy()
SETTINGS = {"n_init": 1, "random_state": 0}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def _regressor():
    return HyperKernelRidgeCV([1], **SETTINGS)


def _draw_all(estimator, X, y):
    return [
        SubspaceDisplay.from_estimator(estimator),
        LinkDisplay.from_estimator(estimator, X, y),
        ImportanceDisplay.from_estimator(estimator),
        PredictionErrorDisplay.from_estimator(estimator, X, y),
        TrainingDisplay.from_estimator(estimator),
        PathDisplay.from_estimator(estimator),
    ]


def _check(estimator, X, model, transformed, names):
    """Check that the plots of an estimator for rows X equal those of its inner model for the transformed rows.

    `model` is the inner model, `transformed` the rows that it gets, and `names` the names of their columns.
    """
    subspace, link, importances, errors, training, path = _draw_all(estimator, X, Y)
    assert subspace.names == importances.names == names
    assert importances.importances.tolist() == model.feature_importances_.tolist()
    expected = LinkDisplay.from_estimator(model, transformed, Y)
    assert np.array_equal(link.points, expected.points)
    assert np.array_equal(link.values, expected.values)
    assert any(name in link.labels[0] for name in names)
    assert np.array_equal(errors.y_pred, estimator.predict(X))
    assert np.array_equal(errors.interval, np.column_stack(model.predict_interval(transformed)))
    assert training.history is model.result_.history
    assert path.table is model.path_


def test_table_regressor():
    table = TableRegressor(_regressor()).fit(TEXTS, Y)
    _check(table, TEXTS, table.model_, table.transform(TEXTS), list(table.feature_names_out_))


def test_pipeline():
    pipeline = make_pipeline(StandardScaler(), _regressor()).fit(FRAME, Y)
    _check(pipeline, FRAME, pipeline[-1], pipeline[:-1].transform(FRAME), ["area", "age"])


def test_search_over_a_pipeline_with_a_table_regressor():
    pipeline = Pipeline([("drop", FunctionTransformer(lambda X: X[["area", "colour"]])), ("fit", TableRegressor())])
    grid = {"fit__regressor": [_regressor()]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, Y)
    table = search.best_estimator_[-1]
    _check(search, TEXTS, table.model_, table.transform(TEXTS[["area", "colour"]]), list(table.feature_names_out_))


def test_ensemble():
    """Test that the plots of a table regressor with an ensemble show the ensemble, or its first member."""
    table = TableRegressor(HyperKernelEnsemble(**SETTINGS)).fit(TEXTS, Y)
    model, names = table.model_, list(table.feature_names_out_)
    subspace, link, importances, errors, training, path = _draw_all(table, TEXTS, Y)
    assert subspace.names == importances.names == names
    assert importances.importances.tolist() == model.feature_importances_.tolist()
    expected = LinkDisplay.from_estimator(model.members_[0], table.transform(TEXTS), Y)
    assert np.array_equal(link.values, expected.values)
    assert np.array_equal(errors.y_pred, table.predict(TEXTS))
    assert training.history is model.members_[0].result_.history
    assert path.table is model.path_
    assert sum(path.chosen.values()) == pytest.approx(sum(model.weights_))
    assert path.chosen_ is not None


def test_steps_without_output_names():
    scale = FunctionTransformer(np.asarray)
    pipeline = make_pipeline(scale, HyperKernelRidge(1, **SETTINGS)).fit(FRAME, Y)
    assert SubspaceDisplay.from_estimator(pipeline).names == ["x0", "x1"]
    named = make_pipeline(StandardScaler().set_output(transform="pandas"), HyperKernelRidge(1, **SETTINGS))
    assert ImportanceDisplay.from_estimator(named.fit(FRAME, Y)).names == ["area", "age"]
    alone = make_pipeline(HyperKernelRidge(1, **SETTINGS)).fit(FRAME, Y)
    assert LinkDisplay.from_estimator(alone, FRAME, Y).labels[0].startswith("direction 1")


def test_estimators_without_an_hkrr_model():
    linear = make_pipeline(StandardScaler(), LinearRegression()).fit(FRAME, Y)
    with pytest.raises(TypeError, match="got a Pipeline around a LinearRegression"):
        ImportanceDisplay.from_estimator(linear)
    with pytest.raises(TypeError, match="got a TableRegressor around a LinearRegression"):
        SubspaceDisplay.from_estimator(TableRegressor(LinearRegression()).fit(TEXTS, Y))
    with pytest.raises(TypeError, match=r"got a LinearRegression$"):
        TrainingDisplay.from_estimator(LinearRegression())
    with pytest.raises(TypeError, match="has no search to draw"):
        PathDisplay.from_estimator(make_pipeline(StandardScaler(), HyperKernelRidge(1, **SETTINGS)).fit(FRAME, Y))
    assert PredictionErrorDisplay.from_estimator(linear, FRAME, Y).interval is None


def test_unfitted_estimators():
    for wrapped in (
        make_pipeline(StandardScaler(), _regressor()),
        TableRegressor(_regressor()),
        GridSearchCV(_regressor(), {"n_init": [1]}),
    ):
        with pytest.raises(NotFittedError):
            ImportanceDisplay.from_estimator(wrapped)
    without_refit = GridSearchCV(HyperKernelRidge(1, **SETTINGS), {"n_init": [1]}, refit=False, cv=2).fit(FRAME, Y)
    with pytest.raises(ValueError, match="construct GridSearchCV with refit=True"):
        ImportanceDisplay.from_estimator(without_refit)
