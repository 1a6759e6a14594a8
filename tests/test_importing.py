"""What `import hkrr` loads: heavy parts only when they are used."""

import subprocess
import sys

import pytest

import hkrr

HEAVY = ("dask", "distributed", "matplotlib", "onnx", "selenium", "torch", "typer")


@pytest.mark.parametrize("module", ["hkrr", "hkrr.baselines", "hkrr.theory"])
def test_heavy_parts_are_loaded_when_they_are_used(module):
    code = f"import sys, {module}; print(*(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_names_that_are_loaded_later_are_there():
    code = "from hkrr import *; import hkrr; print(len([getattr(hkrr, name) for name in dir(hkrr)]), load, save)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) == len(dir(hkrr)) > len(hkrr.__all__)
    with pytest.raises(AttributeError, match="module 'hkrr' has no attribute 'laod'"):
        hkrr.laod  # noqa: B018 -- asked for, and not there


@pytest.mark.thorough
def test_a_checker_notices_names_that_are_not_there(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import hkrr\nhkrr.load\nhkrr.plotting.LinkDisplay\nhkrr.laod\n")
    done = subprocess.run([sys.executable, "-m", "mypy", str(script)], capture_output=True, text=True, cwd=tmp_path)
    (line,) = [line for line in done.stdout.splitlines() if "error" in line and str(script.name) in line]
    assert 'script.py:4: error: Module has no attribute "laod"' in line
