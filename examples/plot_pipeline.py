"""
Use the map in a pipeline
=========================

`HyperKernelRidge` and `HyperKernelRidgeCV` are also transformers. Their method ``transform`` returns the learned
coordinates. Any scikit-learn estimator can use these coordinates as inputs. In this example, a nearest-neighbour
regression fails on the twenty inputs and works well on two learned coordinates. A grid search works as with any other
pipeline.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

n_train = 300
data = make_planted("product", n_train + 1000, n_features=20, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]

neighbours = KNeighborsRegressor(7, weights="distance")
directions = HyperKernelRidge(2, reg_lambda=1e-2, n_init=3, random_state=0)
grid = {"kneighborsregressor__n_neighbors": [3, 7]}
pipelines = {
    "20 inputs": make_pipeline(StandardScaler(), neighbours),
    "PCA": make_pipeline(StandardScaler(), PCA(2), neighbours),
    "hkrr": GridSearchCV(make_pipeline(directions, StandardScaler(), neighbours), grid, cv=2),
}
scores = {name: pipeline.fit(X, y).score(X_test, y_test) for name, pipeline in pipelines.items()}
print("chosen by the grid search:", pipelines["hkrr"].best_params_)

# %%
# PCA does not use the target. The inputs of this example have the same variance in all directions, so PCA cannot find
# the directions that determine the target. `HyperKernelRidge` uses the target to learn the map.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
axes[0].bar(list(scores), list(scores.values()), color=["#999999", "#999999", "#D55E00"], width=0.6)
axes[0].axhline(0, color="black", lw=0.8)
axes[0].set(title="Nearest neighbours", xlabel="inputs", ylabel="test R2", ylim=(min(0, *scores.values()), 1))
latent = pipelines["hkrr"].best_estimator_[0].transform(X_test)
points = axes[1].scatter(latent[:, 0], latent[:, 1], c=y_test, s=9, cmap="viridis")
axes[1].set(title="The learned coordinates: a saddle", xlabel="coordinate 1", ylabel="coordinate 2")
figure.colorbar(points, label="target")
plt.show()
