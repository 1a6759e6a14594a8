"""
A first multi-index model
=========================

The target depends on twenty inputs through two unknown directions. From 300 noisy rows, `HyperKernelRidgeCV` finds the
number of directions, the directions, and the target as a function of the coordinates along these directions.
"""

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.metrics import subspace_distance

n_train = 300
data = make_mim_sines(n_train + 1000, n_features=20, n_components=2, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]

model = HyperKernelRidgeCV(random_state=0).fit(X, y)
print(
    f"{model.n_components_} directions, test R2 {model.score(X_test, y_test):.3f} (at most 0.990 because of the noise)"
)
print(f"distance to the true subspace: {subspace_distance(model.components_, data.B):.2f}")

# %%
# The data are synthetic, so the true function is known. In the left panel, the colours show the true function over two
# of the twenty inputs. No structure is visible. The middle panel shows the true function over the learned coordinates,
# and the right panel the learned function. The two functions agree. The learned coordinates ``X @ components_.T`` are
# returned by ``transform``.

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
latent = model.transform(X_test)
noiseless = make_mim_sines(len(data.X), n_features=20, n_components=2, noise=0.0, random_state=0).y[n_train:]
limits = {"vmin": np.min(noiseless), "vmax": np.max(noiseless), "cmap": "viridis", "s": 9}

axes[0].scatter(X_test[:, 0], X_test[:, 1], c=noiseless, **limits)
axes[0].set(title="Two of the twenty inputs", xlabel="input 1", ylabel="input 2")
axes[1].scatter(latent[:, 0], latent[:, 1], c=noiseless, **limits)
axes[1].set(title="The true function", xlabel="learned coordinate 1", ylabel="learned coordinate 2")
points = axes[2].scatter(latent[:, 0], latent[:, 1], c=model.predict(X_test), **limits)
axes[2].set(title="The learned function", xlabel="learned coordinate 1", ylabel="learned coordinate 2")
figure.colorbar(points, ax=axes, label="target")
plt.show()
