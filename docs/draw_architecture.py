"""Draw the packages of hkrr and the imports between them: ``python docs/draw_architecture.py`` writes the picture.

The layers are read from the import contract in pyproject.toml. The imports are read from the source by grimp, the
library that import-linter uses. The text in each box is the first sentence of the package's docstring. An import is not
drawn if a chain of other imports implies it; otherwise nearly every package would have an arrow to ``_base``. The
metadata of the picture contain the layers, the captions and the arrows as text, so that a test can check whether the
picture is up to date.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections import Counter
from itertools import permutations
from pathlib import Path

import grimp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Polyline

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "architecture.png"

# Sizes in inches. LANE is the distance between arrows that pass on the same side of a box.
BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, PAGE_WIDTH, LANE = 3.1, 0.8, 1.3, 15.0, 0.1


def read_layers() -> list[list[str]]:
    """Return the packages of each layer of the import contract, from the top layer to the bottom layer."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["hkrr"])
    return [layer.replace("|", ":").replace(" ", "").split(":") for layer in layers]


def read_imports() -> set[tuple[str, str]]:
    """Return the pairs (importing package, imported package). Imports in ``hkrr/__init__.py`` are left out."""
    graph = grimp.build_graph("hkrr")
    pairs = {
        (importer.split(".")[1], imported.split(".")[1])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if "." in importer and "." in imported
    }
    return {(importer, imported) for importer, imported in pairs if importer != imported}


def without_implied(imports: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the transitive reduction: the imports without those that a chain of other imports implies."""
    targets: dict[str, set[str]] = {}
    for importer, imported in imports:
        targets.setdefault(importer, set()).add(imported)

    def reachable(start: str, skipped: tuple[str, str]) -> set[str]:
        found, waiting = set(), [start]
        while waiting:
            package = waiting.pop()
            new = {other for other in targets.get(package, ()) if (package, other) != skipped} - found
            found |= new
            waiting += new
        return found

    return {
        (importer, imported)
        for importer, imported in imports
        if imported not in reachable(importer, (importer, imported))
    }


def describe(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    path = ROOT / "src" / "hkrr" / package
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    first = (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n\n")[0]
    return " ".join(first.split()).split(". ")[0].rstrip(".").replace("``", "").replace("`", "")


def arrange(layers: list[list[str]], imports: set[tuple[str, str]]) -> list[list[str]]:
    """Return the layers, with the packages of each layer in the order that makes the arrows within it shortest."""

    def length(order: tuple[str, ...]) -> int:
        within = [(a, b) for a, b in imports if a in order and b in order]
        return sum(abs(order.index(a) - order.index(b)) for a, b in within)

    return [list(min(permutations(layer), key=length)) for layer in layers]


def describe_picture(layers: list[list[str]], imports: set[tuple[str, str]]) -> str:
    """Return the layers, the captions and the arrows as text, which is stored in the metadata of the picture."""
    captions = [f"{package}: {describe(package)}" for layer in layers for package in sorted(layer)]
    arrows = [f"{importer} -> {imported}" for importer, imported in sorted(imports)]
    return "\n".join([*(" | ".join(sorted(layer)) for layer in layers), *captions, *arrows])


def draw(path: Path = PICTURE) -> None:
    """Draw the layers as rows of boxes, with an arrow from each package to the packages it imports."""
    imports = without_implied(read_imports())
    layers = arrange(read_layers(), imports)
    boxes = {  # for each package: the row and the x coordinate of the centre of its box
        package: (row, PAGE_WIDTH * (column + 0.5) / len(layer))
        for row, layer in enumerate(layers)
        for column, package in enumerate(layer)
    }
    figure, axes = plt.subplots(figsize=(PAGE_WIDTH, ROW_HEIGHT * len(layers)), layout="constrained")
    axes.set(xlim=(0, PAGE_WIDTH), ylim=(ROW_HEIGHT * (len(layers) - 0.5), -ROW_HEIGHT * 0.5))
    axes.axis("off")
    for row in range(0, len(layers), 2):
        axes.axhspan((row - 0.5) * ROW_HEIGHT, (row + 0.5) * ROW_HEIGHT, color="#f4f4f4", zorder=0)
    for package, (row, x) in boxes.items():
        _draw_box(axes, package, x, row * ROW_HEIGHT)
    for points in _routes(boxes, imports):
        _draw_arrow(axes, points)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Description": describe_picture(layers, imports)})
    plt.close(figure)


def _routes(boxes: dict[str, tuple[int, float]], imports: set[tuple[str, str]]) -> list[list[tuple[float, float]]]:
    """Return the corners of each arrow. An arrow over several layers passes beside the boxes of the layers it skips."""
    lanes: Counter[tuple[int, float]] = Counter()  # number of arrows that pass the left or right side of a box
    routes = []
    for importer, imported in sorted(imports, key=lambda pair: (boxes[pair[0]], boxes[pair[1]])):
        (top, x0), (bottom, x1) = boxes[importer], boxes[imported]
        if top == bottom:
            side = 1 if x1 > x0 else -1
            y = top * ROW_HEIGHT
            routes.append([(x0 + side * BOX_WIDTH / 2, y), (x1 - side * BOX_WIDTH / 2, y)])
            continue
        start = _port(x0, [boxes[b] for a, b in imports if a == importer and boxes[b][0] > top], (bottom, x1))
        end = _port(x1, [boxes[a] for a, b in imports if b == imported and boxes[a][0] < bottom], (top, x0))
        points = [(start, top * ROW_HEIGHT + BOX_HEIGHT / 2)]
        for row in range(top + 1, bottom):
            x = points[-1][0] + (end - points[-1][0]) / (bottom - row + 1)
            in_the_way = [
                centre for other, centre in boxes.values() if other == row and abs(x - centre) < BOX_WIDTH / 2 + LANE
            ]
            for centre in in_the_way:
                side = 1 if x > centre else -1
                lanes[row, side * centre] += 1
                x = centre + side * (BOX_WIDTH / 2 + LANE * lanes[row, side * centre])
            points += [(x, row * ROW_HEIGHT - BOX_HEIGHT / 2), (x, row * ROW_HEIGHT + BOX_HEIGHT / 2)]
        routes.append([*points, (end, bottom * ROW_HEIGHT - BOX_HEIGHT / 2)])
    return routes


def _port(x: float, others: list[tuple[int, float]], other: tuple[int, float]) -> float:
    """Return the x coordinate at which the arrow from or to the box ``other`` is attached to the box at ``x``.

    ``others`` are all boxes whose arrows are attached to the same edge. The arrows are spread evenly over the edge.
    """
    order = sorted(others, key=lambda box: box[1])
    return x + BOX_WIDTH * ((order.index(other) + 1) / (len(order) + 1) - 0.5)


def _draw_box(axes: plt.Axes, package: str, x: float, y: float) -> None:
    corner = (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2)
    shape = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, shape, fc="white", ec="#34495e", zorder=3))
    text = textwrap.fill(describe(package), 46, max_lines=2, placeholder=" ...")
    axes.text(x, y - 0.21, package, ha="center", va="center", weight="bold", size=11, zorder=4)
    axes.text(x, y + 0.14, text, ha="center", va="center", size=8, color="#444444", zorder=4)


def _draw_arrow(axes: plt.Axes, points: list[tuple[float, float]]) -> None:
    arrow = FancyArrowPatch(
        path=Polyline(points), arrowstyle="-|>", mutation_scale=9, lw=0.9, color="#2a6fb0", joinstyle="round", zorder=2
    )
    axes.add_patch(arrow)


if __name__ == "__main__":
    draw()
