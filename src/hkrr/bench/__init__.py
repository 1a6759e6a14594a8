"""Benchmarks: any methods on any problems, under equal rules. `hkrr bench` runs them; see `hkrr.bench.methods`."""

from __future__ import annotations

from hkrr.bench.methods import Method
from hkrr.bench.ours import METHODS as OURS
from hkrr.bench.peers import METHODS as PEERS

METHODS: dict[str, Method] = {**OURS, **PEERS}
