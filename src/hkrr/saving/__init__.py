"""Saving and loading of models, as safetensors files with a JSON header, and export to ONNX.

`save` has three steps. The model is converted to JSON and arrays (`model_file`, `hkrr._storage.json_codec`). The JSON
and the arrays are packed into bytes (`hkrr._storage.safetensors_format`). The bytes are written atomically
(`hkrr._storage.atomic_write`). `load` reverses these steps. It also checks that the bytes match their header, and that
the fitted attributes are valid, so that the model can predict (`schemas`, `checks`).
"""

from __future__ import annotations

from hkrr.saving.model_file import load, save, written_by
from hkrr.saving.onnx import to_onnx

__all__ = ["load", "save", "to_onnx", "written_by"]
