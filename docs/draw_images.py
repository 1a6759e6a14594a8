"""Draw the images of the user guide from the gallery examples: ``python docs/draw_images.py [NAME...]``.

Without a NAME, all images are drawn. They are stored in docs/images, so that the guide can be read without building the
documentation.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # pyplot is imported after the backend is set

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
