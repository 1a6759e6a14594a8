"""The estimators: `HyperKernelRidge`, `HyperKernelRidgeCV`, `HyperKernelEnsemble` and `HyperKernelClassifier`.

The first three are in the modules `ridge`, `ridge_cv` and `ensemble`, and the last one is in the package
`classification`. `HyperKernelRidgeCV` selects a model by a criterion (`search`) or by held-out error (`_grid_search`).
`fitted` contains the methods of fitted models.

This package exports `average_gradient_outer_product`, a function of a fitted model, and `SearchState`, the argument of
the callbacks of a search. The estimators themselves are imported from `hkrr`.
"""

from hkrr.estimators.fitted.importance import average_gradient_outer_product
from hkrr.estimators.search.progress import SearchState

__all__ = ["SearchState", "average_gradient_outer_product"]
