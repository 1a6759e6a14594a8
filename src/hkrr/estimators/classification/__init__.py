"""Classification: a map is learned by regression, scores are fitted by minimizing a loss, and then calibrated.

The targets of the regression are class codes: the classes encoded as numbers.

Each module uses only the modules before it:

- `labels` encodes labels as numbers.
- `logistic_solver` and `logistic_objective` implement kernel logistic regression at a fixed map.
- `logistic_path` learns the map by the logistic loss.
- `score_function` is the function from inputs to scores.
- `probability_calibration` turns scores into probabilities.
- `losses` fits and calibrates the scores, for the logistic and for the squared loss.
- `summary` is the summary of a fitted classifier.
- `classifier` is the estimator.
"""

from hkrr.estimators.classification.classifier import HyperKernelClassifier

__all__ = ["HyperKernelClassifier"]
