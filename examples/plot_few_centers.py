"""
The number of centers, and how to choose them
=============================================

The learned function is a weighted sum of kernels at points called centers. If all rows are centers, kernel ridge
regression is solved exactly, but the cost is cubic in the number of rows. A few hundred centers (Nystrom approximation)
are usually enough. This example compares three choices of the centers: rows drawn uniformly, rows drawn by leverage
scores, and the centroids of k-means.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

n_train = 600
data = make_mim_sines(n_train + 1000, n_features=10, n_components=2, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
numbers = [5, 10, 20, 40, 80]
styles = {"uniform": ("#0072B2", "o-"), "leverage": ("#D55E00", "s--"), "kmeans": ("#009E73", "^:")}

# %%
# The starting map of every fit is the true map, so that the fits differ only in the centers. Leverage scores help if
# some regions of the input space contain few rows. Here the inputs are uniform on a cube, and there are no such
# regions. The paper's theorem on the Nystrom approximation requires a number of centers of order ``1 / lambda``, which
# does not depend on the number of rows. The default ``n_centers="auto"`` uses this number.

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for how, (colour, style) in styles.items():
    scores = [
        [
            HyperKernelRidge(2, n_centers=n, centers=how, init=data.B, max_iter=20, random_state=seed)
            .fit(X, y)
            .score(X_test, y_test)
            for seed in range(2)
        ]
        for n in numbers
    ]
    ax.plot(numbers, 1 - np.mean(scores, axis=1), style, color=colour, label=how)
ax.axhline(1 - 1 / 1.01, color="black", lw=0.8)
ax.annotate("noise level", (numbers[0], 1 - 1 / 1.01), (0, 4), textcoords="offset points", fontsize="small")
ax.set(xscale="log", yscale="log", xlabel="number of centers", ylabel="1 - test R2", xticks=numbers)
ax.set_xticklabels(numbers)
ax.minorticks_off()
ax.legend(title="centers=", frameon=False)
plt.show()
