"""
What lambda does
================

Lambda says how smooth the function is. Too small, and it follows the noise; too large, and it follows nothing. The
same data, one direction, three values of lambda, and the one that the evidence learns.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

data = make_planted("single", 1100, n_features=5, noise=0.3, random_state=0)
X, y, X_test, y_test = data.X[:100], data.y[:100], data.X[100:], data.y[100:]

figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained", sharey=True)
for ax, reg_lambda in zip(axes, [1e-7, 3e-2, 3.0, "auto"], strict=True):
    criterion = "evidence" if reg_lambda == "auto" else "training"
    model = HyperKernelRidge(1, reg_lambda=reg_lambda, criterion=criterion, random_state=0).fit(X, y)
    order = np.argsort(model.transform(X_test)[:, 0])
    ax.plot(model.transform(X)[:, 0], y, ".", color="#999999")
    ax.plot(model.transform(X_test)[order, 0], model.predict(X_test)[order], color="#D55E00", lw=2)
    name = f"learned: {model.reg_lambda_:.2g}" if reg_lambda == "auto" else f"{reg_lambda:g}"
    ax.set(title=f"lambda {name}\ntest R2 {model.score(X_test, y_test):.2f}", xlabel="learned coordinate")
axes[0].set(ylabel="target")
plt.show()

# %%
# With a map to turn, too small a lambda does harm twice: the function follows the noise, and the map is turned to
# make that easier. The training objective cannot see it; the evidence can, and so can held-out rows.
