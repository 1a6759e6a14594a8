"""
A table, whose columns each mean something
==========================================

Few tables are multi-index models: their columns matter each in its own way. ``kernel="auto"`` chooses, by the same
evidence, among several kernels and three shapes of the map: all columns alike (plain kernel ridge regression), a
scale for each column, or a few directions. Here ``y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5``, and five
more columns that mean nothing (Friedman's first problem).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

from hkrr import HyperKernelRidgeCV
from hkrr.baselines import KernelRidgeCV

n_train = 200
X, y = make_friedman1(n_train + 500, n_features=10, noise=1.0, random_state=0)
X, X_test, y, y_test = X[:n_train], X[n_train:], y[:n_train], y[n_train:]

models = {
    "kernel ridge": KernelRidgeCV(),
    "random forest": RandomForestRegressor(100, random_state=0),
    'kernel="auto"': HyperKernelRidgeCV(kernel="auto", random_state=0),
}
scores = {name: model.fit(X, y).score(X_test, y_test) for name, model in models.items()}
chosen = models['kernel="auto"']
print(f"chosen: {chosen.kernel_} on a map of the shape {chosen.map_shape_!r}")

# %%
# The lengths of the map's columns say at which inputs it looks, in units of their spread. A column that acts in a
# straight line (x4, x5) needs a small one; one that means nothing gets none.

weights = np.linalg.norm(chosen.components_ * X.std(axis=0), axis=0)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
axes[0].barh(list(scores), list(scores.values()), color=["#999999", "#999999", "#D55E00"])
axes[0].set(xlabel="test R2", xlim=(0, 1))
for k, score in enumerate(scores.values()):
    axes[0].text(score - 0.01, k, f"{score:.3f}", ha="right", va="center", color="white")
axes[1].bar([f"x{j + 1}" for j in range(10)], weights / weights.max(), color="#D55E00")
axes[1].set(ylabel="weight in the map")
plt.show()
