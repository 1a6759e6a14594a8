"""Draw the pictures of tests/baseline anew, after a change that is meant: python tests/remake_baselines.py [NAME ...].

Look at each before it is committed.
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt

mpl.use("agg")

from pictures import BASELINE, PICTURES, draw, save

if __name__ == "__main__":
    BASELINE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        with plt.style.context("default"):
            save(draw(name), BASELINE / f"{name}.png")
