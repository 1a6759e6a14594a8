"""
Save a model, or export it to ONNX
==================================

``hkrr.save`` writes a model to one file, and ``hkrr.load`` restores the model bit for bit. Loading a file never
executes code from the file. The file is in the safetensors format, so other programming languages can read its arrays.
``hkrr.to_onnx`` exports the prediction function as an ONNX graph. The export requires ``pip install "hkrr[onnx]"``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from safetensors import safe_open

import hkrr
from hkrr.datasets import make_mim_sines

data = make_mim_sines(300, n_features=10, n_components=2, random_state=0)
model = hkrr.HyperKernelRidge(2, n_init=3, random_state=0).fit(data.X, data.y)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    hkrr.save(model, path)
    again = hkrr.load(path)
    print("identical predictions:", (again.predict(data.X) == model.predict(data.X)).all())
    with safe_open(path, framework="numpy") as file:
        bytes_of = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118  # not a dict

# %%
# The centers take up most of the file. The inputs and outputs of the ONNX graph are float32, so its predictions differ
# from ``predict`` by rounding errors. The graph itself computes in float64, because the large terms of the sum over the
# centers cancel.

import onnxruntime  # noqa: E402  # only the export needs this package

session = onnxruntime.InferenceSession(hkrr.to_onnx(model).SerializeToString())
(predicted,) = session.run(None, {"X": data.X.astype(np.float32)})
difference = np.abs(predicted - model.predict(data.X))

figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
names = sorted(bytes_of, key=bytes_of.get)
axes[0].barh(names, [bytes_of[name] for name in names], color="#0072B2")
axes[0].set(xscale="log", title="The arrays of the file", xlabel="bytes")
axes[1].hist(np.log10(np.maximum(difference, 1e-12)), bins=25, color="#D55E00")
axes[1].set(title="ONNX against predict", xlabel="log10 of the absolute difference", ylabel="number of rows")
plt.show()
