"""The real peers, from PyPI: each imports its package when it is run, so that the others need not be there."""

from __future__ import annotations

from hkrr.bench.methods import Method
from hkrr.bench.peers import gaussian_process, scikit_learn, trees, xrfm_package

MODULES = (scikit_learn, gaussian_process, trees, xrfm_package)
METHODS: dict[str, Method] = {name: method for module in MODULES for name, method in module.METHODS.items()}
