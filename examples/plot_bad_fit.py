"""
Warnings about a poor fit
=========================

Every fitted model has diagnostics in ``diagnostics_``. If the diagnostics indicate a problem, ``fit`` issues a warning
that suggests a remedy. This example fits the same data four times: once with good settings, and three times with a
mistake in the settings.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HKRRWarning, HyperKernelRidge
from hkrr.datasets import make_mim_sines

n_train = 300
data = make_mim_sines(n_train + 500, n_features=10, n_components=2, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
poor_start = np.random.default_rng(0).standard_normal((2, 10))
faults = {
    "good settings": {},
    "lambda too large": {"reg_lambda": 1e3},
    "gamma too large": {"gamma": 1e9},
    "too few iterations": {"reg_lambda": 1e-4, "n_centers": 20, "init": poor_start, "max_iter": 50},
}

figure, axes = plt.subplots(1, 4, figsize=(13, 4), layout="constrained", sharex=True, sharey=True)
for ax, (name, settings) in zip(axes, faults.items(), strict=True):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HKRRWarning)
        model = HyperKernelRidge(2, random_state=0, **settings).fit(X, y)
    print(f"{name}: R2 {model.score(X_test, y_test):.2f}")
    for warning in caught:
        print(f"    {warning.category.__name__}: {warning.message}")
    ax.plot(y_test, model.predict(X_test), ".", ms=3, color="#0072B2" if not settings else "#D55E00")
    ax.axline((0, 0), slope=1, color="black", lw=0.8)
    categories = "\n".join(warning.category.__name__ for warning in caught) or "no warning"
    ax.set(title=f"{name}\n{categories}", xlabel="target", box_aspect=1)
axes[0].set(ylabel="prediction", xlim=np.quantile(y_test, [0, 1]), ylim=np.quantile(y_test, [0, 1]))
plt.show()

# %%
# The diagnostics of the last fit:

print(model.diagnostics_)
