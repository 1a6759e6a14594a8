"""
Tables: choose the kernel and the shape of the map
==================================================

In most tables, the columns have separate effects, and a few directions do not describe the target well. With
``kernel="auto"``, `HyperKernelRidgeCV` uses the evidence to choose one of several kernels and one of three shapes of
the map. The shapes are the identity (plain kernel ridge regression), one scale for each column, and a few directions.
The data are Friedman's first problem, ``y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5`` plus noise. The columns
x6 to x10 are irrelevant.
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
print(f"chosen kernel: {chosen.kernel_}, shape of the map: {chosen.map_shape_!r}")

# %%
# The right panel shows the weight of each input: the norm of its column of the map, for standardized inputs. Inputs
# with a linear effect (x4, x5) have a small weight, and irrelevant inputs have a weight near zero.

weights = np.linalg.norm(chosen.components_ * X.std(axis=0), axis=0)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
axes[0].barh(list(scores), list(scores.values()), color=["#999999", "#999999", "#D55E00"])
axes[0].set(xlabel="test R2", xlim=(0, 1))
for k, score in enumerate(scores.values()):
    axes[0].text(score - 0.01, k, f"{score:.3f}", ha="right", va="center", color="white")
axes[1].bar([f"x{j + 1}" for j in range(10)], weights / weights.max(), color="#D55E00")
axes[1].set(ylabel="relative weight in the map")
plt.show()
