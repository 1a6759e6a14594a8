"""Benchmarks: the comparison of several methods on several problems, with the same rules for every method.

The command `hkrr bench` runs a benchmark. The docstring of `hkrr.bench.method_interface` states the rules.
"""

from __future__ import annotations

from hkrr.bench.hkrr_methods import METHODS as OURS
from hkrr.bench.method_interface import Method
from hkrr.bench.other_packages import METHODS as PEERS

METHODS: dict[str, Method] = {**OURS, **PEERS}
