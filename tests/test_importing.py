"""Tests of `import hkrr`: it does not import heavy dependencies, and lazily loaded names exist."""

import subprocess
import sys

import pytest

import hkrr

HEAVY = ("dask", "distributed", "matplotlib", "onnx", "onnxruntime", "safetensors", "selenium", "torch", "typer")


def test_heavy_dependencies_are_imported_on_use():
    code = f"import sys, hkrr, hkrr.baselines, hkrr.theory; print(*(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == []


def test_lazily_loaded_names_exist():
    code = "from hkrr import *; import hkrr; print(len([getattr(hkrr, name) for name in dir(hkrr)]), load, save)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout.split()[0]) == len(dir(hkrr)) > len(hkrr.__all__)
    with pytest.raises(AttributeError, match="module 'hkrr' has no attribute 'laod'"):
        hkrr.laod  # noqa: B018 -- a name that does not exist


@pytest.mark.thorough
def test_mypy_reports_missing_names(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import hkrr\nhkrr.load\nhkrr.plotting.LinkDisplay\nhkrr.laod\n")
    command = [sys.executable, "-m", "mypy", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    (line,) = [line for line in done.stdout.splitlines() if "error" in line and str(script.name) in line]
    assert 'script.py:4: error: Module has no attribute "laod"' in line
