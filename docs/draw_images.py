"""``python docs/draw_images.py [NAME...]``: the pictures of the user guide, from the examples of the gallery.

They are kept in docs/images, so that the guide can be read where nothing is built.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of the backend

DOCS = Path(__file__).parent
NAMES = [
    "algorithms",
    "bad_fit",
    "classification",
    "displays",
    "few_centers",
    "first_model",
    "how_many_directions",
    "intervals",
    "smoothness",
    "table",
    "why_kernel_ridge_fails",
]

if __name__ == "__main__":
    plt.show = lambda: None
    for name in sys.argv[1:] or NAMES:
        example = DOCS.parent / "examples" / f"plot_{name}.py"
        exec(compile(example.read_text(), example, "exec"), {"__name__": "__main__"})
        plt.gcf().savefig(DOCS / "images" / f"{name}.png", dpi=90)
        plt.close("all")
