"""The estimators: `HyperKernelRidge`, `HyperKernelRidgeCV`, `HyperKernelEnsemble` and `HyperKernelClassifier`.

The first three are in the modules `ridge`, `ridge_cv` and `ensemble`, and the last one is in the package
`classification`. `HyperKernelRidgeCV` selects a model by a criterion (`search`) or by held-out error (`_grid_search`).
`fitted` contains the methods of fitted models.
"""
