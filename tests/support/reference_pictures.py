"""The plots that are compared with the pictures in tests/plotting/reference. Their models are constructed by hand."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.spines import Spine
from matplotlib.text import Text

from hkrr import HyperKernelRidgeCV, plotting
from support.handmade_models import made_classifier, made_data, made_ensemble, made_labels, made_model
from support.paths import TESTS

REFERENCE = TESTS / "plotting" / "reference"
# A pixel counts as different if a colour channel, from 0 to 255, differs by more than this number.
COLOUR_TOLERANCE = 4
# Maximum number of different pixels in pictures that count as equal. With the versions in constraints.txt the pictures
# are identical on all processors. A relative change of the numbers by 1e-6, far above rounding errors, changes one
# pixel of a contour. The smallest marks have nine pixels.
MOST_DIFFERENT = 4
NAMES = ["cement", "slag", "water", "age in days"]


def _link(n_components, n_features, **options):
    model = made_model(n_components, n_features, names=NAMES[:n_features] if n_features <= 4 else None)
    return plotting.LinkDisplay.from_estimator(model, *made_data(model), **options)


class _WithIntervals(type(made_model())):
    """A model with prediction intervals of a fixed width."""

    def predict_interval(self, X, coverage=0.9):
        predicted = self.predict(X)
        return predicted - 0.07 * coverage, predicted + 0.07 * coverage


def with_intervals():
    return made_model(1, 3, cls=_WithIntervals)


def diagonal():
    model = made_model(4, 4, kernel="anova", names=NAMES, cls=HyperKernelRidgeCV)
    model.map_, model.map_shape_ = np.diag([1.0, 0.2, 0.6, 0.4]), "diagonal"
    return model


def grid():
    """Return a model that was chosen from a grid in which one fit failed."""
    model = made_model(2, 4, cls=HyperKernelRidgeCV)
    errors = np.array([[0.9, 0.8, 0.7, 0.75], [0.4, 0.12, 0.06, 0.2], [0.42, 0.2, 0.09, np.inf]])
    model.cv_results_ = {
        "n_components": np.repeat([1, 2, 3], 4),
        "reg_lambda": np.tile([1e-1, 1e-2, 1e-3, 1e-4], 3),
        "mean_error": errors.ravel(),
        "std_error": 0.1 * errors.ravel(),
    }
    return model


def learned_grid():
    """Return a model whose number of directions was chosen by `cv` and whose lambda was learned."""
    model = made_model(2, 4, cls=HyperKernelRidgeCV)
    model.cv_results_ = {
        "n_components": np.array([1, 2, 3]),
        "reg_lambda": np.array(["auto"] * 3),
        "mean_error": np.array([0.9, 0.06, 0.07]),
        "std_error": np.array([0.2, 0.01, 0.02]),
    }
    return model


def searched():
    """Return a model that was found by a search over the number of directions."""
    model = made_model(2, 4, cls=HyperKernelRidgeCV)
    model.n_components = "auto"
    starts = ["cut", "random, dropped", "cut", "cut", "cut", "moments", "polished", "compared", "plain"]
    model.spectrum_ = np.array([1.0, 0.6, 0.1, 0.05])
    model.path_ = {
        "start": starts,
        "kernel": ["gaussian"] * 9,
        "shape": ["full"] * 8 + ["identity"],
        "n_components": [1, 1, 2, 2, 1, 3, 2, 2, 4],
        "score": [-490.0, -300.0, -610.0, -560.0, -480.0, np.inf, -900.0, -905.0, -400.0],
    }
    model.path_["n_components"].append(3)
    model.path_["score"].append(-580.0)
    for name, value in (("start", "random"), ("kernel", "gaussian"), ("shape", "full")):
        model.path_[name].append(value)
    return model


def race():
    """Return the attribute ``path_`` after a search over kernels and maps with rounds of 500 and 1,000 rows.

    Each round keeps only the best candidates of the round before.
    """
    runs = [
        ("random", "gaussian", "full", 2, None, 400.0),
        ("plain", "laplace", "identity", 4, 500, 420.0),
        ("plain", "anova", "identity", 4, 500, 360.0),
        ("diagonal", "anova", "diagonal", 4, 500, 352.0),
        ("diagonal", "anova", "diagonal", 4, 500, 350.0),
        ("diagonal", "product_laplace", "diagonal", 4, 500, 351.0),
        ("directions", "gaussian", "full", 2, 500, 370.0),
        ("square", "gaussian", "full", 4, 500, 390.0),
        ("diagonal", "anova", "diagonal", 4, 1_000, 700.0),
        ("diagonal", "product_laplace", "diagonal", 4, 1_000, 701.0),
        ("directions", "gaussian", "full", 2, 1_000, 730.0),
        ("rescaled", "anova", "diagonal", 4, None, 344.0),
    ]
    names = ("start", "kernel", "shape", "n_components", "n_rows", "score")
    return {name: list(column) for name, column in zip(names, zip(*runs, strict=True), strict=True)}


def kernels_searched():
    """Return a model that was found by a search over kernels and shapes of the map."""
    model = diagonal()
    model.path_ = race()
    return model


def ensemble():
    """Return an ensemble with the search of `kernels_searched`."""
    model = made_ensemble(4, NAMES)
    model.path_ = race()
    return model


def _link_of_classes(n_components, n_features, n_classes):
    model = made_classifier(n_components, n_features, n_classes, names=NAMES[:n_features])
    return plotting.LinkDisplay.from_estimator(model, *made_labels(model))


def _residuals():
    model = with_intervals()
    return plotting.PredictionErrorDisplay.from_estimator(model, *made_data(model), kind="residual_vs_predicted")


PICTURES = {
    "link_curve": lambda: plotting.LinkDisplay.from_estimator(with_intervals(), *made_data(with_intervals())),
    "link_contour": lambda: _link(2, 4),
    "link_surface": lambda: _link(2, 4, kind="surface"),
    "link_classes": lambda: _link_of_classes(3, 4, 3),
    "link_columns": lambda: plotting.LinkDisplay.from_estimator(diagonal(), *made_data(diagonal())),
    "subspace_bars": lambda: plotting.SubspaceDisplay.from_estimator(
        made_model(2, 4, names=NAMES), B_true=np.eye(2, 4)
    ),
    "subspace_table": lambda: plotting.SubspaceDisplay.from_estimator(made_model(5, 30), max_columns=12),
    "subspace_columns": lambda: plotting.SubspaceDisplay.from_estimator(diagonal()),
    "importance": lambda: plotting.ImportanceDisplay.from_estimator(made_model(3, 30), max_columns=8),
    "prediction_error": lambda: plotting.PredictionErrorDisplay.from_estimator(
        made_model(2, 4), *made_data(made_model(2, 4))
    ),
    "residuals": _residuals,
    "training": lambda: plotting.TrainingDisplay.from_estimator(made_model()),
    "path_grid": lambda: plotting.PathDisplay.from_estimator(grid()),
    "path_learned": lambda: plotting.PathDisplay.from_estimator(learned_grid()),
    "path_directions": lambda: plotting.PathDisplay.from_estimator(searched()),
    "path_kernels": lambda: plotting.PathDisplay.from_estimator(kernels_searched()),
    "path_ensemble": lambda: plotting.PathDisplay.from_estimator(ensemble()),
}


def draw(name):
    """Return a small figure with a fixed layout, so that hiding one part does not move the other parts."""
    figure = PICTURES[name]().figure_
    figure.dpi = 60
    figure.canvas.draw()
    figure.set_layout_engine("none")
    return figure


def save(figure, path):
    """Save a figure at its own resolution."""
    figure.savefig(path, dpi=figure.dpi, metadata={"Software": None})


def n_different(figure, name):
    """Return the number of pixels that differ between a figure and its reference picture."""
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    expected = np.round(255 * plt.imread(REFERENCE / f"{name}.png")[..., :3]).astype(int)
    if drawn.shape != expected.shape:
        return max(drawn.size, expected.size) // 3
    return np.count_nonzero(np.max(np.abs(drawn - expected), axis=-1) > COLOUR_TOLERANCE)


def parts(figure):
    """Return the visible parts of a figure: a dict from the name of each part to its artists."""
    found = {}
    for i, ax in enumerate(figure.axes):
        # The background and the ticks are left out. A tick covers only three pixels, too few to be detected.
        alone = [child for child in ax.get_children() if child is not ax.patch and not isinstance(child, Axis | Spine)]
        groups = [[child] for child in alone if child not in ax.texts]
        groups += [list(ax.texts), list(ax.spines.values())]
        for axis in (child for child in ax.get_children() if isinstance(child, Axis) and child.get_visible()):
            groups += [[axis.label], axis.get_ticklabels(which="both")]
        if ax.get_legend() is not None:
            inside = ax.get_legend()
            groups += [[artist] for artist in (*inside.get_texts(), *inside.legend_handles, inside.get_title())]
        for j, group in enumerate(groups):
            seen = [artist for artist in group if artist.get_visible() and not _empty(artist)]
            if seen:
                found[f"axes {i}, part {j}: {seen[0]}"] = seen
    return found


def _empty(artist):
    if isinstance(artist, Text):
        return artist.get_text() == ""
    return isinstance(artist, LineCollection) and len(artist.get_segments()) == 0
