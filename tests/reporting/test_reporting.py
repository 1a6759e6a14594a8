"""Test that the contents of a report equal values computed with NumPy and with the model."""

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hkrr import HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.baselines import KernelRidgeCV
from hkrr.estimators.fitted.diagnostics import fit_warnings_silenced
from hkrr.estimators.fitted.importance import mean_slopes
from hkrr.kernels import kernel_name
from hkrr.plotting import PathDisplay
from hkrr.reporting import gather, render
from hkrr.reporting.baseline_comparison import _unfitted_copy
from hkrr.reporting.link_function import link_values
from hkrr.reporting.prediction_errors import share_seen
from hkrr.reporting.report_input import check_report_input
from hkrr.reporting.text_formatting import formula, headline, number, percent, score
from hkrr.tables import TableRegressor
from support.models_to_report import TableStandIn, ensemble_model, house_data


@pytest.fixture(scope="module")
def ensemble():
    return ensemble_model()


def test_link_values_are_the_predictions(fitted):
    model, X, y = fitted
    found = link_values(check_report_input(model, X, y), model.transform(X))
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9, atol=1e-9)


def test_link_values_are_truncated_as_predictions_are(searched):
    model, X, y = searched
    far = model.transform(X)[:3] * 1e3
    assert np.all(np.abs(link_values(check_report_input(model, X, y), far)) <= model.truncation_)


def test_mean_slopes_are_proportional_to_finite_differences_of_the_link(fitted):
    model, X, y = fitted
    data = check_report_input(model, X[:20], y[:20])
    Z, step = model.transform(X[:20]), 1e-6
    slopes = [link_values(data, Z + move) - link_values(data, Z - move) for move in step * np.eye(2)]
    first, second = mean_slopes(model, data.X, data.target_index) / np.sqrt(np.mean(np.square(slopes), axis=1))
    assert first == pytest.approx(second, rel=1e-5)


def test_directions_are_the_rows_of_the_map_in_standard_deviations(fitted):
    model, X, y = fitted
    found = gather(model, X, y, compare=False).directions
    assert (found.n_components, found.n_columns, found.shape) == (2, 5, "full")
    for k, direction in enumerate(found.directions):
        weights = model.components_[k] * X[:120].std(ddof=0)
        weights /= np.linalg.norm(weights)
        assert direction.number == k + 1
        assert {each.column: each.weight for each in direction.loadings} == pytest.approx(weights.to_dict())
        sizes = [abs(each.weight) for each in direction.loadings]
        assert sizes == sorted(sizes, reverse=True)
    assert sum(each.share for each in found.directions) == pytest.approx(1)
    assert {each.column for each in found.importances[:3]} == {"area", "age", "floor"}
    assert sum(each.weight for each in found.importances) == pytest.approx(1)


def test_surface_and_dots(fitted):
    model, X, y = fitted
    (surface,) = gather(model, X, y, compare=False).link.surfaces
    Z = model.transform(X)
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    # The value of the surface at a grid point z is the prediction at an x with Bx = z.
    for i, j in ((0, 0), (5, 20), (32, 32)):
        z = mean + spread * [surface.across[i], surface.along[j]]
        x = pd.DataFrame([np.linalg.pinv(model.components_) @ z], columns=X.columns)
        assert surface.value[i][j] == pytest.approx(model.predict(x)[0], abs=1e-3)
    # With two directions, no direction is fixed, so the height of a dot is the target of its row.
    np.testing.assert_allclose([dot[2] for dot in surface.dots], y, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([dot[:2] for dot in surface.dots], (Z - mean) / spread, rtol=1e-3, atol=1e-3)
    near = np.array(surface.near)
    assert near.min() == 0
    assert near.max() == 1


def test_three_directions_have_three_pairs():
    X, y = house_data(100)
    model = HyperKernelRidge(3, random_state=0).fit(X, y)
    facts = gather(model, X, y, compare=False)
    assert sorted(each.directions for each in facts.link.surfaces) == [(1, 2), (1, 3), (2, 3)]
    assert facts.link.n_held == 1
    assert "fixed at their medians" in render(facts)


def test_errors_equal_values_computed_with_numpy(fitted):
    model, X, y = fitted
    found = gather(model, X, y, compare=False).errors
    errors = (y - model.predict(X)).to_numpy()
    assert found.r2 == pytest.approx(r2_score(y, model.predict(X)))
    assert found.rmse == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found.median_absolute == pytest.approx(np.median(np.abs(errors)))
    assert sum(found.bin_counts) == len(y)
    assert [each.error for each in found.worst] == pytest.approx(sorted(errors, key=abs, reverse=True)[:20])
    first = found.worst[0]
    assert X.loc[int(first.name)].tolist() == pytest.approx(first.cells)
    assert y[int(first.name)] == first.actual
    lower, upper = model.predict_interval(X)
    assert found.interval.covered == pytest.approx(np.mean((lower <= y) & (y <= upper)))
    assert found.interval.median_width == pytest.approx(np.median(upper - lower))


def test_rows_of_the_fit_are_recognized(fitted):
    model, X, y = fitted
    assert share_seen(check_report_input(model, X[:120], y[:120])) == 1.0
    assert share_seen(check_report_input(model, X[120:], y[120:])) == 0.0
    assert share_seen(check_report_input(model, X, y)) == 0.75
    few = HyperKernelRidge(1, n_centers=10, max_iter=2, random_state=0).fit(X[:120], y[:120])
    assert 0.05 < share_seen(check_report_input(few, X[:120], y[:120])) < 0.1
    assert gather(model, X[120:], y[120:], compare=False).errors.held_out
    assert not gather(model, X, y, compare=False).errors.held_out
    given = gather(model, X[120:], y[120:], compare=False, held_out=False).errors
    assert (given.held_out, given.seen) == (False, None)


def test_comparison_fits_all_methods_to_the_same_rows(fitted):
    model, X, y = fitted
    found = gather(model, X, y).comparison
    train, test = train_test_split(np.arange(160), test_size=0.25, random_state=0)
    A, b = X.to_numpy(), y.to_numpy()
    rivals = [
        HyperKernelRidge(2, random_state=0),
        KernelRidgeCV(random_state=0),
        make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 11))),
    ]
    with fit_warnings_silenced():
        expected = [r2_score(b[test], each.fit(A[train], b[train]).predict(A[test])) for each in rivals]
    assert found.r2 == pytest.approx(expected)
    assert all(low < r2 < high for low, r2, high in zip(found.low, found.r2, found.high, strict=True))
    assert (found.n_train, found.n_test, found.refitted) == (120, 40, True)


def test_comparison_replaces_given_initial_map_and_centers():
    X, y = house_data(60)
    start = np.eye(5)[:1]
    model = HyperKernelRidge(1, init=start, centers=X.to_numpy()[:30], max_iter=3, verbose=0).fit(X, y)
    assert len(gather(model, X, y).comparison.r2) == 3


def test_values_of_a_text_column_may_contain_an_equals_sign():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.choice(["x=y", "z=w", "q"], 60), "size": rng.normal(size=60)})
    model = TableRegressor(HyperKernelRidge(1, max_iter=3)).fit(frame, frame["size"] + (frame["code"] == "q"))
    found = gather(model, frame, frame["size"], compare=False).directions
    assert {each.column for each in found.importances} == {"code=x=y", "code=z=w", "code=q", "size"}
    assert {each.column for each in found.table_importances} == {"code", "size"}


def test_table_regressor_is_reported_with_the_columns_of_the_table(table):
    model, frame, y = table
    facts = gather(model, frame, y, coverage=0.5)
    assert [each.column for each in facts.directions.importances if "=" in each.column] == ["colour=red"]
    assert {each.column for each in facts.directions.table_importances} == set(facts.errors.columns)
    assert facts.errors.columns == ["area", "age", "floor", "rooms", "colour"]
    assert facts.errors.worst[0].cells[-1] in ("red", "<i>blue</i>")
    inside = np.abs(y - model.predict(frame)) <= 0.5
    assert facts.errors.interval.covered == pytest.approx(inside.mean())
    assert facts.errors.interval.median_width == pytest.approx(1.0)
    assert (facts.comparison.refitted, facts.comparison.r2) == (False, [0.5, 0.7, 0.2])
    page = render(facts)
    assert "<i>" not in page
    assert "kernel ridge regression does better than this model" in page


def test_ensemble(ensemble):
    """Test that everything is computed from the ensemble, except for the map and the function of the first member."""
    model, X, y = ensemble
    first = model.members_[0]
    facts = gather(model, X, y, compare=False)
    found = [(weight, *each) for weight, each in facts.directions.members]
    shape, kernel = first.map_shape_, kernel_name(first.kernel_)
    assert found == [(0.7, kernel, shape, first.n_components_), (0.2, "laplace", "full", 1)]
    importances = {each.column: each.weight for each in facts.directions.importances}
    assert importances == pytest.approx(dict(zip(X.columns, model.feature_importances_, strict=True)))
    assert facts.errors.r2 == pytest.approx(r2_score(y, model.predict(X)))
    lower, upper = model.predict_interval(X)
    assert facts.errors.interval.median_width == pytest.approx(np.median(upper - lower))
    assert facts.training.n_runs == len(model.path_["score"])
    assert repr(_unfitted_copy(model, len(X))) == repr(HyperKernelEnsemble(n_init=1, random_state=0))
    data = check_report_input(model, X, y)
    np.testing.assert_allclose(link_values(data, first.transform(X)), first.predict(X), rtol=1e-9, atol=1e-9)
    assert share_seen(data) == 0.8
    page = render(facts)
    assert "Price is predicted from 5 columns by a weighted sum of 2 models." in page
    assert "<td>0.70</td>" in page
    assert "<td>laplace</td><td>1 direction</td>" in page
    assert "The function of the first model" in page
    assert "model = HyperKernelEnsemble(n_init=1, random_state=0).fit(X, y)" in page


def test_ensemble_of_one_model(ensemble):
    model, X, y = copy.copy(ensemble[0]), *ensemble[1:]
    model.members_, model.weights_ = model.members_[1:], np.array([0.98])
    page = render(gather(model, X, y, compare=False))
    assert "Price depends on 5 columns through 1 direction" in page
    assert "<td>0.98</td><td>laplace</td>" in page
    assert "first model" not in page


def test_models_without_intervals(table):
    model, frame, y = table

    class NoIntervals(TableStandIn):
        def predict_interval(self, frame, coverage=0.9):
            raise ValueError("no rows were kept\nfor this")

    class InfiniteIntervals(TableStandIn):
        def predict_interval(self, frame, coverage=0.9):
            return np.full(len(frame), -np.inf), np.full(len(frame), np.inf)

    for cls, reason in ((NoIntervals, "no rows were kept for this"), (InfiniteIntervals, "too few rows")):
        found = gather(cls(model.model_), frame, y).errors
        assert found.interval is None
        assert reason in found.no_interval_reason


def test_training_history_equals_the_history_of_the_model(fitted, searched):
    model, X, y = fitted
    found = gather(model, X, y, compare=False).training
    assert found.objective == model.history_["objective"]
    assert found.path is None
    model, X, y = searched
    found = gather(model, X, y, compare=False).training
    assert found.n_runs == len(model.path_["score"])
    assert set(found.path.n_components) == {1, 2, 3, 5}  # the starts have five directions
    assert found.spectrum == pytest.approx(model.spectrum_)
    assert found.path.chosen == model.n_components_
    lowest = min(found.path.score)
    assert lowest in model.path_["score"]


def test_scores_of_a_search_equal_those_of_the_plot(searched):
    """Test that the report shows the same runs as the plot.

    Neither shows a failed run, even if it has the most centers, or a run that the search has dropped, even if it has
    the lowest score.
    """
    model, X, y = copy.copy(searched[0]), *searched[1:]
    before = gather(model, X, y, compare=False).training.path
    failed = {name: [*values, values[0]] for name, values in model.path_.items()}
    failed["score"][-1], failed["n_centers"][-1] = np.inf, 10 * max(n or 0 for n in model.path_["n_centers"])
    dropped = {name: [*values, values[0]] for name, values in failed.items()}
    dropped["start"][-1], dropped["score"][-1] = "random, dropped", -1e9
    for table in (failed, dropped):
        model.path_ = table
        found = gather(model, X, y, compare=False).training.path
        assert (found.n_components, found.score) == (before.n_components, before.score)
        d, above = PathDisplay.from_estimator(model).scatter_.get_offsets().T
        best = [min(score for k, score in zip(found.n_components, found.score, strict=True) if k == one) for one in d]
        np.testing.assert_allclose(above, np.array(best) - min(best), atol=1e-9)


def test_scores_of_a_grid():
    X, y = house_data(50)
    model = HyperKernelRidgeCV(
        n_components=[1, 2], cv="holdout", criterion="training", reg_lambdas=[1e-2, 1e-3], random_state=0
    )
    with fit_warnings_silenced():  # both parameters are at an edge of this small grid
        model.fit(X, y)
    found = gather(model, X, y, compare=False).training
    assert found.path.n_components == [1, 1, 2, 2]
    assert found.path.score == pytest.approx(model.cv_results_["mean_error"])


def test_page_shows_findings(fitted):
    model, X, y = copy.copy(fitted[0]), *fitted[1:]
    assert "No problems were found" in render(gather(model, X, y, compare=False))
    model.diagnostics_ = dataclasses.replace(model.diagnostics_, digits=1.0)
    page = render(gather(model, X, y, compare=False))
    ((_, message),) = model.diagnostics_.findings()
    assert message[1:] in page
    assert "Numerically unstable" in page
    assert "The checks of the fit found 1 problem." in page


def test_several_targets(fitted):
    _, X, y = fitted
    Y = pd.DataFrame({"price": y, "rent": 2 * y**2})
    model = HyperKernelRidge(2, random_state=0, max_iter=20).fit(X, Y)
    for k, name in enumerate(Y):
        facts = gather(model, X, Y, target=k, compare=False)
        assert facts.target == name
        assert facts.errors.r2 == pytest.approx(r2_score(Y[name], model.predict(X)[:, k]))
        np.testing.assert_allclose([dot[2] for dot in facts.link.surfaces[0].dots], Y[name], rtol=1e-3, atol=1e-3)
        assert "The model predicts 2 targets" in render(facts)


def test_constant_predictions_and_constant_targets(fitted):
    _, X, y = fitted
    with fit_warnings_silenced():
        model = HyperKernelRidge(1, reg_lambda=1e6, max_iter=1, random_state=0).fit(X, y)
    assert headline(gather(model, X, y, compare=False)).startswith("The model found nothing that price depends on")
    model, X, y = fitted
    facts = gather(model, X, y * 0 + 1, compare=True)
    assert facts.errors.r2 is None
    assert facts.comparison is None
    assert "R² is not defined" in render(facts)


def test_texts(fitted, monkeypatch):
    model, X, y = fitted
    facts = gather(model, X, y, compare=False)
    text = headline(facts)
    assert text.startswith("Price depends on 5 columns through 2 directions (weighted sums of the columns). The most ")
    assert facts.directions.importances[0].column in text
    assert "noise" not in text
    monkeypatch.setattr("hkrr.reporting.text_formatting._MOST_TERMS", 2)
    assert formula(facts.directions.directions[0]).endswith("+ 3 smaller terms")
    diagonal = dataclasses.replace(facts, directions=dataclasses.replace(facts.directions, shape="diagonal"))
    assert "5 columns, each with its own weight" in headline(diagonal)
    assert [score(0.9996), score(-0.5), score(1.0)] == ["above 0.999", "−0.500", "1.000"]
    assert [percent(0.001), percent(0.999), percent(0.25), percent(0.0)] == ["below 1%", "over 99%", "25%", "0%"]
    assert number(-12345.6) == "−12,300"
    texts = ["1,230,000", "−0.123", "12", "0", "3e-07"]
    assert [number(value) for value in (1234567.0, -0.123456, 12.0, 0.0, 3e-7)] == texts


@pytest.mark.parametrize(
    ("shape", "text"), [("diagonal", "one weight per column"), ("identity", "all columns with equal weights")]
)
def test_pages_of_maps_without_directions(fitted, shape, text):
    """Test that the page of a diagonal or identity map shows columns instead of directions."""
    model, X, y = fitted
    facts = gather(model, X, y, compare=False)
    page = render(dataclasses.replace(facts, directions=dataclasses.replace(facts.directions, shape=shape)))
    assert text in page
    assert 'data-tab="Direction 1"' not in page


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_column_names_of_arrays(fitted):
    model, X, y = fitted
    facts = gather(model, X.to_numpy(), y.to_numpy(), compare=False)
    assert facts.target == "y"
    assert facts.directions.importances[0].column in X.columns
    plain = HyperKernelRidge(1, max_iter=2, random_state=0).fit(X.to_numpy(), y)
    assert gather(plain, X.to_numpy(), y, compare=False).directions.importances[0].column in ("x0", "x1", "x2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": RidgeCV()}, "model must be a fitted HyperKernelEnsemble"),
        ({"X": "rows.csv"}, "X must be an array or a data frame in memory"),
        ({"y": [1.0, 2.0]}, "X has 160 rows, but y has 2 entries"),
        ({"y": ["a"] * 160}, "y must be an array of numbers"),
        ({"y": np.full(160, np.nan)}, "y contains NaN"),
        ({"y": np.ones((160, 2))}, "y has shape"),
        ({"target": 1}, "target must be an integer from 0 to 0, got 1"),
        ({"coverage": 1.0}, "coverage must be above 0 and below 1"),
    ],
)
def test_bad_arguments(fitted, change, message):
    model, X, y = fitted
    given = {"model": model, "X": X, "y": y, **change}
    with pytest.raises(ValueError, match=message):
        gather(given.pop("model"), given.pop("X"), given.pop("y"), **given)
