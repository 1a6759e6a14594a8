"""
Several starts
==============

The objective is not convex: a fit can end in a poor minimum. `HyperKernelRidge` samples ten maps, leads the best four
down a path of lambda, and goes on from the lowest. Without that, a random start ends where it ends. What tells the
good end from the poor ones is there without test data: the objective.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

n_train = 250
data = make_mim_sines(n_train + 1000, n_features=10, n_components=2, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
rng = np.random.default_rng(0)
alone = [HyperKernelRidge(2, init=rng.standard_normal((2, 10))).fit(X, y) for _ in range(10)]
led = [HyperKernelRidge(2, random_state=seed).fit(X, y) for seed in range(3)]

# %%
# Each point is a fit. The lower the objective it ends at, the better it predicts.

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for models, marker, colour, name in ((alone, "o", "#999999", "one random map"), (led, "D", "#D55E00", "the default")):
    objectives = [model.result_.objective for model in models]
    ax.plot(objectives, [model.score(X_test, y_test) for model in models], marker, color=colour, label=name, alpha=0.8)
ax.set(xlabel="training objective at the end", ylabel="test R2")
ax.legend(title="start", frameon=False)
plt.show()
