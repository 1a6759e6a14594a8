"""
Fit from a file larger than memory
==================================

A fit only needs sums over the rows. The rows can therefore stay in a file (Parquet, CSV or ``.npy``) that is read in
blocks, or come from a function that yields blocks. The model is the same, up to rounding errors, as the model fitted to
an array in memory. Fits on a GPU (``device="cuda"``) and fits to Dask collections on a cluster also give the same
model.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

data = make_planted("single", 2_000, n_features=10, random_state=0)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "rows.npy"
np.save(path, np.column_stack([data.X, data.y]))

settings = {"n_components": 1, "n_centers": 40, "n_init": 3, "max_iter": 20}
from_file = HyperKernelRidge(random_state=0, **settings).fit(path, 10)  # the target is column 10
in_memory = HyperKernelRidge(random_state=0, **settings).fit(data.X, data.y)


# %%
# A function that yields blocks is useful if the rows must first be decoded, joined or computed. The fit calls the
# function several times, and the function must yield the same blocks each time.


def blocks():
    """Return an iterator over two blocks of 1,000 rows. A block is a pair of arrays (inputs, targets)."""
    return ((data.X[k : k + 1000], data.y[k : k + 1000]) for k in range(0, 2000, 1000))


from_blocks = HyperKernelRidge(random_state=0, **settings).fit(blocks)

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
columns = np.arange(1, 11)
for shift, (model, name, colour) in enumerate(
    [(in_memory, "in memory", "#999999"), (from_file, "from a file", "#0072B2"), (from_blocks, "in blocks", "#D55E00")]
):
    direction = model.components_[0] * np.sign(model.components_[0, 0])
    axes[0].bar(columns + 0.27 * (shift - 1), direction, 0.25, color=colour, label=name)
axes[0].set(title="The learned direction", xlabel="column", ylabel="loading", xticks=columns)
axes[0].legend(frameon=False, fontsize="small")
order = np.argsort(in_memory.transform(data.X[:500])[:, 0])
axes[1].plot(in_memory.transform(data.X[:500])[order, 0], data.y[:500][order], ".", color="#999999")
axes[1].plot(from_file.transform(data.X[:500])[order, 0], from_file.predict(data.X[:500])[order], color="#0072B2")
axes[1].set(title="The learned function", xlabel="learned coordinate", ylabel="target")
plt.show()
print(f"largest difference between the loadings: {np.abs(from_file.components_ - in_memory.components_).max():.1e}")
folder.cleanup()
