"""The code digest of a benchmark result: a short hash of the source files and package versions behind the result."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hkrr.bench import hkrr_methods, method_interface, other_packages, preparation, scores

_LIBRARY = Path(__file__).parents[1]
# Subpackages of hkrr whose files are not hashed as part of the library. Of these files, only those of `bench` that are
# listed in `code_of` affect a result.
_UNRELATED = ("bench", "cli", "experiments")


@cache
def code_of(method: str) -> str:
    """Return a hash, with 12 hexadecimal digits, of the source files and package versions behind a method's results."""
    files = [Path(module.__file__ or "") for module in (method_interface, preparation, scores)]
    packages = ["numpy", "scipy", "scikit-learn"]
    if method in hkrr_methods.METHODS:
        files += [Path(hkrr_methods.__file__)]
        files += [path for path in _LIBRARY.rglob("*.py") if path.relative_to(_LIBRARY).parts[0] not in _UNRELATED]
    else:
        files += [Path(module.__file__ or "") for module in other_packages.MODULES if method in module.METHODS]
        packages += other_packages.METHODS[method].packages
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    for package in packages:
        try:
            digest.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            # No distribution has this import name, so the hash does not include the version of the package.
            continue
    return digest.hexdigest()[:12]
