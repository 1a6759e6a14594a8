"""Benchmark methods from other packages. All packages are optional: a method imports its package when it runs."""

from __future__ import annotations

from hkrr.bench.method_interface import Method
from hkrr.bench.other_packages import boosted_trees, gpytorch, pytabkit, scikit_learn, xrfm

MODULES = (scikit_learn, gpytorch, boosted_trees, pytabkit, xrfm)
METHODS: dict[str, Method] = {name: method for module in MODULES for name, method in module.METHODS.items()}
