"""
The paper's two algorithms beside L-BFGS
========================================

The training objective ``L(B, a)`` has two unknowns, the map B and the coefficients a. The paper's VarPro steps in B,
and solves for a exactly; its AGD takes some gradient steps in each. L-BFGS (the default) minimises the reduced
function ``H(B) = min_a L(B, a)``, whose gradient costs no more, and remembers its last steps.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge, NotConvergedWarning
from hkrr.datasets import make_mim_sines

data = make_mim_sines(200, n_features=20, n_components=2, B=np.eye(2, 20), random_state=0)
start = np.random.default_rng(0).uniform(size=(2, 20))
settings = {  # the paper's
    "n_components": 2,
    "reg_lambda": 1e-7,
    "n_centers": 5,
    "scale_features": False,
    "fit_intercept": False,
    "init": start / np.linalg.norm(start, 2),
    "max_iter": 400,
    "random_state": 0,
}

# %%
# The line searches of VarPro and AGD hold the coefficients while B moves, so that their steps are short: they take
# thousands. They are here to study the paper; `hkrr reproduce convergence` has the comparison at its sizes.

figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
styles = {"varpro": ("VarPro", "#D55E00", "--"), "agd": ("AGD", "#0072B2", "-."), "lbfgs": ("L-BFGS", "#009E73", "-")}
for solver, (name, colour, line) in styles.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # they are not meant to end
        model = HyperKernelRidge(solver=solver, **settings).fit(data.X, data.y)
    history = model.history_
    print(f"{name:7s} ends at {model.result_.objective:.4f} after {model.n_iter_} iterations: {model.result_.message}")
    axes[0].plot(history["objective"], line, color=colour, label=name)
    axes[1].plot(history["time"], history["objective"], line, color=colour)
axes[0].set(xlabel="iterations", ylabel="training objective", xscale="symlog")
axes[1].set(xlabel="seconds")
axes[0].legend(frameon=False)
plt.show()
