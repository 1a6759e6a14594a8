"""Storage of values in files. Values are converted to JSON and arrays, in a safetensors format that is safe to read.

Saved models (`hkrr.saving`) and checkpoints (`hkrr._storage.checkpoint`) use this package.
"""
