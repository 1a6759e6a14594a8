"""Models in files: one safetensors file each, with a JSON header; and models as ONNX graphs.

`save` and `load` go through three steps: a model becomes JSON and arrays (`models`, `hkrr.records.values`), those
become bytes (`hkrr.records.format`), and the bytes a file, all of it or nothing (`hkrr.disk`). What is read is checked
twice: that the bytes are what their header says, and that the model can predict (`checks`).
"""

from __future__ import annotations

from hkrr.saving.model_file import load, save, written_by
from hkrr.saving.onnx import to_onnx

__all__ = ["load", "save", "to_onnx", "written_by"]
