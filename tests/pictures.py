"""The pictures that are compared with those in tests/baseline, of models made by hand."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidgeCV, plotting
from made_models import made_classifier, made_data, made_labels, made_model

BASELINE = Path(__file__).parent / "baseline"
NAMES = ["cement", "slag", "water", "age in days"]


def _link(n_components, n_features, **options):
    model = made_model(n_components, n_features, names=NAMES[:n_features] if n_features <= 4 else None)
    return plotting.LinkDisplay.from_estimator(model, *made_data(model), **options)


class _WithIntervals(type(made_model())):
    """A model whose intervals are as wide as they are."""

    def predict_interval(self, X, coverage=0.9):
        predicted = self.predict(X)
        return predicted - 0.07 * coverage, predicted + 0.07 * coverage


def with_intervals():
    return made_model(1, 3, cls=_WithIntervals)


def _diagonal():
    model = made_model(4, 4, kernel="anova", names=NAMES, cls=HyperKernelRidgeCV)
    model.components_, model.map_shape_ = np.diag([1.0, 0.2, 0.6, 0.4]), "diagonal"
    return model


def grid():
    """A model that has chosen from a grid; one pair could not be fitted."""
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
    """A model that has chosen d, its lambda learned."""
    model = made_model(2, 4, cls=HyperKernelRidgeCV)
    model.cv_results_ = {
        "n_components": np.array([1, 2, 3]),
        "reg_lambda": np.array(["auto"] * 3),
        "mean_error": np.array([0.9, 0.06, 0.07]),
        "std_error": np.array([0.2, 0.01, 0.02]),
    }
    return model


def searched():
    """A model that has chosen among numbers of directions."""
    model = made_model(2, 4, cls=HyperKernelRidgeCV)
    starts = ["random", "random, dropped", "grown", "random", "shrunk", "moments", "polished", "compared", "plain"]
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


def kernels_searched():
    """A model that has chosen among kernels too."""
    model = _diagonal()
    runs = [
        ("random", "gaussian", "full", 400.0),
        ("plain, half", "laplace", "identity", 420.0),
        ("plain", "anova", "identity", 360.0),
        ("diagonal", "anova", "diagonal", 350.0),
        ("diagonal", "product_laplace", "diagonal", 351.0),
        ("directions", "matern52", "full", 390.0),
        ("diagonal, finalist", "anova", "diagonal", 345.0),
        ("diagonal, finalist", "product_laplace", "diagonal", 345.5),
        ("plain, finalist", "anova", "identity", 355.0),
        ("rescaled", "anova", "diagonal", 344.0),
    ]
    columns = zip(*runs, strict=True)
    model.path_ = {name: list(each) for name, each in zip(("start", "kernel", "shape", "score"), columns, strict=True)}
    model.path_["n_components"] = [4] * len(runs)
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
    "link_columns": lambda: plotting.LinkDisplay.from_estimator(_diagonal(), *made_data(_diagonal())),
    "subspace_bars": lambda: plotting.SubspaceDisplay.from_estimator(
        made_model(2, 4, names=NAMES), B_true=np.eye(2, 4)
    ),
    "subspace_table": lambda: plotting.SubspaceDisplay.from_estimator(made_model(5, 30), max_columns=12),
    "subspace_columns": lambda: plotting.SubspaceDisplay.from_estimator(_diagonal()),
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
}


def draw(name, path):
    """Save a picture, small, in matplotlib's own style."""
    with plt.style.context("default"):
        figure = PICTURES[name]().figure_
        figure.savefig(path, dpi=60, metadata={"Software": None})
        plt.close(figure)
