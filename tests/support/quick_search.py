"""A search with few iterations, for tests of the interface, in which the accuracy of the fits does not matter."""

from hkrr.estimators.search import candidates, directions, search_stages

# Maximum numbers of iterations of the runs, and maximum number of times that a map is widened.
_FEW = {
    candidates: {"LONG": 4},
    directions: {"SHORT": 2, "LONG": 4, "AFTER_CUT": 2, "_WIDENINGS": 0},
    search_stages: {"_POLISH_ITERATIONS": 2, "_SCALES_ITERATIONS": 4, "_RESCALE_ITERATIONS": 2, "_REWEIGHTINGS": 1},
}


def make_quick(monkeypatch):
    """Reduce the numbers of iterations of the search until the end of the test."""
    for module, constants in _FEW.items():
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)
