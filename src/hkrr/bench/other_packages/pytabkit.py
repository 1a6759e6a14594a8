"""The package pytabkit: boosted trees with meta-tuned defaults ("TD"), the neural network RealMLP-TD, and xRFM.

The models get numbers and categories without missing values. They use a fifth of the training rows only for
validation, which is the package's default.
"""

from __future__ import annotations

import time
from typing import Any

from hkrr.bench.method_interface import CLASSIFICATION, REGRESSION, Answer, BenchmarkTask, Method, predictions
from hkrr.bench.preparation import imputed

# Fraction of the time limit that is passed to the models that have a time limit. Predictions need the rest.
_SHARE = 0.85


def _model(name: str, about: str, package: str, **options: Any) -> Method:
    """Return a model of pytabkit as a benchmark method. Options whose value is None get the time limit."""

    def run(task: BenchmarkTask) -> Answer:
        import pytabkit

        began = time.perf_counter()
        limited = {key: _SHARE * task.seconds if value is None else value for key, value in options.items()}
        settings = {"device": "cpu", "random_state": task.seed, "n_threads": task.threads, **limited}
        fitting = {"time_to_fit_in_seconds": _SHARE * task.seconds} if name == "RealMLP_TD" else {}
        if task.n_classes:
            # By default, the models stop early by the classification error, but the ranks are based on the log loss.
            # The other options are those that the package recommends for the log loss.
            settings |= {"val_metric_name": "cross_entropy"}
            settings |= {"calibration_method": "ts-mix"} if package in ("probmetrics", "xrfm") else {}
            settings |= {"use_ls": False} if name == "RealMLP_TD" else {}
        kind = "Classifier" if task.n_classes else "Regressor"
        model = getattr(pytabkit, f"{name}_{kind}")(**settings).fit(task.X, task.y, **fitting)
        fit_seconds = time.perf_counter() - began
        return Answer(predictions(model, task.X_test, task), None, fit_seconds, "default")

    return Method(run, about, ("torch", package, "pytabkit"), (REGRESSION, CLASSIFICATION), imputed)


METHODS = {
    "catboost_td": _model("CatBoost_TD", "CatBoost with pytabkit's meta-tuned defaults", "catboost"),
    "lightgbm_td": _model("LGBM_TD", "LightGBM with pytabkit's meta-tuned defaults", "lightgbm"),
    "xgboost_td": _model("XGB_TD", "XGBoost with pytabkit's meta-tuned defaults", "xgboost"),
    "realmlp_td": _model("RealMLP_TD", "pytabkit's neural network RealMLP with meta-tuned defaults", "probmetrics"),
    "xrfm_d": _model("XRFM_D", "pytabkit's xRFM with default parameters", "xrfm", time_limit_s=None),
    "xrfm_hpo": _model("XRFM_HPO", "pytabkit's xRFM with its random search", "xrfm", time_limit_s=None),
}
