"""PNG images of a function of two directions, and of the regions of classes. Colours are paler far from the rows."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from scipy.ndimage import zoom

from hkrr._base.linear_algebra import Array
from hkrr.reporting.class_input import Classes
from hkrr.reporting.class_regions import ClassRegions
from hkrr.reporting.link_function import Surface

# The viridis colours, from low to high values. They are perceptually uniform and safe for colour-blind readers.
RAMP = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
# Number of colour bands.
BANDS = 12
# The colours of the classes, as in report.css. The last colour is for all classes without a colour of their own.
CLASS_COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f5fc7", "#8c6d31", "#6b8e00", "#a8324a"),
    "#858b91",
)
_OTHER = len(CLASS_COLOURS) - 1
# Opacities of a region far from the rows, and close to the rows if the probability of the most probable class is below
# 0.6, from 0.6 to 0.8, and above 0.8.
_OPACITIES, _PROBABILITIES = (26, 64, 105, 150), (0.6, 0.8)
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
    opacities = [255] * BANDS + [_PALE] * BANDS
    return _png(np.where(close >= 0.5, band, band + BANDS), band_colours() * 2, opacities)


def regions_png(regions: ClassRegions, classes: Classes) -> str:
    """Return an image of the regions of the classes as base64-encoded PNG.

    The opacity of a colour depends on the probability of the most probable class. Far from the rows, it is lowest.
    """
    level = 1 + np.searchsorted(_PROBABILITIES, np.array(regions.probability), side="right")
    level = np.where(np.array(regions.is_near), level, 0)
    colour = np.array([_OTHER if (found := classes.colour(k)) is None else found for k in range(classes.n_known)])
    indices = len(_OPACITIES) * colour[np.array(regions.most_probable)] + level
    colours = [_rgb(each) for each in CLASS_COLOURS for _ in _OPACITIES]
    return _png(indices.T[::-1], colours, list(_OPACITIES) * len(CLASS_COLOURS))


def band_colours() -> list[tuple[int, int, int]]:
    """Return the colour of each band, from low to high."""
    known = np.array([_rgb(colour) for colour in RAMP], dtype=np.float64)
    places = np.linspace(0, len(RAMP) - 1, BANDS)
    columns = [np.interp(places, np.arange(len(RAMP)), known[:, channel]) for channel in range(3)]
    return [(round(r), round(g), round(b)) for r, g, b in zip(*columns, strict=True)]


def _rgb(colour: str) -> tuple[int, int, int]:
    """Return the channels of a colour such as "#440154"."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def _png(indices: Array, colours: Sequence[tuple[int, int, int]], opacities: Sequence[int]) -> str:
    """Return an image as base64-encoded PNG. A pixel is an index of a colour and of its opacity (0 to 255)."""
    height, width = indices.shape
    lines = b"".join(b"\0" + line.astype(np.uint8).tobytes() for line in indices)
    parts = (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", bytes(channel for colour in colours for channel in colour)),
        _chunk(b"tRNS", bytes(opacities)),
        _chunk(b"IDAT", zlib.compress(lines, 9)),
        _chunk(b"IEND", b""),
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
