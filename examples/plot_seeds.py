"""
Several starting maps to avoid poor local minima
================================================

The objective is not convex, so a fit can end in a poor local minimum. `HyperKernelRidge` draws ten random maps and
scores them on held-out rows. It optimizes each of the best four maps for a decreasing sequence of lambdas, and then
continues from the map with the lowest objective. A fit from a single random map often ends in a worse minimum. The
final value of the objective reveals a poor minimum without test data.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

n_train = 250
data = make_mim_sines(n_train + 1000, n_features=10, n_components=2, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
rng = np.random.default_rng(0)
single = [HyperKernelRidge(2, init=rng.standard_normal((2, 10))).fit(X, y) for _ in range(8)]
several = [HyperKernelRidge(2, random_state=seed).fit(X, y) for seed in range(2)]

# %%
# Each point is one fit. Fits with a lower final objective predict better.

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for models, marker, colour, name in ((single, "o", "#999999", "one random map"), (several, "D", "#D55E00", "default")):
    objectives = [model.result_.objective for model in models]
    ax.plot(objectives, [model.score(X_test, y_test) for model in models], marker, color=colour, label=name, alpha=0.8)
ax.set(xlabel="final training objective", ylabel="test R2")
ax.legend(title="starting maps", frameon=False)
plt.show()
