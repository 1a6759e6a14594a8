"""What `import hkrr` loads: heavy parts only when they are used."""

import subprocess
import sys

import pytest

HEAVY = ("dask", "distributed", "matplotlib", "onnx", "selenium", "torch", "typer")


@pytest.mark.parametrize("module", ["hkrr", "hkrr.baselines", "hkrr.theory"])
def test_heavy_parts_are_loaded_when_they_are_used(module):
    code = f"import sys, {module}; print(*(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
