"""Which code a cell was computed with: digits that change with it."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hkrr.bench import peers
from hkrr.bench.ours import METHODS as OURS

_LIBRARY = Path(__file__).parents[1]
# What no fit of ours depends on.
_OTHERS = ("bench", "cli", "experiments")


@cache
def code_of(method: str) -> str:
    """Return a few digits of the files, and the packages' versions, that a method's cells depend on."""
    files = [_LIBRARY / "bench" / "methods.py"]
    if method in OURS:
        files += [_LIBRARY / "bench" / "ours.py"]
        files += [path for path in _LIBRARY.rglob("*.py") if path.relative_to(_LIBRARY).parts[0] not in _OTHERS]
    else:
        files += [Path(module.__file__ or "") for module in peers.MODULES if method in module.METHODS]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    for package in ("numpy", "scipy", "scikit-learn", *(() if method in OURS else peers.METHODS[method].packages)):
        try:
            digest.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            continue  # a module with a package of another name: its version goes unseen
    return digest.hexdigest()[:12]
