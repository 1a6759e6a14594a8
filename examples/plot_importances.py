"""
Which columns matter
====================

``feature_importances_`` says how far each column moves the prediction: the slope along it, in the square mean over the
rows, times the spread of the column. Nothing is permuted, and nothing is fitted again. Here ``y = sin(2 x1) + 0.5 x2``,
and four more columns that mean nothing.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.inspection import permutation_importance

from hkrr import HyperKernelRidge

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 6))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=300)
model = HyperKernelRidge(2, criterion="evidence", reg_lambda="auto", random_state=0).fit(X, y)

permuted = permutation_importance(model, X, y, n_repeats=5, random_state=0).importances_mean
slopes = np.array([np.sqrt(2.0), 0.5, 0.0, 0.0, 0.0, 0.0])  # of the true function: sqrt(mean 4 cos^2) is near sqrt(2)

# %%
# Beside it the importances of the true function, by the same rule, and scikit-learn's permutation importances, which
# answer another question: how much worse the model becomes without the column.

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
