"""Row sources for data in memory, in files, on a GPU or on a cluster. `hkrr.rows.base` describes the interface."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hkrr._base.checks import check_installed
from hkrr.rows.base import BlockFunction, Rows
from hkrr.rows.in_memory import InMemoryRows, threads_for_sums

if TYPE_CHECKING:
    from hkrr.rows.dask import DaskRows as DaskRows
    from hkrr.rows.file_rows import FileRows
    from hkrr.rows.torch_device import TorchRows as TorchRows

# DaskRows and TorchRows are left out, so that `from hkrr.rows import *` works without Dask and PyTorch.
__all__ = ["BlockFunction", "FileRows", "InMemoryRows", "Rows", "threads_for_sums"]

# Classes that are imported on first access, and the modules that define them.
_LAZY = {"DaskRows": "hkrr.rows.dask", "FileRows": "hkrr.rows.file_rows", "TorchRows": "hkrr.rows.torch_device"}
# The optional packages that classes need, and the extras of hkrr that install them.
_REQUIRED = {"DaskRows": ("distributed", "dask"), "TorchRows": ("torch", "torch")}

if not TYPE_CHECKING:  # otherwise type checkers would accept every name

    def __getattr__(name: str) -> Any:
        """Import a class on first access."""
        if name not in _LAZY:
            raise AttributeError(f"module 'hkrr.rows' has no attribute {name!r}")
        if name in _REQUIRED:
            check_installed(*_REQUIRED[name], name)
        globals()[name] = found = getattr(importlib.import_module(_LAZY[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})
