"""
How sure is a prediction?
=========================

``predict(X, return_std=True)`` gives the standard deviation of the Gaussian process behind the model: small where there
are rows near, large far from all. ``predict_interval`` gives two ends that hold a new observation with the probability
asked for, by how far off the training rows are when each is left out: conformal prediction.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

data = make_planted("single", 2200, n_features=5, noise=0.1, random_state=0)
X, y, X_new, y_new = data.X[:200], data.y[:200], data.X[200:], data.y[200:]
model = HyperKernelRidge(1, criterion="evidence", reg_lambda="auto", random_state=0).fit(X, y)

# Along the direction, and beyond the rows.
walk = np.linspace(-6, 6, 200)[:, None] * data.B / np.linalg.norm(data.B) ** 2
lower, upper = model.predict_interval(walk, coverage=0.9)
predicted, deviation = model.predict(walk, return_std=True)
along = model.transform(walk)[:, 0]
print(f"standard deviation {deviation.min():.2f} among the rows, {deviation.max():.2f} far from them")

# %%
# Of the new rows about as many lie in their intervals as were asked for, at every level.

levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
held = [np.mean((low <= y_new) & (y_new <= high)) for low, high in (model.predict_interval(X_new, c) for c in levels)]
print("asked for", *levels, "held", *np.round(held, 3))

figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
axes[0].plot(model.transform(X)[:, 0], y, ".", color="#999999", ms=4, label="training rows")
axes[0].plot(along, predicted, color="#D55E00", label="prediction")
axes[0].fill_between(along, lower, upper, color="#D55E00", alpha=0.2, label="interval, 90%")
axes[0].set(xlabel="learned coordinate", ylabel="target")
axes[0].legend(frameon=False, fontsize="small")
axes[1].plot([0.45, 1], [0.45, 1], color="black", lw=0.8)
axes[1].plot(levels, held, "o", color="#0072B2")
axes[1].set(xlabel="coverage asked for", ylabel="share of new rows held", box_aspect=1)
plt.show()
