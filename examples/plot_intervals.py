"""
Standard deviations and prediction intervals
============================================

``predict(X, return_std=True)`` also returns the predictive standard deviation of the equivalent Gaussian process. This
deviation is small near the training rows and large far from them. ``predict_interval`` returns intervals that contain a
new target with the requested probability. The intervals are computed by conformal prediction, from the leave-one-out
residuals of the training rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

data = make_planted("single", 1200, n_features=5, noise=0.1, random_state=0)
X, y, X_new, y_new = data.X[:200], data.y[:200], data.X[200:], data.y[200:]
model = HyperKernelRidge(1, criterion="evidence", reg_lambda="auto", n_init=3, random_state=0).fit(X, y)

# Points along the true direction, inside and outside the range of the training rows.
walk = np.linspace(-6, 6, 200)[:, None] * data.B / np.linalg.norm(data.B) ** 2
lower, upper = model.predict_interval(walk, coverage=0.9)
predicted, deviation = model.predict(walk, return_std=True)
along = model.transform(walk)[:, 0]
print(f"standard deviation: {deviation.min():.2f} near the training rows, {deviation.max():.2f} far from them")

# %%
# The observed coverage is the fraction of new targets that lie inside their intervals. It is close to the requested
# coverage at all levels.

levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
intervals = [model.predict_interval(X_new, level) for level in levels]
coverages = [np.mean((low <= y_new) & (y_new <= high)) for low, high in intervals]
print("requested coverage:", *levels, "observed coverage:", *np.round(coverages, 3))

figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
axes[0].plot(model.transform(X)[:, 0], y, ".", color="#999999", ms=4, label="training rows")
axes[0].plot(along, predicted, color="#D55E00", label="prediction")
axes[0].fill_between(along, lower, upper, color="#D55E00", alpha=0.2, label="90% interval")
axes[0].set(xlabel="learned coordinate", ylabel="target")
axes[0].legend(frameon=False, fontsize="small")
axes[1].plot([0.45, 1], [0.45, 1], color="black", lw=0.8)
axes[1].plot(levels, coverages, "o", color="#0072B2")
axes[1].set(xlabel="requested coverage", ylabel="observed coverage", box_aspect=1)
plt.show()
