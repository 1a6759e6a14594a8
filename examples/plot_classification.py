"""
Classification with calibrated probabilities
============================================

`HyperKernelClassifier` combines regressions on the indicators of the classes, and predicts calibrated probabilities.
The data of this example have three classes. The probabilities of the classes depend on ten inputs through two
directions. The classifier finds these directions and refines them by minimizing the log loss.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelClassifier
from hkrr.datasets import make_mim_classes
from hkrr.plotting import LinkDisplay

n_train = 500
data = make_mim_classes(n_train + 1000, n_features=10, n_components=2, n_classes=3, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]
model = HyperKernelClassifier(random_state=0).fit(X, y)
best = np.mean(np.argmax(data.probabilities[n_train:], axis=1) == y_test)
print(f"accuracy {model.score(X_test, y_test):.3f}; with the true probabilities {best:.3f}")
print(f"{model.n_components_} directions, refined by the log loss: {model.refined_}")

# %%
# The left panel shows the predicted probabilities as a function of the learned coordinates, and test rows of each
# class. The right panel is a calibration curve. A point on the diagonal means that the observed frequency is equal to
# the predicted probability.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
LinkDisplay.from_estimator(model, X_test[:500], y_test[:500], ax=axes[0])

edges, probabilities = np.linspace(0, 1, 11), model.predict_proba(X_test)
predicted, observed = probabilities.ravel(), (y_test[:, None] == model.classes_).ravel()
bins = [(predicted >= low) & (predicted <= high) for low, high in pairwise(edges)]
bins = [rows for rows in bins if rows.any()]
axes[1].plot([0, 1], [0, 1], color="black", lw=0.8)
axes[1].plot([predicted[b].mean() for b in bins], [observed[b].mean() for b in bins], "o-", color="#D55E00")
axes[1].set(xlabel="predicted probability", ylabel="observed frequency", box_aspect=1)
plt.show()
