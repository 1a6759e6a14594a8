"""
A fit that is broken off goes on
================================

With ``checkpoint`` a fit keeps its state in a file. However it ends (a kill, a power cut, an error), the same call
goes on from there, and ends with the model of an unbroken fit, bit for bit. Here an error in a callback breaks it
off.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

data = make_mim_sines(300, n_features=10, n_components=2, random_state=0)
settings = {"n_components": 2, "init": "opg", "random_state": 0, "tol": 1e-10, "max_iter": 60}
folder = tempfile.TemporaryDirectory()
checkpoint = Path(folder.name) / "fit.checkpoint"


def fail_at_20(state):
    """Stand for a power cut."""
    if state.n_iter == 20:
        raise OSError("the disk is gone")


try:
    broken = HyperKernelRidge(checkpoint=checkpoint, checkpoint_every=0, callbacks=[fail_at_20], **settings)
    broken.fit(data.X, data.y)
except OSError as error:
    print(f"broken off: {error}; {checkpoint.stat().st_size:,} bytes are left")

# %%
# The same call again, without the fault. What was computed before is handed back, and not computed again.

resumed = HyperKernelRidge(checkpoint=checkpoint, **settings).fit(data.X, data.y)
unbroken = HyperKernelRidge(**settings).fit(data.X, data.y)
print("the same model, bit for bit:", (resumed.predict(data.X) == unbroken.predict(data.X)).all())

figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
ax.plot(unbroken.history_["objective"], color="#999999", lw=5, label="unbroken")
ax.plot(resumed.history_["objective"][:21], color="#0072B2", label="before the fault")
ax.plot(
    range(20, len(resumed.history_["objective"])), resumed.history_["objective"][20:], color="#D55E00", label="after"
)
ax.axvline(20, color="black", lw=0.8, ls=":")
ax.set(xlabel="iterations", ylabel="training objective", yscale="log")
ax.legend(frameon=False)
plt.show()
folder.cleanup()
