"""Saving and loading of models as safetensors files with JSON metadata, and export of models to ONNX.

`save` converts the model to JSON and arrays (`model_file`, `hkrr._storage.json_codec`), packs them into bytes
(`hkrr._storage.safetensors_format`), and writes the bytes atomically (`hkrr._storage.atomic_write`). `load` does the
reverse. It also checks the checksum of the bytes and the fitted attributes (`schemas`, `attribute_checks`). A loaded
model can therefore always predict or transform.
"""

from __future__ import annotations

from hkrr.saving.model_file import load, save, written_by
from hkrr.saving.onnx import to_onnx

__all__ = ["load", "save", "to_onnx", "written_by"]
