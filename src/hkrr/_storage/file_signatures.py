"""Recognition of file types by the first bytes of a file, for error messages about files that hkrr cannot read."""

from __future__ import annotations

# Keys of the hkrr metadata in a safetensors header: one for saved models, one for checkpoints.
MODEL, CHECKPOINT = "hkrr", "hkrr checkpoint"
# Number of bytes that are read from the start of a file to recognize its type.
SIGNATURE_LENGTH = 512

# Parts of the texts in `_SIGNATURES`.
_RUNS = "but loading runs any code in the file, so do this only if you trust its source"
_PICKLE = f"seems to be a pickle; joblib.load reads it, {_RUNS}"
_COMPRESSED = (
    f"seems to be a compressed file; decompress it first (joblib.load reads files that joblib.dump wrote, {_RUNS})"
)
# Pairs of possible first bytes of a file, and the text that `describe` returns for such a file.
_SIGNATURES: tuple[tuple[tuple[bytes, ...], str], ...] = (
    (tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6)), _PICKLE),
    ((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\0\0", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"), _COMPRESSED),
    ((b"PK\x03\x04",), "seems to be a ZIP archive; read it with the program that wrote it (NumPy, PyTorch or skops)"),
    ((b"\x08",), "seems to be an ONNX graph; run it with onnxruntime, as it cannot be converted back to an estimator"),
    ((b"\x93NUMPY", b"PAR1"), "seems to be a table of numbers, not a model"),
    ((b"version https://git-lfs",), "is a Git LFS pointer, not the file itself; run git lfs pull"),
    (
        (b"<!", b"<html", b"<HTML", b"<?xml"),
        "seems to be a web page that was saved instead of the file; download the file again",
    ),
)


def has_signature(start: bytes, kind: str) -> bool:
    """Return whether a file with these first bytes is an hkrr file of the given kind (MODEL or CHECKPOINT)."""
    return start[8:].startswith(f'{{"__metadata__":{{"{kind}":'.encode())


def describe(start: bytes) -> str | None:
    """Return a description of the file type, guessed from the first bytes, and advice on what to do with the file.

    The text continues a sentence that starts with "it". Return None if the bytes are not recognized.
    """
    if has_signature(start, MODEL):
        return "is a saved model; hkrr.load reads it"
    if has_signature(start, CHECKPOINT):
        return "is the checkpoint of a fit; an estimator with checkpoint=... reads it"
    shown = start.lstrip(b"\xef\xbb\xbf \r\n")
    found = next((text for signatures, text in _SIGNATURES if shown.startswith(signatures)), None)
    if found is not None and (start[:1] != b"\x08" or start[2:3] in (b"\x12", b"\x1a", b":")):  # tags of ONNX fields
        return found
    text = start.decode("utf-8", "ignore")
    if len(text) > 1 and all(letter.isprintable() or letter in "\t\r\n" for letter in text):
        return "seems to be a text file, not a model or a checkpoint"
    return None
