"""The link of the classifier: probabilities from the scores of several models.

The scores f_1(x), ..., f_K(x) of a model are regressions on the indicators of the K classes (1 in the rows of a class,
0 elsewhere). They estimate the probabilities of the classes, but they are shrunk, and can lie outside [0, 1]. The
probability of class j, given the scores of several models m, is

    p_j(x) = softmax over j of ( sum_m w_m g(f_mj(x)) + b_j ),    g(f) = log(softplus(f / s)),  s = 0.2.

For f well above s, g is the logarithm of f up to a constant. For f well below zero, g is nearly linear. The logarithm
matters for rare classes, whose scores are all small. For example, if a score rises from 0 to 0.3, the probability of
its class, relative to the other classes, grows by the factor 2.5 for w_m = 1. With g(f) = f, the factor would be only
1.35. Scores that were learned by the logistic loss are already logarithms of probabilities. For such scores, g is the
identity.

The weights w_m >= 0, which are not constrained to sum to 1, and the offsets b_j minimize the log loss of rows that were
left out of the fits, plus a price for the parameters of the maps:

    ``sum_i w_i loss_i / W  +  price * sum_m w_m p_m / (W sum_m w_m)``

Here w_i are the weights of the rows, W is their sum, and p_m is the number of parameters of the map of model m. The
maps were learned from all rows, so the log loss of a model is too small, by about one nat for each parameter (Akaike,
1974). The labels are smoothed, in the spirit of Platt (1999): the target of a row is its indicator, mixed with the
frequencies of the classes. The frequencies have the weight 1 / (W + 2). Without this smoothing, the weights would be
infinite for separable classes, and some probabilities would be zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from hkrr._base.linear_algebra import Array
from hkrr.estimators.search.search_and_refit import LeftOutPredictions
from hkrr.estimators.search.stacking import Stacking

# The constant s of the module docstring, and the price of a parameter in nats.
SOFTNESS, PRICE = 0.2, 1.0
# Lower bound on probabilities. A score far outside the range of the training scores shows that the row differs from all
# training rows. It does not show that the class of the row is certain.
LEAST_PROBABILITY = 1e-9
# Models whose share of the sum of the weights is below this number are left out.
_LEAST_SHARE = 0.01
# Maximum number of iterations of L-BFGS.
_MAX_ITER = 300


@dataclass(frozen=True)
class ClassLink:
    """The weights of the models, the offsets of the classes, and whether the logarithm of the scores is taken.

    `softness` is a parameter of the link that version 0.1 used with ``loss="squared"``. It is None for other
    classifiers.
    """

    weights: Array
    offsets: Array
    of_logarithms: bool = True
    softness: float | None = None

    def log_probabilities(self, scores: Sequence[Array]) -> Array:
        """Return the logarithms of the probabilities, up to a constant in each row. `scores`: see `probabilities`."""
        each = [soft_log(one) if self.of_logarithms else one for one in scores]
        found = sum(weight * one for weight, one in zip(self.weights, each, strict=True)) + self.offsets
        return found if self.softness is None else _log_soft_step(found, self.softness)

    def probabilities(self, scores: Sequence[Array]) -> Array:
        """Return the class probabilities (n, n_classes).

        `scores` contains one array of shape (n, n_classes) for each model.
        """
        p = np.maximum(np.exp(log_softmax(self.log_probabilities(scores), axis=1)), LEAST_PROBABILITY)
        return p / np.sum(p, axis=1, keepdims=True)


def soft_log(scores: Array) -> Array:
    """Return g(f) of the module docstring, the logarithm of softplus(f / s)."""
    u = scores / SOFTNESS
    # For u far below zero, softplus(u) is exp(u), which may be zero in floating point.
    return np.where(u > -30.0, np.log(np.logaddexp(0.0, np.maximum(u, -30.0))), u)


def _log_soft_step(u: Array, s: float) -> Array:
    """Return the logarithm of the integral of sigmoid((u - t) / s) over t in [0, 1], the link of version 0.1.

    The integral is ``psi(u) = s log((1 + e^(u/s)) / (1 + e^((u-1)/s)))``. For u > 1/2, it is computed as
    ``1 - psi(1 - u)``, which avoids the cancellation of large numbers.
    """
    low = np.minimum(u, 1.0 - u)
    part = s * (np.logaddexp(0.0, low / s) - np.logaddexp(0.0, (low - 1.0) / s))
    return np.log(np.maximum(np.where(u > 0.5, 1.0 - part, part), LEAST_PROBABILITY))


@dataclass(frozen=True)
class LinkFit:
    """A link, and the quality of its probabilities on the rows to which it was fitted."""

    link: ClassLink
    log_loss: float
    accuracy: float
    price: float  # the last term of the objective

    @property
    def expected_log_loss(self) -> float:
        """The log loss that is expected on new rows."""
        return self.log_loss + self.price


def fit_link(left_out: LeftOutPredictions, of_logarithms: bool = True) -> LinkFit:
    """Return the link that minimizes the objective of the module docstring.

    If `of_logarithms` is True, the predictions are those of regressions on indicators, minus the frequencies of the
    classes, as `hkrr.estimators.search.search_and_refit.select_members` returns them.
    """
    w = left_out.row_weight
    # The targets are indicators minus frequencies, so the largest target of a row is that of its class.
    index = np.argmax(left_out.targets, axis=1)
    labels = np.eye(left_out.targets.shape[1])[index]
    frequencies = labels[0] - left_out.targets[0]
    scores = [one + frequencies if of_logarithms else one for one in left_out.predictions]
    each = np.stack([soft_log(one) if of_logarithms else one for one in scores])
    prices = left_out.price * left_out.n_parameters / float(np.sum(w))
    kept = np.arange(len(each))
    while True:
        found, offsets = _minimize(each[kept], labels, w, prices[kept])
        small = found < _LEAST_SHARE * np.sum(found)
        if not np.any(small) or np.all(small):
            break
        kept = kept[~small]
    weights = np.zeros(len(each))
    weights[kept] = found
    link = ClassLink(weights, offsets, of_logarithms)
    p = link.probabilities(scores)
    own, right = p[np.arange(len(p)), index], np.argmax(p, axis=1) == index
    total = float(np.sum(weights))
    price = float(weights @ prices) / total if total > 0 else 0.0
    return LinkFit(link, -float(np.average(np.log(own), weights=w)), float(np.average(right, weights=w)), price)


def _minimize(each: Array, labels: Array, w: Array, prices: Array) -> tuple[Array, Array]:
    """Return the weights of the models and the offsets of the classes. `each` holds the values g(f) of each model."""
    n_models, W = len(each), float(np.sum(w))
    rare = 1.0 / (W + 2.0)
    frequencies = (w @ labels) / W
    log_frequencies = np.log(np.maximum(frequencies, rare))
    target = (1.0 - rare) * labels + rare * frequencies
    share, size = w[:, None] / W, np.sqrt(np.mean(each**2, axis=(1, 2)))
    size = np.where(size > 0, size, 1.0)
    each = each / size[:, None, None]

    def objective(theta: Array) -> tuple[float, Array]:
        v, b = theta[:n_models], theta[n_models:]
        log_p = log_softmax(np.tensordot(v, each, 1) + b, axis=1)
        error = share * (np.exp(log_p) - target)
        by_v, by_b = np.tensordot(each, error, ([1, 2], [0, 1])), np.sum(error, axis=0)
        # The price is the mean of the prices with the weights v / size.
        shares = v / size
        total = float(np.sum(shares)) or 1.0
        price = float(shares @ prices) / total
        by_v += (prices - price) / (size * total)
        return price - float(np.sum(share * target * log_p)), np.append(by_v, by_b)

    bounds = [(0.0, None)] * n_models + [(None, None)] * labels.shape[1]
    settings = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"maxiter": _MAX_ITER}}
    # The price is not convex, so the models are also tried one at a time.
    starts = [np.full(n_models, 1.0 / n_models), *(np.eye(n_models) if n_models > 1 else ())]
    values = [objective(np.append(start, log_frequencies))[0] for start in starts]
    ends = [minimize(objective, np.append(starts[k], log_frequencies), **settings) for k in {0, int(np.argmin(values))}]
    best = min(ends, key=lambda end: float(end.fun)).x
    return best[:n_models] / size, best[n_models:]


def _weights(
    predictions: Sequence[Array], targets: Array, row_weight: Array, n_parameters: Array, price: float
) -> Array:
    left_out = LeftOutPredictions(list(predictions), targets, row_weight, n_parameters, price)
    return fit_link(left_out).link.weights


# The weights of an ensemble whose targets are indicators of classes.
LOG_LOSS = Stacking(_weights, PRICE, 0.0, PRICE, of_classes=True)
