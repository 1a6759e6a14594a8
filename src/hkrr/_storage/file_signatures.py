"""What a file is by its first bytes: one of ours, or what it seems to be, and what to do with that."""

from __future__ import annotations

# The names that safetensors' table has our header under.
MODEL, CHECKPOINT = "hkrr", "hkrr checkpoint"
# Bytes that are looked at.
SEEN = 512

_RUNS = "which runs whatever the file says: only if you trust whoever wrote it"
_PICKLE = f"seems to be a pickle: joblib.load reads it, {_RUNS}"
_PACKED = f"seems to be a compressed file: unpack it first (one of joblib.dump's joblib.load reads, {_RUNS})"
_BEGINNINGS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    (tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6)), _PICKLE),
    ((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\0\0", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"), _PACKED),
    ((b"PK\x03\x04",), "seems to be a ZIP archive (of NumPy, PyTorch or skops, say): read it with what wrote it"),
    ((b"\x08",), "seems to be an ONNX graph: onnxruntime runs it, and nothing makes an estimator of it again"),
    ((b"\x93NUMPY", b"PAR1"), "seems to be a table of numbers: fit a model to it"),
    ((b"version https://git-lfs",), "is a pointer of Git LFS, not the file itself: run git lfs pull"),
    (
        (b"<!", b"<html", b"<HTML", b"<?xml"),
        "seems to be a web page, saved in place of a file: download the file again",
    ),
)


def begins_as(start: bytes, kind: str) -> bool:
    """Whether a file begins as those of ours of that kind do, whatever becomes of it afterwards."""
    return start[8:].startswith(f'{{"__metadata__":{{"{kind}":'.encode())


def seems(start: bytes) -> str | None:
    """Return what a file seems to be, and what to do with it; None where its first bytes say nothing."""
    if begins_as(start, MODEL):
        return "is a saved model: hkrr.load reads it"
    if begins_as(start, CHECKPOINT):
        return "is the checkpoint of a fit: an estimator with checkpoint=... reads it"
    shown = start.lstrip(b"\xef\xbb\xbf \r\n")
    found = next((said for beginnings, said in _BEGINNINGS if shown.startswith(beginnings)), None)
    if found is not None and (start[:1] != b"\x08" or start[2:3] in (b"\x12", b"\x1a", b":")):  # fields of ONNX
        return found
    text = start.decode("utf-8", "ignore")
    if len(text) > 1 and all(letter.isprintable() or letter in "\t\r\n" for letter in text):
        return "seems to be a text, a table perhaps: the files of hkrr.save, and of checkpoints, are others"
    return None
