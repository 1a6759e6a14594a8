"""
A file larger than memory, in pieces
====================================

All that a fit needs of the data is sums over rows. So the rows may stay in a file (Parquet, CSV or ``.npy``), and are
read again in pieces for each pass, or come from a function that makes blocks. It is the same model up to rounding,
and so it is on a GPU (``device="cuda"``) and for Dask collections on a cluster.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_planted

data = make_planted("single", 4_000, n_features=10, random_state=0)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "rows.npy"
np.save(path, np.column_stack([data.X, data.y]))

settings = {"n_components": 1, "n_centers": 50, "max_iter": 30}
from_file = HyperKernelRidge(random_state=0, **settings).fit(path, 10)  # the target is column 10
in_memory = HyperKernelRidge(random_state=0, **settings).fit(data.X, data.y)


# %%
# A function gives blocks, the same each time it is called: for data that must be decoded, joined or computed first.


def blocks():
    """Return 4 blocks of 1,000 rows."""
    return ((data.X[k : k + 1000], data.y[k : k + 1000]) for k in range(0, 4000, 1000))


from_blocks = HyperKernelRidge(random_state=0, **settings).fit(blocks)

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
columns = np.arange(1, 11)
for shift, (model, name, colour) in enumerate(
    [(in_memory, "in memory", "#999999"), (from_file, "from a file", "#0072B2"), (from_blocks, "in blocks", "#D55E00")]
):
    direction = model.components_[0] * np.sign(model.components_[0, 0])
    axes[0].bar(columns + 0.27 * (shift - 1), direction, 0.25, color=colour, label=name)
axes[0].set(title="The direction, three times", xlabel="column", ylabel="loading", xticks=columns)
axes[0].legend(frameon=False, fontsize="small")
order = np.argsort(in_memory.transform(data.X[:500])[:, 0])
axes[1].plot(in_memory.transform(data.X[:500])[order, 0], data.y[:500][order], ".", color="#999999")
axes[1].plot(from_file.transform(data.X[:500])[order, 0], from_file.predict(data.X[:500])[order], color="#0072B2")
axes[1].set(title="The function", xlabel="learned coordinate", ylabel="target")
plt.show()
print(f"largest difference of a loading: {np.abs(from_file.components_ - in_memory.components_).max():.1e}")
folder.cleanup()
