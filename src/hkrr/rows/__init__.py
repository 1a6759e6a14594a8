"""Rows: data that can be summed over, block by block, wherever they are. See `hkrr.rows.base`."""

from __future__ import annotations

from hkrr.rows.base import BlockFunction, Rows
from hkrr.rows.memory import InMemoryRows, threads_for_sums

__all__ = ["BlockFunction", "InMemoryRows", "Rows", "threads_for_sums"]
