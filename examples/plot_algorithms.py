"""
The paper's two algorithms and L-BFGS
=====================================

The training objective ``L(B, a)`` has two unknowns: the map B and the coefficients a. The paper has two algorithms.
VarPro (variable projection) alternates a gradient step for B with an exact solution for a. AGD (alternating gradient
descent) alternates gradient steps for B and gradient steps for a. The library's default, L-BFGS, minimizes the reduced
objective ``H(B) = min_a L(B, a)``. At the coefficients that minimize L, the gradient of H equals the gradient of L with
respect to B.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge, NotConvergedWarning
from hkrr.datasets import make_mim_sines

data = make_mim_sines(200, n_features=20, n_components=2, B=np.eye(2, 20), random_state=0)
start = np.random.default_rng(0).uniform(size=(2, 20))
# The settings of the paper, with a limit on the number of iterations.
settings = {
    "n_components": 2,
    "reg_lambda": 1e-7,
    "n_centers": 5,
    "scale_features": False,
    "fit_intercept": False,
    "init": start / np.linalg.norm(start, 2),
    "max_iter": 200,
    "random_state": 0,
}

# %%
# VarPro and AGD keep the coefficients fixed during the line search for B. Their steps are therefore short, and they
# need thousands of iterations. The library includes both algorithms to reproduce the paper. The command
# ``hkrr reproduce convergence`` runs this comparison with the data sizes of the paper.

figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
styles = {"varpro": ("VarPro", "#D55E00", "--"), "agd": ("AGD", "#0072B2", "-."), "lbfgs": ("L-BFGS", "#009E73", "-")}
for solver, (name, colour, line) in styles.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # 200 iterations are too few for VarPro and AGD
        model = HyperKernelRidge(solver=solver, **settings).fit(data.X, data.y)
    history = model.history_
    print(f"{name:7s} ends at {model.result_.objective:.4f} after {model.n_iter_} iterations: {model.result_.message}")
    axes[0].plot(history["objective"], line, color=colour, label=name)
    axes[1].plot(history["time"], history["objective"], line, color=colour)
axes[0].set(xlabel="iterations", ylabel="training objective", xscale="symlog")
axes[1].set(xlabel="seconds")
axes[0].legend(frameon=False)
plt.show()
