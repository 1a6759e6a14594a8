"""Classification: an ensemble of regressions on the indicators of the classes, and a link to probabilities.

Each module uses only the modules before it:

- `labels` encodes labels as numbers.
- `class_link` maps the scores of several models to probabilities, and computes the weights of the models.
- `class_scores` is the ensemble of regressions.
- `logistic_solver` and `logistic_objective` implement kernel logistic regression at a fixed map.
- `logistic_path` learns a map with few directions by the logistic loss.
- `logistic_refinement` replaces the best regression by such a map.
- `summary` is the summary of a fitted classifier.
- `classifier` is the estimator.
"""

from hkrr.estimators.classification.classifier import HyperKernelClassifier

__all__ = ["HyperKernelClassifier"]
