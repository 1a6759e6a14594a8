"""A search with few iterations, for tests of the interface, in which the accuracy of the fits does not matter."""

from hkrr.estimators.search import candidates, directions, held_out_check, kernel_race, search_stages

# Replacement for the rounds of the search over kernels: 40 and 60 rows, and at most four iterations.
_ROUNDS = tuple(one._replace(n_rows=n, max_iter=4) for one, n in zip(kernel_race._ROUNDS, (40, 60), strict=False))
# For each module of the search, the constants to replace and their values in the tests: fewer iterations, rows, kernels
# and repetitions.
_FEW = {
    candidates: {"LONG": 4},
    directions: {"SHORT": 2, "LONG": 4, "AFTER_CUT": 2, "_WIDENINGS": 0},
    held_out_check: {"LONG": 4, "_FOLDS": 2},
    kernel_race: {"SHORT": 2, "_ROUNDS": _ROUNDS, "RADIAL": ("gaussian", "laplace"), "PRODUCT": ("anova",)},
    search_stages: {"SHORT": 2, "_POLISH_ITERATIONS": 2, "_SCALES_ITERATIONS": 4, "_RESCALE_ITERATIONS": 2}
    | {"_REWEIGHTINGS": 1, "_FEW_ROWS": 60},
}


def make_quick(monkeypatch):
    """Reduce the numbers of iterations of the search until the end of the test."""
    for module, constants in _FEW.items():
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)
