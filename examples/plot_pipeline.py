"""
The map as a step of a pipeline
===============================

Both estimators are transformers too: ``transform`` gives the few latent coordinates. Any method of scikit-learn can
go on from there. Nearest neighbours, hopeless in twenty dimensions, are good in two; and a grid search works through
the pipeline as through any other.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

n_train = 400
data = make_planted("product", n_train + 1000, n_features=20, random_state=0)
X, y, X_test, y_test = data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:]

neighbours = KNeighborsRegressor(7, weights="distance")
directions = HyperKernelRidge(2, reg_lambda=1e-2, random_state=0)
pipelines = {
    "all 20 inputs": make_pipeline(StandardScaler(), neighbours),
    "2 of PCA": make_pipeline(StandardScaler(), PCA(2), neighbours),
    "2 of hkrr": make_pipeline(directions, StandardScaler(), neighbours),
}
scores = {name: pipeline.fit(X, y).score(X_test, y_test) for name, pipeline in pipelines.items()}

search = GridSearchCV(make_pipeline(directions, neighbours), {"kneighborsregressor__n_neighbors": [3, 7, 15]}, cv=2)
print("chosen by a grid search:", search.fit(X, y).best_params_)

# %%
# PCA looks at the inputs alone, which are spread alike in all directions here. The map looks at the target.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
axes[0].bar(list(scores), list(scores.values()), color=["#999999", "#999999", "#D55E00"], width=0.6)
axes[0].axhline(0, color="black", lw=0.8)
axes[0].set(title="7 nearest neighbours", ylabel="test R2", ylim=(min(0, *scores.values()), 1))
latent = pipelines["2 of hkrr"][0].transform(X_test)
points = axes[1].scatter(latent[:, 0], latent[:, 1], c=y_test, s=9, cmap="viridis")
axes[1].set(title="The two coordinates: a saddle", xlabel="coordinate 1", ylabel="coordinate 2")
figure.colorbar(points, label="target")
plt.show()
