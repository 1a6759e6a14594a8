"""
Feature importances
===================

``feature_importances_`` measures how strongly each column changes the prediction. The importance of a column is the
root mean square, over the rows, of the partial derivative of the prediction with respect to the column, times the
standard deviation of the column. The importances are scaled so that they sum to 1. No permutations and no refits are
needed. In this example, the target is ``y = sin(2 x1) + 0.5 x2`` plus noise, and the columns x3 to x6 are irrelevant.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.inspection import permutation_importance

from hkrr import HyperKernelRidge

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 6))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=200)
model = HyperKernelRidge(2, criterion="evidence", reg_lambda="auto", n_init=3, random_state=0).fit(X, y)

permuted = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
# Root mean square slopes of the true function. For x1 the slope is 2 cos(2 x1), with a root mean square near sqrt(2).
slopes = np.array([np.sqrt(2.0), 0.5, 0.0, 0.0, 0.0, 0.0])

# %%
# For comparison, the figure shows the importances of the true function by the same definition, and scikit-learn's
# permutation importances. A permutation importance is the decrease of R2 when the column is shuffled.

figure, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
positions = np.arange(6)
bars = {
    "feature_importances_": (model.feature_importances_, "#D55E00"),
    "true slopes": (slopes, "#0072B2"),
    "permutation": (permuted, "#999999"),
}
for k, (name, (values, colour)) in enumerate(bars.items()):
    ax.bar(positions + 0.27 * (k - 1), values / values.sum(), 0.25, color=colour, label=name)
ax.set(ylabel="importance, sums to 1", xticks=positions, xticklabels=[f"x{j + 1}" for j in positions])
ax.legend(frameon=False)
plt.show()
