"""Colours, panels and axis labels for the figures of the experiments."""

from __future__ import annotations

from typing import Any

# Colours of Okabe and Ito's palette, which is safe for colour-blind readers. As in the paper, VarPro is red and AGD is
# blue. L-BFGS is green. All other lines and points are grey, purple, orange or sky blue.
COLOURS = {"VarPro": "#D55E00", "AGD": "#0072B2", "L-BFGS": "#009E73"}
GREY, PURPLE, ORANGE, SKY = "#999999", "#CC79A7", "#E69F00", "#56B4E9"


def panels(n: int, figsize: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure with n panels in one row, and the axes of the panels. The axes have grid lines."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, n, figsize=figsize, layout="constrained", squeeze=False, **options)
    for ax in axes[0]:
        ax.grid(alpha=0.3)
    return figure, axes[0]


def label_values(ax: Any, values: list[int]) -> None:
    """Put ticks with labels at the given values of a logarithmic horizontal axis, and nowhere else."""
    ax.set_xticks(values, [str(value) for value in values])
    ax.set_xticks([], minor=True)
