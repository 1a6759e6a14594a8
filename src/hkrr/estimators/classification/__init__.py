"""Classification: a regression on codes finds a map, a loss makes scores of it, a link makes them probabilities.

`classes` turns labels into numbers, `logistic` is the log loss and `logistic_path` the map by it, `calibration` goes
from scores to probabilities; `links` puts them together for each loss, and `classifier` is the estimator.
"""

from hkrr.classification.classifier import HyperKernelClassifier

__all__ = ["HyperKernelClassifier"]
