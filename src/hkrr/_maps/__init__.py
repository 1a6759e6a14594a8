"""Linear maps B: their shapes, their canonical form, and the regression function given by a map and a kernel."""

from hkrr._maps.canonical_form import canonical_map, map_row, principal_form
from hkrr._maps.kernel_expansion import KernelExpansion
from hkrr._maps.shapes import (
    Diagonal,
    Full,
    Scaled,
    ScaledRows,
    Shape,
    ShapedCriterion,
    ShapeName,
    shape_key,
    square_map_is_affordable,
)

__all__ = [
    "Diagonal",
    "Full",
    "KernelExpansion",
    "Scaled",
    "ScaledRows",
    "Shape",
    "ShapeName",
    "ShapedCriterion",
    "canonical_map",
    "map_row",
    "principal_form",
    "shape_key",
    "square_map_is_affordable",
]
