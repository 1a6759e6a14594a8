"""
Choose the number of directions
===============================

The number of directions d is usually unknown. `HyperKernelRidgeCV` first fits maps with many directions. Directions
that the target does not need shrink during the fit, and the search then removes the smallest directions. Maps with
different numbers of directions are compared by the Bayesian information criterion (BIC): the negative log evidence of
the equivalent Gaussian process, plus a penalty for the number of parameters. No rows are held out. The attribute
``path_`` lists the runs of the search, each with its number of directions and its BIC.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidgeCV
from hkrr.datasets import make_mim_mixed

n_train = 300
data = make_mim_mixed(n_train, n_features=10, n_components=3, random_state=0)
model = HyperKernelRidgeCV(random_state=0).fit(data.X, data.y)
print(f"{model.n_components_} directions, chosen from runs with d = {sorted(set(model.path_['n_components']))}")

# %%
# Each grey point in the left panel is one run of the search. For each d, only the run with the lowest BIC matters. More
# directions always fit the training rows better. If d exceeds the right number, the improvement is smaller than the
# penalty for the additional parameters.

searched = [
    (d, score)
    for start, d, score in zip(model.path_["start"], model.path_["n_components"], model.path_["score"], strict=True)
    if start in ("random", "moments", "cut", "widened")
]
tried, scores = np.array(searched).T
numbers = np.unique(tried).astype(int)
lowest = [scores[tried == d].min() for d in numbers]

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
axes[0].plot(tried, scores, "o", color="#999999", ms=5, label="runs")
axes[0].plot(numbers, lowest, "-o", color="#0072B2", label="best run for each d")
axes[0].plot(model.n_components_, min(lowest), "o", ms=14, mfc="none", color="#D55E00", label="chosen")
axes[0].set(xlabel="directions d", ylabel="BIC, in nats (lower is better)", xticks=numbers)
axes[0].legend(frameon=False)
directions = np.arange(1, len(model.spectrum_) + 1)
axes[1].bar(directions, model.spectrum_, color=np.where(directions <= model.n_components_, "#0072B2", "#999999"))
axes[1].set(title="The map before the cut", xlabel="direction", ylabel="singular value", xticks=directions)
plt.show()
