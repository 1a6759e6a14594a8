"""Systems of others, from PyPI: a package that is missing is a failed cell that says so."""

from __future__ import annotations

from hkrr.bench.methods import Method
from hkrr.bench.peers import gaussian_process, scikit_learn, trees, xrfm_package

METHODS: dict[str, Method] = {
    **scikit_learn.METHODS,
    **gaussian_process.METHODS,
    **trees.METHODS,
    **xrfm_package.METHODS,
}
