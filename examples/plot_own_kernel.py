"""
Define a custom kernel
======================

A radial kernel is a function phi of ``u = gamma |p - c|^2``, where p and c are two points in the learned coordinates
and gamma is the scale of the kernel. A custom kernel only has to return phi(u) and the negative derivative -phi'(u).
The gradients, the criteria and the search then work as for the built-in kernels. This example defines the Cauchy
kernel, which has heavy tails.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted
from hkrr.kernels import Gaussian, Laplace, Radial


@dataclass(frozen=True, kw_only=True)
class Cauchy(Radial):
    """The Cauchy kernel, ``1 / (1 + gamma |p - c|^2)``."""

    def value_and_decay(self, u):
        """Return phi(u) and -phi'(u)."""
        phi = 1.0 / (1.0 + u)
        return phi, phi * phi


n_train = 200
data = make_planted("steps", n_train + 1000, n_features=10, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]

# %%
# The target ``sign(p1) + |p2|``, a function of the coordinates p1 and p2 along two directions, has jumps and kinks. The
# criterion ``"evidence"`` learns the map, its scale and lambda for each kernel.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
distance = np.linspace(0, 4, 200)[:, None]
scores = {}
for kernel, colour, line in ((Gaussian(), "#0072B2", "--"), (Laplace(), "#009E73", ":"), (Cauchy(), "#D55E00", "-")):
    name = type(kernel).__name__
    axes[0].plot(distance, kernel.with_gamma(1.0)(distance, np.zeros((1, 1))), line, color=colour, label=name)
    model = HyperKernelRidge(2, kernel=kernel, criterion="evidence", reg_lambda="auto", n_init=3, random_state=0)
    scores[name] = model.fit(X, y).score(X_test, y_test)
axes[0].set(title="Three kernels", xlabel="distance", ylabel="k(p, c) at gamma = 1")
axes[0].legend(frameon=False)
axes[1].bar(list(scores), list(scores.values()), color=["#0072B2", "#009E73", "#D55E00"], width=0.6)
axes[1].bar_label(axes[1].containers[0], fmt="%.3f")
axes[1].set(title="A target with jumps and kinks", ylabel="test R2", ylim=(0, 1.1))
plt.show()
