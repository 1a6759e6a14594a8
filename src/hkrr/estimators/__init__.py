"""The estimators: `HyperKernelRidge` in `ridge`, `HyperKernelRidgeCV` in `ridge_cv`, and the package `classification`.

`HyperKernelRidgeCV` selects a model by a criterion (`search`) or by held-out error (`_grid_search`). `fitted` contains
the methods of fitted models.
"""
