"""Storage of values in files. Values are converted to JSON and arrays, and stored in safetensors files.

Reading these files is safe, even if they come from an untrusted source.

Saved models (`hkrr.saving`) and checkpoints (`hkrr._storage.checkpoint`) use this package.
"""
