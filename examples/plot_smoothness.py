"""
The effect of lambda
====================

The regularization parameter lambda controls the smoothness of the learned function. If lambda is too small, the
function follows the noise. If lambda is too large, the function is almost constant. This example fits the same data
with three values of lambda, and with ``reg_lambda="auto"``, which learns lambda with the criterion ``"evidence"``.
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
    model = HyperKernelRidge(1, reg_lambda=reg_lambda, criterion=criterion, n_init=4, random_state=0).fit(X, y)
    order = np.argsort(model.transform(X_test)[:, 0])
    ax.plot(model.transform(X)[:, 0], y, ".", color="#999999")
    ax.plot(model.transform(X_test)[order, 0], model.predict(X_test)[order], color="#D55E00", lw=2)
    name = f"learned: {model.reg_lambda_:.2g}" if reg_lambda == "auto" else f"{reg_lambda:g}"
    ax.set(title=f"lambda {name}\ntest R2 {model.score(X_test, y_test):.2f}", xlabel="learned coordinate")
axes[0].set(ylabel="target")
plt.show()

# %%
# Because the map is learned too, a lambda that is too small causes two problems: the function follows the noise, and
# the map adapts so that the function can follow the noise more closely. The training objective does not detect this
# overfitting, but the evidence and the error on held-out rows do.
