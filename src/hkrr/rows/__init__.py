"""Row sources for data in memory, in files, on a GPU or on a cluster. `hkrr.rows.base` describes the interface."""

from __future__ import annotations

from hkrr.rows.base import BlockFunction, Rows
from hkrr.rows.in_memory import InMemoryRows, threads_for_sums

__all__ = ["BlockFunction", "InMemoryRows", "Rows", "threads_for_sums"]
