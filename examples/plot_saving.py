"""
A model in a file, and without Python
=====================================

``hkrr.save`` writes one file that runs nothing when it is loaded, whoever wrote it; ``hkrr.load`` gives the same
model, bit for bit. Its arrays can be read with nothing but safetensors, in any language. ``hkrr.to_onnx`` (extra
``onnx``) makes a graph that predicts wherever there is an ONNX runtime.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from safetensors import safe_open

import hkrr
from hkrr.datasets import make_mim_sines

data = make_mim_sines(400, n_features=20, n_components=2, random_state=0)
model = hkrr.HyperKernelRidge(2, random_state=0).fit(data.X, data.y)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    hkrr.save(model, path)
    again = hkrr.load(path)
    print("the same predictions:", (again.predict(data.X) == model.predict(data.X)).all())
    with safe_open(path, framework="numpy") as file:
        bytes_of = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118  # it is no dict

# %%
# The centers take nearly all of the file. The graph computes in float64, since the coefficients of kernel models
# cancel, and takes and gives float32: that is what its predictions differ by.

import onnxruntime  # noqa: E402  # the part above does without it

session = onnxruntime.InferenceSession(hkrr.to_onnx(model).SerializeToString())
(predicted,) = session.run(None, {"X": data.X.astype(np.float32)})
difference = np.abs(predicted - model.predict(data.X))

figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
names = sorted(bytes_of, key=bytes_of.get)
axes[0].barh(names, [bytes_of[name] for name in names], color="#0072B2")
axes[0].set(xscale="log", title="The arrays of the file", xlabel="bytes")
axes[1].hist(np.log10(np.maximum(difference, 1e-12)), bins=25, color="#D55E00")
axes[1].set(title="ONNX and predict", xlabel="log10 of the difference (targets are of size 1)", ylabel="rows")
plt.show()
