"""Redraw the reference pictures after an intended change.

    PYTHONPATH=tests python -m support.remake_reference_pictures [NAME ...]

Without a NAME, all pictures are redrawn. Look at each picture before committing it.
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt

mpl.use("agg")

from support.reference_pictures import PICTURES, REFERENCE, draw, save

if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        with plt.style.context("default"):
            save(draw(name), REFERENCE / f"{name}.png")
