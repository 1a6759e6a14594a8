"""
Six displays of a fitted model
==============================

`hkrr.plotting` has six displays of a fitted model. They show the loadings of the directions, the learned function, the
importances of the columns, the prediction errors, the progress of the solver, and the candidate models of the search.
"""

import matplotlib.pyplot as plt

from hkrr import HyperKernelRidgeCV
from hkrr.datasets import make_planted
from hkrr.plotting import (
    ImportanceDisplay,
    LinkDisplay,
    PathDisplay,
    PredictionErrorDisplay,
    SubspaceDisplay,
    TrainingDisplay,
)

n_train = 200
data = make_planted("correlated", n_train + 300, n_features=8, noise=0.05, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
model = HyperKernelRidgeCV(n_components=[1, 2, 3], random_state=0).fit(X, y)

figure, axes = plt.subplots(2, 3, figsize=(15, 9), layout="constrained")
SubspaceDisplay.from_estimator(model, B_true=data.B, ax=axes[0, 0])
LinkDisplay.from_estimator(model, X, y, ax=axes[0, 1])
ImportanceDisplay.from_estimator(model, ax=axes[0, 2])
PredictionErrorDisplay.from_estimator(model, X_test, y_test, ax=axes[1, 0])
TrainingDisplay.from_estimator(model, ax=axes[1, 1])
PathDisplay.from_estimator(model, ax=axes[1, 2])
plt.show()

# %%
# The same information as text:

print(model.summary())
