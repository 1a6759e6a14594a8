"""
Resume an interrupted fit
=========================

With the parameter ``checkpoint``, a fit stores its state in a file. If an error or a power cut interrupts the fit, or
its process is killed, the same call of ``fit`` resumes the fit. The resulting model is identical, bit for bit, to the
model of an uninterrupted fit. In this example, an error in a callback interrupts the fit.
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
    """Raise an error after 20 iterations, to simulate an interruption."""
    if state.n_iter == 20:
        raise OSError("the disk is gone")


try:
    interrupted = HyperKernelRidge(checkpoint=checkpoint, checkpoint_every=0, callbacks=[fail_at_20], **settings)
    interrupted.fit(data.X, data.y)
except OSError as error:
    print(f"interrupted: {error}; the checkpoint is {checkpoint.stat().st_size:,} bytes in size")

# %%
# The same fit without the failing callback resumes from the file. The finished iterations are not repeated.

resumed = HyperKernelRidge(checkpoint=checkpoint, **settings).fit(data.X, data.y)
uninterrupted = HyperKernelRidge(**settings).fit(data.X, data.y)
print("identical predictions:", (resumed.predict(data.X) == uninterrupted.predict(data.X)).all())

figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
objective = resumed.history_["objective"]
ax.plot(uninterrupted.history_["objective"], color="#999999", lw=5, label="uninterrupted")
ax.plot(objective[:21], color="#0072B2", label="before the error")
ax.plot(range(20, len(objective)), objective[20:], color="#D55E00", label="after the error")
ax.axvline(20, color="black", lw=0.8, ls=":")
ax.set(xlabel="iterations", ylabel="training objective", yscale="log")
ax.legend(frameon=False)
plt.show()
folder.cleanup()
