"""
Classes, and how sure of them
=============================

`HyperKernelClassifier` learns directions for labels, and probabilities that mean what they say. Three classes,
whose probabilities depend on ten inputs through two directions. (With the default ``loss="logistic"`` it takes
longer, and the map is polished by the log loss.)
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelClassifier
from hkrr.datasets import make_mim_classes
from hkrr.plotting import LinkDisplay

n_train = 300
data = make_mim_classes(n_train + 2000, n_features=10, n_components=2, n_classes=3, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
model = HyperKernelClassifier(2, loss="squared", random_state=0).fit(X, y)
best = np.mean(np.argmax(data.probabilities[n_train:], axis=1) == y_test)
print(f"accuracy {model.score(X_test, y_test):.3f}; knowing the true probabilities {best:.3f}")

# %%
# Left, the probabilities over the learned coordinates, and rows of each class. Right, of the predictions with a given
# probability, how many came true: on the diagonal they mean what they say.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
LinkDisplay.from_estimator(model, X_test[:500], y_test[:500], ax=axes[0])

edges, probabilities = np.linspace(0, 1, 11), model.predict_proba(X_test)
said, true = probabilities.ravel(), (y_test[:, None] == model.classes_).ravel()
groups = [(said >= low) & (said <= high) for low, high in pairwise(edges)]
groups = [group for group in groups if group.any()]
axes[1].plot([0, 1], [0, 1], color="black", lw=0.8)
axes[1].plot([said[g].mean() for g in groups], [true[g].mean() for g in groups], "o-", color="#D55E00")
axes[1].set(xlabel="probability predicted", ylabel="share that came true", box_aspect=1)
plt.show()
