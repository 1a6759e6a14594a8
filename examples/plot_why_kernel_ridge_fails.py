"""
Why kernel ridge regression on all inputs fails
===============================================

A kernel on all inputs compares rows by their distance in the full input space. With twenty inputs, all rows are far
from each other. The number of rows needed for a given accuracy grows exponentially with the number of inputs. In this
example, the target depends on the inputs through two directions. If the directions are known, kernel ridge regression
on the coordinates along these directions is accurate with 50 rows. Hyper-kernel ridge regression learns the directions.
"""

import matplotlib.pyplot as plt

from hkrr import HyperKernelRidgeCV
from hkrr.baselines import KernelRidgeCV
from hkrr.datasets import make_planted

n_train = 400
data = make_planted("correlated", n_train + 1000, n_features=20, random_state=0)
X_test, y_test = data.X[n_train:], data.y[n_train:]
sizes = [n_train // 8, n_train // 4, n_train // 2, n_train]
scores = {"all inputs": [], "learned map": [], "true map": []}
for m in sizes:
    X, y = data.X[:m], data.y[:m]
    scores["all inputs"].append(KernelRidgeCV().fit(X, y).score(X_test, y_test))
    learned = HyperKernelRidgeCV(n_components=2, random_state=0).fit(X, y)
    scores["learned map"].append(learned.score(X_test, y_test))
    known = KernelRidgeCV().fit(X @ data.B.T, y)
    scores["true map"].append(known.score(X_test @ data.B.T, y_test))

# %%
# The figure shows the test R2 as a function of the number of training rows. Each method chooses its parameters on the
# training rows. The map has 40 entries. With 100 rows, the learned map is wrong, and the predictions are worse than
# those of kernel ridge regression on all inputs. With 200 rows, the learned map is as good as the true map. This
# example fixes ``n_components=2``. With the default ``n_components="auto"``, the result is kernel ridge regression on
# all inputs if it predicts better than the learned map.

figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
styles = {"all inputs": ("#999999", "s--"), "learned map": ("#D55E00", "o-"), "true map": ("#0072B2", "^:")}
for name, (colour, style) in styles.items():
    ax.plot(sizes, scores[name], style, color=colour, label=name)
ax.axhline(1 / 1.01, color="black", lw=0.8)
ax.annotate("upper limit (noise)", (sizes[0], 1 / 1.01), (0, 4), textcoords="offset points", fontsize="small")
ax.set(xscale="log", xlabel="training rows", ylabel="test R2", ylim=(-0.2, 1.12), xticks=sizes, xticklabels=sizes)
ax.minorticks_off()
ax.legend(title="kernel ridge regression on", frameon=False, loc="lower right")
plt.show()
