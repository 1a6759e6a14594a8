"""PNG images of a function of two directions. The image consists of colour bands, which are paler far from the rows."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from scipy.ndimage import zoom

from hkrr._base.linear_algebra import Array
from hkrr.reporting.link_function import Surface

# The viridis colours, from low to high values. They are perceptually uniform and safe for colour-blind readers.
RAMP = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
# Number of colour bands.
BANDS = 12
# Approximate length of a side of the image, in pixels.
_PIXELS = 240
# Opacity of the colours far from the rows, from 0 to 255 (opaque).
_PALE = 70


def contour_png(surface: Surface, low: float, high: float) -> str:
    """Return an image of the surface as base64-encoded PNG. The colours cover the values from `low` to `high`.

    The first direction is the horizontal axis, and the second direction is the vertical axis.
    """
    values = np.array(surface.value).T[::-1]
    near = np.array(surface.near).T[::-1]
    factor = _PIXELS / len(values)
    fine, close = zoom(values, factor, order=1), zoom(near, factor, order=1)
    share = np.clip((fine - low) / (high - low), 0.0, 1.0) if high > low else np.full_like(fine, 0.5)
    band = np.minimum((share * BANDS).astype(np.uint8), BANDS - 1)
    return base64.b64encode(_png(np.where(close >= 0.5, band, band + BANDS))).decode()


def band_colours() -> list[tuple[int, int, int]]:
    """Return the colour of each band, from low to high."""
    known = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in RAMP], dtype=np.float64)
    places = np.linspace(0, len(RAMP) - 1, BANDS)
    columns = [np.interp(places, np.arange(len(RAMP)), known[:, channel]) for channel in range(3)]
    return [(round(r), round(g), round(b)) for r, g, b in zip(*columns, strict=True)]


def _png(indices: Array) -> bytes:
    """Return a PNG image with a palette: the opaque colours of the bands, followed by the pale colours."""
    height, width = indices.shape
    lines = b"".join(b"\0" + line.astype(np.uint8).tobytes() for line in indices)
    palette = bytes(channel for colour in band_colours() * 2 for channel in colour)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette),
            _chunk(b"tRNS", bytes([255] * BANDS + [_PALE] * BANDS)),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
