"""
Few centers
===========

The function is a sum of kernels at centers. All rows as centers is exact, and cubic in the rows; a few hundred of
them usually do. How many, and which: rows drawn uniformly, rows drawn by leverage scores (where the kernel has its
degrees of freedom), or the centroids of k-means.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

data = make_mim_sines(2500, n_features=10, n_components=2, random_state=0)
X, y, X_test, y_test = data.X[:1000], data.y[:1000], data.X[1000:], data.y[1000:]
numbers = [5, 10, 20, 40, 80, 160]
styles = {"uniform": ("#0072B2", "o-"), "leverage": ("#D55E00", "s--"), "kmeans": ("#009E73", "^:")}

# %%
# From the true map, so that the centers alone make the difference. (A planted model in a cube has no rare regions,
# for which leverage scores are meant.) The paper's theorem asks for the order of ``1 / lambda`` centers, whatever the
# number of rows; ``n_centers="auto"`` takes that.

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for how, (colour, style) in styles.items():
    scores = [
        [
            HyperKernelRidge(2, n_centers=n, centers=how, init=data.B, max_iter=30, random_state=seed)
            .fit(X, y)
            .score(X_test, y_test)
            for seed in range(2)
        ]
        for n in numbers
    ]
    ax.plot(numbers, 1 - np.mean(scores, axis=1), style, color=colour, label=how)
ax.axhline(1 - 1 / 1.01, color="black", lw=0.8)
ax.annotate("what the noise leaves", (numbers[0], 1 - 1 / 1.01), (0, 4), textcoords="offset points", fontsize="small")
ax.set(xscale="log", yscale="log", xlabel="centers, of 1,000 rows", ylabel="1 - test R2", xticks=numbers)
ax.set_xticklabels(numbers)
ax.minorticks_off()
ax.legend(title="centers=", frameon=False)
plt.show()
