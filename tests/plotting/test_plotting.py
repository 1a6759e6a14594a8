"""Tests of the displays: their attributes and edge cases. Their appearance is tested in test_reference_pictures."""

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hkrr
import hkrr.plotting
from hkrr.plotting import (
    ImportanceDisplay,
    LinkDisplay,
    PathDisplay,
    PredictionErrorDisplay,
    SubspaceDisplay,
    TrainingDisplay,
)
from support import reference_pictures as pictures
from support.handmade_models import made_data, made_ensemble, made_model


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_plot_draws_again_into_other_axes(name):
    """Test that `figure_` is the figure of `ax_`, and that `plot` draws into given axes."""
    display = pictures.PICTURES[name]()
    assert display.figure_ is display.ax_.figure
    if name == "link_surface":
        return
    _, ax = plt.subplots()
    assert display.plot(ax=ax) is display
    assert display.ax_ is ax


@pytest.mark.parametrize("name", ["link_curve", "subspace_bars", "path_directions", "prediction_error", "training"])
def test_dark_background(name):
    """Test that lines and text are visible on a dark background."""
    with plt.style.context("dark_background"):
        display = pictures.PICTURES[name]()
        display.figure_.canvas.draw()
        for line in display.ax_.lines:
            assert sum(to_rgb(line.get_color())) > 0.5
        for text in (display.ax_.xaxis.label, display.ax_.yaxis.label, display.ax_.title):
            assert sum(to_rgb(text.get_color())) > 0.5


def test_curve_is_the_models_function():
    """Test that the value of the curve at z is the prediction at an x with Bx = z."""
    model = made_model(1, 3)
    display = LinkDisplay.from_estimator(model, *made_data(model))
    b = model.components_[0]
    x = display.grid[0][:, None] * b / (b @ b)
    np.testing.assert_allclose(display.values, model.predict(x), rtol=1e-9)
    np.testing.assert_allclose(display.points, model.transform(made_data(model)[0]))
    assert display.band is None


def test_surface_is_the_models_function():
    model = made_model(3, 5)
    X, y = made_data(model)
    display = LinkDisplay.from_estimator(model, X, y, directions=(2, 0))
    i, j = 7, 31
    z = np.median(model.transform(X), axis=0)
    z[2], z[0] = display.grid[0][i], display.grid[1][j]
    x = np.linalg.lstsq(model.components_, z, rcond=None)[0]
    assert display.values[i, j] == pytest.approx(model.predict(x[None])[0])
    assert display.said == "1 other direction fixed at its median"


def test_default_directions_change_predictions_most():
    model = made_model(3, 3)
    model.map_ = np.eye(3)
    model.centers_[:, 1] *= 1e-3  # the function hardly depends on this column
    X, y = made_data(model)
    X[:, 1] *= 1e-3
    assert LinkDisplay.from_estimator(model, X, y).labels == ("x0", "x2")


def test_direction_of_a_single_column_has_the_units_of_the_column():
    model = made_model(1, 1, names=["age"])
    model.map_ = np.array([[-0.5]])
    X, y = made_data(model)
    display = LinkDisplay.from_estimator(model, X, y)
    assert display.labels == ("age",)
    np.testing.assert_allclose(display.points, X)
    at = type(X)({"age": display.grid[0]})
    np.testing.assert_allclose(display.values, model.predict(at), rtol=1e-9)


@pytest.mark.parametrize("n_components", [1, 2])
def test_without_targets(n_components):
    model = made_model(n_components, 4)
    display = LinkDisplay.from_estimator(model, made_data(model)[0])
    assert display.y is None
    assert display.scatter_ is not None


def test_several_targets():
    model = made_model(2, 4, n_targets=2)
    X, y = made_data(model)
    second = LinkDisplay.from_estimator(model, X, y, target=1)
    first = LinkDisplay.from_estimator(model, X, y)
    np.testing.assert_allclose(second.values - 2.0, -0.5 * (first.values - 2.0))
    np.testing.assert_array_equal(second.y, y[:, 1])
    errors = PredictionErrorDisplay.from_estimator(model, X, y, target=1)
    np.testing.assert_array_equal(errors.y_true, y[:, 1])
    with pytest.raises(ValueError, match="target must be an integer from 0 to 1"):
        LinkDisplay.from_estimator(model, X, y, target=2)


def test_constant_predictions_and_constant_columns():
    for n_components in (1, 2):
        model = made_model(n_components, 3)
        model.dual_coef_ = np.zeros_like(model.dual_coef_)
        X = np.ones((5, 3))
        for kind in ("contour", "surface"):
            assert np.ptp(LinkDisplay.from_estimator(model, X, np.ones(5), kind=kind).values) == 0.0
        errors = PredictionErrorDisplay.from_estimator(model, X, np.arange(5.0))
        assert errors.ax_.get_title(loc="left") == "The prediction is constant."
        importance = ImportanceDisplay.from_estimator(model)
        assert "no column matters" in importance.ax_.get_title(loc="left")
        importance.figure_.canvas.draw()


def test_many_rows_are_sampled():
    model = made_model(2, 3)
    X, y = made_data(model, 100_000)
    display = LinkDisplay.from_estimator(model, X, y)
    assert display.points.shape == (1000, 2)
    assert display.ax_.get_title(loc="left") == "1,000 of 100,000 rows"
    errors = PredictionErrorDisplay.from_estimator(model, X, y)
    assert len(errors.y_true) == 1000
    assert errors.r2 == pytest.approx(model.score(X, y))  # R2 is computed over all rows
    assert errors.scatter_.get_label().startswith("1,000 of 100,000 rows, R2 0.99")


def test_many_columns_are_summarized():
    model = made_model(2, 200)
    display = ImportanceDisplay.from_estimator(model)
    assert len(display.bars_) == 20
    lengths = [bar.get_width() for bar in display.bars_]
    assert lengths == sorted(model.feature_importances_, reverse=True)[:20]
    assert display.ax_.get_title(loc="left") == f"not shown: 180 other columns, total importance {1 - sum(lengths):.2f}"
    subspace = SubspaceDisplay.from_estimator(model)
    squares = sum(np.square([bar.get_width() for bar in bars]).sum() for bars in subspace.bars_)
    assert squares == pytest.approx(2.0)  # each direction has length one
    assert SubspaceDisplay.from_estimator(made_model(20, 30)).image_.get_array().shape == (21, 12)


def test_principal_angles():
    model = made_model(2, 4)
    same = SubspaceDisplay.from_estimator(model, B_true=np.array([[1.0, 2.0], [3.0, 4.0]]) @ model.components_)
    np.testing.assert_allclose(same.angles, 0.0, atol=1e-5)
    with pytest.raises(ValueError, match="B_true must be an array of shape"):
        SubspaceDisplay.from_estimator(model, B_true=np.eye(2, 3))


def test_intervals_and_their_coverage():
    model = pictures.with_intervals()
    X, y = made_data(model)
    display = PredictionErrorDisplay.from_estimator(model, X, y, coverage=0.5)
    inside = np.mean(np.abs(y - model.predict(X)) <= 0.035)
    assert display.covered == pytest.approx(inside)
    assert display.intervals_.get_label() == f"50% intervals, covering {100 * inside:.0f}%"
    assert PredictionErrorDisplay.from_estimator(model, X, y, coverage=None).intervals_ is None
    assert LinkDisplay.from_estimator(model, X, y).band.shape == (200, 2)


def test_models_without_intervals():
    model = pictures.with_intervals()
    X, y = made_data(model)

    def unknown(X, coverage):
        raise ValueError("too few rows")

    expected = np.column_stack(model.predict_interval(X))
    np.testing.assert_array_equal(PredictionErrorDisplay.from_estimator(model, X, y).interval, expected)
    model.predict_interval = unknown
    assert PredictionErrorDisplay.from_estimator(model, X, y).intervals_ is None
    with pytest.raises(ValueError, match="too few rows"):
        PredictionErrorDisplay.from_estimator(model, X, y, coverage=0.99)


def test_prediction_error_of_any_regressor():
    X, y = made_data(made_model(1, 3))
    display = PredictionErrorDisplay.from_estimator(make_pipeline(StandardScaler(), LinearRegression()).fit(X, y), X, y)
    assert 0 < display.r2 < 1
    with pytest.raises(ValueError, match="120 predictions"):
        PredictionErrorDisplay.from_predictions(y[:5], y)


def test_short_and_empty_histories():
    model = made_model()
    history = {"time": [], "objective": [], "grad_norm": [], "step": []}
    display = TrainingDisplay(history=history, reason="interrupted").plot()
    assert display.objective_ is None
    assert [text.get_text() for text in display.ax_.texts] == ["no iterations were recorded"]
    flat = {"time": [0.0, 1.0], "objective": [-1.0, -2.0], "grad_norm": [0.0, 0.0], "step": [0.0, 0.0]}
    display = TrainingDisplay(history=flat, reason="converged").plot(x="time")
    assert (display.ax_.get_yscale(), display.gradient_.axes.get_yscale()) == ("linear", "linear")
    display.figure_.canvas.draw()
    wide = {**flat, "objective": [100.0, 0.1]}
    assert TrainingDisplay(history=wide, reason="converged").plot().ax_.get_yscale() == "log"
    with pytest.raises(ValueError, match="x must be one of"):
        TrainingDisplay.from_estimator(model, x="steps")


def test_chosen_candidate_is_marked():
    display = PathDisplay.from_estimator(pictures.grid())
    assert [float(value) for value in (display.chosen_.get_xdata()[0], display.chosen_.get_ydata()[0])] == [1.0, 1.0]
    assert np.isnan(np.ma.filled(display.image_.get_array(), np.nan)[2, 0])
    display = PathDisplay.from_estimator(pictures.searched())
    assert (display.chosen_.get_xdata()[0], display.chosen_.get_ydata()[0]) == (2, 0.0)
    np.testing.assert_array_equal(display.scatter_.get_offsets(), [[1, 120.0], [2, 0.0], [3, 30.0]])
    assert [bar.get_height() for bar in display.bars_] == [1.0, 0.6, 0.1, 0.05]
    assert "1 run failed" in display.ax_.get_title(loc="left")
    display = PathDisplay.from_estimator(pictures.kernels_searched())
    np.testing.assert_array_equal(display.chosen_.get_xydata(), [[0.0, 0]])


def _lines(display):
    return [tick.get_text() for tick in display.ax_.get_yticklabels()]


def _note(display):
    return " ".join(display.ax_.get_title(loc="left").split())


def test_plain_kernel_ridge_is_not_marked_as_directions():
    """Test that no star marks d = 4, which was tried, if the identity map of all 4 columns was chosen."""
    model = pictures.searched()
    model.path_["n_components"][0] = 4
    model.n_components_, model.map_shape_ = 4, "identity"
    display = PathDisplay.from_estimator(model)
    assert display.chosen_ is None
    assert _note(display).startswith("chosen: gaussian, identity map of all 4 columns, better than any d shown")


def test_race_shows_the_last_round_of_each_map():
    """Test that each combination of a kernel and a map is shown with its score in the last round that it reached.

    The race of a search with ``kernel="auto"`` compares such combinations in rounds, and each round drops the worst.
    Scores are relative to the best score of the same round. Maps with the same kernel and different numbers of
    directions are shown in separate lines.
    """
    display = PathDisplay.from_estimator(pictures.kernels_searched())
    assert _lines(display) == [
        "anova, diagonal",
        "product_laplace, diagonal",
        "gaussian, 2 directions",
        "anova, identity",
        "gaussian, 4 directions",
        "laplace, identity",
    ]
    np.testing.assert_array_equal(display.scatter_.get_offsets(), [[0.0, 0], [1.0, 1], [30.0, 2]])
    _, eliminated = display.ax_.collections
    np.testing.assert_array_equal(eliminated.get_offsets(), [[10.0, 3], [40.0, 4], [70.0, 5]])


def test_members_of_an_ensemble_are_marked_with_their_weights():
    display = PathDisplay.from_estimator(pictures.ensemble())
    np.testing.assert_array_equal(display.chosen_.get_xydata(), [[0.0, 0], [30.0, 2]])
    assert [text.get_text() for text in display.ax_.texts] == ["0.20", "0.75"]
    assert display.ax_.get_legend().get_title().get_text() == "chosen: 2 members of an ensemble"


def test_chosen_maps_are_always_shown():
    """Test that only the best maps of a race are shown, but a member of an ensemble even if it is the worst."""
    model = pictures.ensemble()
    for k in range(20):
        for name, value in zip(model.path_, ("directions", "matern52", "full", 3 + k, 1_000, 710.0 + k), strict=True):
            model.path_[name].append(value)
    display = PathDisplay.from_estimator(model)
    assert len(_lines(display)) == 17
    assert _lines(display)[-1] == "gaussian, 2 directions"
    assert display.ax_.get_legend().get_title().get_text().endswith("; 9 more not shown")


def test_race_of_version_0_1():
    """Test that a race of version 0.1 is drawn.

    Its path_ has no column "n_rows", and its values of "start" can have a suffix, such as ", half" or ", finalist".
    """
    model = pictures.diagonal()
    runs = [
        ("random", "gaussian", "full", 400.0),
        ("plain, half", "laplace", "identity", 420.0),
        ("plain", "anova", "identity", 360.0),
        ("diagonal", "anova", "diagonal", 350.0),
        ("directions", "matern52", "full", 390.0),
        ("diagonal, finalist", "anova", "diagonal", 345.0),
        ("plain, finalist", "anova", "identity", 355.0),
        ("rescaled", "anova", "diagonal", 344.0),
    ]
    columns = zip(*runs, strict=True)
    model.path_ = {name: list(each) for name, each in zip(("start", "kernel", "shape", "score"), columns, strict=True)}
    model.path_["n_components"] = [4] * len(runs)
    display = PathDisplay.from_estimator(model)
    assert _lines(display) == ["anova, diagonal", "anova, identity", "matern52, 4 directions", "laplace, identity"]
    np.testing.assert_array_equal(display.scatter_.get_offsets(), [[0.0, 0], [10.0, 1]])
    np.testing.assert_array_equal(display.ax_.collections[1].get_offsets(), [[40.0, 2], [0.0, 3]])


def test_only_the_last_of_two_races_is_drawn():
    """Test that a search with heavy-tailed noise hides the search with normal noise before it.

    The scores of the two searches are not comparable.
    """
    model, first = pictures.kernels_searched(), pictures.race()
    first["score"] = [score - 1e3 for score in first["score"]]
    expected = PathDisplay.from_estimator(model).scatter_.get_offsets()
    model.path_ = {name: first[name] + values for name, values in model.path_.items()}
    np.testing.assert_array_equal(PathDisplay.from_estimator(model).scatter_.get_offsets(), expected)


@pytest.mark.parametrize("cut", [True, False])
def test_search_with_one_candidate(cut):
    """Test that in the plot of a search over one column, the only tick is 1, and the star is well inside the axes.

    The star marks the chosen number of directions.
    """
    model = pictures.made_model(1, 1, cls=hkrr.HyperKernelRidgeCV)
    model.n_components = "auto"
    model.path_ = {name: values[:1] for name, values in pictures.searched().path_.items()}
    if cut:
        model.spectrum_ = np.ones(1)
    display = PathDisplay.from_estimator(model)
    display.figure_.canvas.draw()
    low, high = display.ax_.get_xlim()
    assert [tick for tick in display.ax_.get_xticks() if low <= tick <= high] == [1.0]
    axes = display.chosen_.axes
    star = axes.transAxes.inverted().transform(axes.transData.transform(display.chosen_.get_xydata()[0]))
    assert star.tolist() == pytest.approx([0.5, 1 / 11])
    assert _note(display) == "chosen (star): gaussian, 1 direction; no other d was tried"


def test_given_number_of_directions():
    """Test that the note says that the number of directions was given, and that there are no bars.

    The bars show the weights of the directions of a truncated map. If the number of directions is given, no map is
    truncated.
    """
    model = pictures.searched()
    model.n_components = 2
    del model.spectrum_
    display = PathDisplay.from_estimator(model)
    assert display.bars_ is None
    assert _note(display) == "d = 2 was given (star); larger maps only served as starts; 1 run failed"
    assert display.ax_.get_ylabel() == "score above the lowest (BIC, in nats)"
    model.n_components = [1, 2]
    assert _note(PathDisplay.from_estimator(model)) == "chosen (star): gaussian, 2 directions; 1 run failed"


def test_displays_of_an_ensemble():
    """Test that a display of an ensemble shows the whole ensemble, or its first member with a note that says so."""
    model = made_ensemble(4)
    first = model.members_[0]
    X, y = made_data(first)
    member = "member 1 of 2, weight 0.75"
    subspace = SubspaceDisplay.from_estimator(model)
    np.testing.assert_array_equal(subspace.loadings, SubspaceDisplay.from_estimator(first).loadings)
    assert subspace.ax_.get_legend().get_title().get_text() == member
    link = LinkDisplay.from_estimator(model, X, y)
    np.testing.assert_array_equal(link.values, LinkDisplay.from_estimator(first, X, y).values)
    assert _note(link) == member
    training = TrainingDisplay.from_estimator(model)
    assert training.history is first.result_.history
    assert _note(training).startswith(f"{member}; stalled: ")
    np.testing.assert_array_equal(ImportanceDisplay.from_estimator(model).importances, model.feature_importances_)
    np.testing.assert_array_equal(PredictionErrorDisplay.from_estimator(model, X, y).y_pred, model.predict(X))
    # With a single member, there is no note.
    model.members_, model.weights_ = [first], np.ones(1)
    assert SubspaceDisplay.from_estimator(model).said == ""


def test_search_that_was_stopped_early():
    """Test that a search can be plotted if it was stopped early.

    The path has one run of the race, no finite score, or only the chosen candidate.
    """
    model = pictures.kernels_searched()
    model.path_ = {name: values[:2] for name, values in model.path_.items()}
    display = PathDisplay.from_estimator(model)
    assert _lines(display) == ["laplace, identity"]
    assert display.chosen_ is None
    model.path_["score"] = [np.inf, np.inf]
    assert _lines(PathDisplay.from_estimator(model)) == []
    model.path_ = {name: values[-1:] for name, values in pictures.race().items()}
    assert _note(PathDisplay.from_estimator(model)) == "chosen: anova, diagonal; no scores to compare"


def test_fitted_search():
    """Test that the results of a real search can be drawn."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    model = hkrr.HyperKernelRidgeCV(n_init=1, random_state=0).fit(X, y)
    display = PathDisplay.from_estimator(model)
    assert len(display.scatter_.get_offsets()) > 0
    TrainingDisplay.from_estimator(model)
    LinkDisplay.from_estimator(model, X, y)


def test_bad_arguments():
    model = made_model(3, 4)
    X, y = made_data(model)
    with pytest.raises(NotFittedError):
        SubspaceDisplay.from_estimator(hkrr.HyperKernelRidge())
    with pytest.raises(TypeError, match="has no search to draw"):
        PathDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="kind must be one of"):
        LinkDisplay.from_estimator(model, X, y, kind="scatter")
    for directions in ((0, 0), (3,), (0, 1, 2), ()):
        with pytest.raises(ValueError, match="directions must be one or two different integers from 0 to 2"):
            LinkDisplay.from_estimator(model, X, y, directions=directions)
    with pytest.raises(ValueError, match="y has 3 entries, but X has 120 rows"):
        LinkDisplay.from_estimator(model, X, y[:3])
    with pytest.raises(ValueError, match="max_columns"):
        ImportanceDisplay.from_estimator(model, max_columns=0)
    with pytest.raises(ValueError, match="projection='3d'"):
        LinkDisplay.from_estimator(model, X, y, kind="surface", ax=plt.subplots()[1])


def test_without_matplotlib(monkeypatch):
    model = made_model()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"hkrr\[plot\]"):
        ImportanceDisplay.from_estimator(model)


def test_matplotlib_is_imported_lazily():
    """Test that neither `import hkrr` nor access to `hkrr.plotting` imports matplotlib."""
    code = (
        "import sys, hkrr; assert 'hkrr.plotting' not in sys.modules; hkrr.plotting.LinkDisplay; "
        "assert 'matplotlib' not in sys.modules; print('passed')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "passed\n"
    with pytest.raises(AttributeError, match="no attribute 'pictures'"):
        _ = hkrr.pictures
