"""Models whose fitted attributes are set by hand, so that their numbers are the same on every machine."""

from dataclasses import replace

import numpy as np
import pandas as pd

from hkrr import HyperKernelClassifier, HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators.classification.class_scores import ClassScores
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.kernels import get_kernel
from hkrr.solvers import Result
from hkrr.solvers.driver import MESSAGES

N_CENTERS = 40
# Diagnostics that cause no warnings.
NO_FINDINGS = Diagnostics(
    condition=1e3,
    digits=12.0,
    jitter=0.0,
    effective_dimension=5.0,
    explained_share=0.9,
    truncated_share=None,
    overshooting_share=None,
    starts_tried=10,
    starts_dropped=9,
    starts_failed=0,
    stopped="converged",
    still_falling=False,
    at_edge=(),
    remedies=("reg_lambda", "max_iter", "n_init"),
)


def points(n, n_features, first=1):
    """Return low-discrepancy points in [-1, 1]^n_features, rounded so that they are the same on all machines."""
    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
    steps = np.sqrt(np.array([primes[j % 10] + 30 * (j // 10) for j in range(n_features)], dtype=np.float64))
    return 2.0 * np.round((np.arange(first, n + first)[:, None] * steps) % 1.0, 6) - 1.0


def made_model(n_components=2, n_features=4, *, kernel="gaussian", n_targets=1, names=None, cls=HyperKernelRidge):
    """Return a regressor whose fitted attributes are set by hand."""
    d, D = n_components, n_features
    model = cls(n_components=d)
    B = np.array([[((3 * i + 2 * j) % 5 - 1.6) * 0.7**i for j in range(D)] for i in range(d)])
    model.map_ = np.round(B / np.linalg.norm(B, 2), 6)
    model.singular_values_ = 0.5 ** np.arange(d)
    model.centers_ = points(N_CENTERS, D)
    model.x_offset_ = np.full(D, 0.1)
    model.kernel_ = get_kernel(kernel).with_gamma(0.8)
    model.gamma_ = 0.8
    Z = model.centers_ @ model.components_.T
    alpha = np.round(np.sin(4.0 * Z[:, :1]) + 0.5 * Z[:, -1:] ** 2, 6) / 4.0
    alpha = alpha if n_targets == 1 else alpha * (-0.5) ** np.arange(n_targets)
    model.dual_coef_ = alpha[:, 0] if n_targets == 1 else alpha
    model.intercept_ = 2.0 if n_targets == 1 else np.full(n_targets, 2.0)
    model.reg_lambda_, model.n_features_in_, model.n_iter_ = 1e-3, D, 12
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    steps = np.arange(13.0)
    model.history_ = {
        "time": list(0.01 * steps),
        "objective": list(np.round(0.05 + 0.9 * 0.5**steps, 6)),
        "grad_norm": list(np.round(2.0 * 0.3**steps, 9)),
        "step": [0.1] * 13,
    }
    two_dimensional = alpha.reshape(N_CENTERS, -1)
    model.result_ = Result(
        model.components_, two_dimensional, 0.0502, 1e-3, 12, "stalled", MESSAGES["stalled"], dict(model.history_)
    )
    found = {"effective_dimension": 22.2, "explained_share": 0.93, "n_rows": 300, "n_centers": N_CENTERS}
    model.diagnostics_ = replace(NO_FINDINGS, **found, stopped="stalled", remedies=())
    if cls is HyperKernelRidgeCV:
        model.n_components_, model.best_score_, model.map_shape_ = d, -812.5, "full"
        model.truncation_ = 10.0 if n_targets == 1 else np.full(n_targets, 10.0)
    return model


def made_ensemble(n_features=4, names=None, n_targets=1):
    """Return an ensemble whose fitted attributes are set by hand.

    The first of its two members has a map with two directions, the second a diagonal map.
    """
    options = {"n_targets": n_targets, "names": names, "cls": HyperKernelRidgeCV}
    few = made_model(2, n_features, **options)
    diagonal = made_model(n_features, n_features, kernel="anova", **options)
    diagonal.map_, diagonal.map_shape_ = np.linspace(1.0, 0.2, n_features), "diagonal"
    model = HyperKernelEnsemble()
    model.members_, model.weights_ = [few, diagonal], np.array([0.75, 0.2])
    model.diagnostics_ = few.diagnostics_
    for member in model.members_:
        del member.diagnostics_
    for name in ("intercept_", "truncation_", "n_features_in_", *(["feature_names_in_"] if names is not None else [])):
        setattr(model, name, getattr(few, name))
    model.noise_variance_ = 0.25 if n_targets == 1 else np.linspace(0.25, 4.0, n_targets)
    return model


def made_classifier(n_components=2, n_features=4, n_classes=2, *, refined=True, n_members=1, names=None):
    """Return a classifier whose fitted attributes are set by hand. Its labels are "a", "b" and so on.

    The map of the first member is full. If there is a second member, its map is diagonal.
    """
    model, scores = HyperKernelClassifier(), ClassScores()
    scores.members_ = [_made_scores(n_components, n_features, n_classes, "gaussian", refined)]
    if n_members == 2:
        diagonal = _made_scores(n_features, n_features, n_classes, "anova", refined)
        diagonal.map_, diagonal.map_shape_ = np.linspace(1.0, 0.2, n_features), "diagonal"
        scores.members_.append(diagonal)
    scores.weights_ = np.array([1.0]) if n_members == 1 else np.array([0.75, 0.5])
    first = scores.members_[0]
    scores.n_features_in_ = model.n_features_in_ = n_features
    scores.intercept_, scores.truncation_, scores.diagnostics_ = first.intercept_, first.truncation_, first.diagnostics_
    for member in scores.members_:
        del member.diagnostics_
    scores.path_ = {"start": ["random"], "kernel": ["gaussian"], "shape": ["full"]}
    scores.path_.update(n_components=[n_components], n_rows=[None], score=[-100.0])
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    model.scores_, model.refined_, model.offsets_ = scores, refined, np.zeros(n_classes)
    model.classes_ = np.array(list("abcdefghijkl")[:n_classes])
    model.class_count_ = 20 + 10 * np.arange(n_classes)
    model.class_prior_ = model.class_count_ / np.sum(model.class_count_)
    model.held_out_log_loss_, model.held_out_accuracy_ = 0.4, 0.85
    return model


def _made_scores(n_components, n_features, n_classes, kernel, refined):
    """Return a member of `made_classifier`: logarithms of probabilities if `refined`, and otherwise probabilities."""
    member = made_model(n_components, n_features, kernel=kernel, n_targets=n_classes, cls=HyperKernelRidgeCV)
    member.n_components = "auto"  # as in a member of a fitted ensemble
    Z, K = member.centers_ @ member.components_.T, n_classes
    angles = 2.0 * np.pi * np.arange(K) / K
    scores = 3.0 * np.cos(3.0 * Z[:, :1] + angles) + 1.5 * Z[:, -1:] * np.sin(angles + 1.0)
    alpha = np.round(np.linalg.solve(member.kernel_(Z, Z) + 0.1 * np.eye(N_CENTERS), scores), 4)
    if K == 2:
        alpha, member.intercept_ = alpha[:, :1] * np.array([-0.5, 0.5]), np.array([-0.05, 0.05])
    else:
        member.intercept_ = np.zeros(K)
    if not refined:
        alpha, member.intercept_ = alpha / 8.0, member.intercept_ + 1.0 / K
    member.dual_coef_ = alpha
    return member


def made_labels(model, n=120):
    """Return the rows of `made_data` and their most probable labels. Every ninth label is replaced."""
    X = points(n, model.n_features_in_, first=1000)
    if hasattr(model, "feature_names_in_"):
        X = pd.DataFrame(X, columns=model.feature_names_in_)
    index = np.argmax(model.predict_proba(X), axis=1)
    index[::9] = np.arange(len(index[::9])) % len(model.classes_)
    return X, model.classes_[index]


def made_data(model, n=120):
    """Return rows, and targets that differ from the predictions of the model by small errors.

    The rows are a data frame if the columns of the model have names.
    """
    X = points(n, model.n_features_in_, first=1000)
    if hasattr(model, "feature_names_in_"):
        X = pd.DataFrame(X, columns=model.feature_names_in_)
    noise = np.round(0.05 * np.sin(17.0 * np.arange(n)), 6)
    predicted = model.predict(X)
    return X, predicted + (noise if predicted.ndim == 1 else noise[:, None])
