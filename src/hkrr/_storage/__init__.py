"""Values in files: as JSON and arrays (`values`), and these as bytes that are safe to read (`format`).

Models (`hkrr.saving`) and checkpoints (`hkrr.checkpoints`) are made of them.
"""
