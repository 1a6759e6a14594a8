"""Conversion of classifiers that were saved by version 0.1.

Such a classifier consists of two parts. The first is a kernel expansion, whose values are the scores of the classes.
The second is ``regressor_``, a regression on class codes, which provided the initial map. For two classes, there is a
single score. The conversion gives an ensemble with one member: the regression, with the map and the coefficients of the
kernel expansion. The slope and the offsets of the link become part of the coefficients. With ``loss="squared"``, the
link has an additional parameter, the softness.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion, ShapeName
from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.classification.class_scores import ClassScores
from hkrr.estimators.classification.logistic_refinement import with_scores
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.kernels import Kernel

# The parameters of the classifier that have the same meaning in this version, and all parameters of version 0.1.
_KEPT = (
    "class_weight",
    "n_init",
    "refit",
    "time_limit",
    "scale_features",
    "block_size",
    "device",
    "n_jobs",
    "verbose",
    "random_state",
    "checkpoint",
    "checkpoint_every",
)
PARAMETERS = ("n_components", "loss", "kernel", *_KEPT)
# Attributes that a converted classifier has if the file contains them.
_COPIED = (
    "class_count_",
    "class_prior_",
    "held_out_log_loss_",
    "held_out_accuracy_",
    "feature_names_in_",
    "_sklearn_output_config",
)


class FormerClassifier:
    """The parameters and the fitted attributes of a `HyperKernelClassifier` of version 0.1.

    The parameters `n_components` and `kernel` are not used.
    """

    loss: str
    device: Any
    n_features_in_: int
    classes_: Array
    kernel_: Kernel
    map_: Array
    singular_values_: Array
    x_offset_: Array
    centers_: Array
    dual_coef_: Array
    intercept_: float | Array
    softness_: float | None
    regressor_: HyperKernelRidgeCV

    def __init__(
        self, *, n_components: Any = "auto", loss: str = "logistic", kernel: Any = "gaussian", **kept: Any
    ) -> None:
        vars(self).update(HyperKernelClassifier(**kept).get_params(deep=False), loss=loss)


def convert(former: FormerClassifier) -> HyperKernelClassifier:
    """Return a classifier with the same probabilities. `former` is a valid `FormerClassifier`."""
    parameters = {name: value for name, value in vars(former).items() if name in _KEPT}
    model = HyperKernelClassifier(**parameters)
    for name in _COPIED:
        if hasattr(former, name):
            setattr(model, name, getattr(former, name))
    regressor, n_classes = former.regressor_, len(former.classes_)
    alpha, b = former.dual_coef_.reshape(len(former.centers_), -1), np.atleast_1d(former.intercept_)
    function = KernelExpansion(former.kernel_, former.map_, former.centers_, alpha, b, former.x_offset_)
    member = with_scores(regressor, function, former.singular_values_)
    member.map_shape_ = getattr(former, "map_shape_", getattr(regressor, "map_shape_", ShapeName.FULL.value))
    member.truncation_ = np.broadcast_to(regressor.truncation_, n_classes).copy()
    member._store_uncertainty(None)  # the uncertainty of the regression does not describe the scores
    if former.softness_ is not None:
        model.softness_ = former.softness_
        if n_classes == 2:
            # The scores f and -f of version 0.1 become the probabilities (1 - f) / 2 and (1 + f) / 2.
            member.intercept_ = member.intercept_ + 0.5
    del parameters["class_weight"]
    scores = ClassScores(**parameters)
    scores.members_, scores.weights_ = [member], np.ones(1)
    scores.intercept_, scores.truncation_ = member.intercept_, member.truncation_
    scores.n_features_in_ = model.n_features_in_ = former.n_features_in_
    for name in ("path_", "diagnostics_"):
        if name in vars(member):
            setattr(scores, name, member.__dict__.pop(name))
    model.classes_, model.scores_, model.offsets_, model.refined_ = former.classes_, scores, np.zeros(n_classes), True
    return model
