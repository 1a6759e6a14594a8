"""A search with few iterations. Tests of the interface use it, because the accuracy of their fits does not matter."""

from hkrr.estimators.search import candidates, directions, held_out_check, kernel_race, search_stages

# Replacements for the rounds of the search over kernels (`hkrr.estimators.search.kernel_race`). The first round uses 40
# rows. With at most 60 rows, a second round uses all rows. With more rows, there are up to two rounds of a few steps on
# small random batches. After each of them, the candidates are compared on at most 80 rows.
_BATCHES = (kernel_race._Batches(30, 20, 8, 100), kernel_race._Batches(40, 30, 2, 2))
_ROUNDS = {"_FIRST_ROWS": 40, "_FIRST_ITERATIONS": 4, "_ALL_ROWS": 60, "_ALL_ITERATIONS": 4, "_BATCHES": _BATCHES}
_ROUNDS |= {"_RESCALE_ROWS": 80, "_RESCALE_ITERATIONS": 2}
# For each module of the search, the constants to replace and their values in the tests: fewer iterations, rows, kernels
# and repetitions.
_FEW = {
    candidates: {"LONG_RUN": 4},
    directions: {"TRIAL_RUN": 2, "FULL_RUN": 4, "RUN_AFTER_CUT": 2, "_WIDENINGS": 0},
    held_out_check: {"LONG_RUN": 4, "_FOLDS": 2},
    kernel_race: {"SHORT_RUN": 2, "RADIAL": ("gaussian", "laplace"), "PRODUCT": ("anova",)} | _ROUNDS,
    search_stages: {"SHORT_RUN": 2, "_POLISH_ITERATIONS": 2, "_SCALES_ITERATIONS": 4, "_RESCALE_ITERATIONS": 2}
    | {"_REWEIGHTINGS": 1, "_FEW_ROWS": 60},
}


def make_quick(monkeypatch):
    """Reduce the numbers of iterations of the search until the end of the test."""
    for module, constants in _FEW.items():
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)
