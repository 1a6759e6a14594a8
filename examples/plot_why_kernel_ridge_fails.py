"""
Why kernel ridge regression on all inputs fails
===============================================

A kernel on all inputs compares rows by their distance in all of them. With twenty inputs every row is far from every
other, whatever the target looks at: the rows needed for a given accuracy grow exponentially with the inputs. On the
two directions that matter the same method needs few rows. Hyper-kernel ridge regression has to find them first.
"""

import matplotlib.pyplot as plt

from hkrr import HyperKernelRidgeCV
from hkrr.baselines import KernelRidgeCV
from hkrr.datasets import make_planted

n_train = 400
data = make_planted("correlated", n_train + 1000, n_features=20, random_state=0)
X_test, y_test = data.X[n_train:], data.y[n_train:]
sizes = [n_train // 8, n_train // 4, n_train // 2, n_train]
scores = {"on all inputs": [], "the map learned": [], "the map known": []}
for m in sizes:
    X, y = data.X[:m], data.y[:m]
    scores["on all inputs"].append(KernelRidgeCV().fit(X, y).score(X_test, y_test))
    learned = HyperKernelRidgeCV(n_components=2, random_state=0).fit(X, y)
    scores["the map learned"].append(learned.score(X_test, y_test))
    known = KernelRidgeCV().fit(X @ data.B.T, y)
    scores["the map known"].append(known.score(X_test @ data.B.T, y_test))

# %%
# Learning curves, each method with its parameters chosen by itself on the training rows. The map has 40 numbers: from
# 100 rows it is not found, and a wrong map is worse than none; from 200 rows it is as good as known. (With
# ``n_components="auto"``, the default, plain kernel ridge regression is what you get where no map holds up.)

figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
styles = {"on all inputs": ("#999999", "s--"), "the map learned": ("#D55E00", "o-"), "the map known": ("#0072B2", "^:")}
for name, (colour, style) in styles.items():
    ax.plot(sizes, scores[name], style, color=colour, label=name)
ax.axhline(1 / 1.01, color="black", lw=0.8)
ax.annotate("what the noise allows", (sizes[0], 1 / 1.01), (0, 4), textcoords="offset points", fontsize="small")
ax.set(xscale="log", xlabel="training rows", ylabel="test R2", ylim=(-0.2, 1.12), xticks=sizes, xticklabels=sizes)
ax.minorticks_off()
ax.legend(title="kernel ridge regression,", frameon=False, loc="lower right")
plt.show()
