"""Tests of `import hkrr`: it does not import heavy dependencies, and lazily loaded names exist."""

import subprocess
import sys

import pytest

import hkrr

HEAVY = ("dask", "distributed", "matplotlib", "onnx", "onnxruntime", "safetensors", "selenium", "torch", "typer")


def test_heavy_dependencies_are_imported_on_use():
    code = f"import sys, hkrr, hkrr.baselines, hkrr.theory; print(*(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90)
    assert done.stdout.split() == []


def test_lazily_loaded_names_exist():
    code = "from hkrr import *; import hkrr; print(len([getattr(hkrr, name) for name in dir(hkrr)]), load, save)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90)
    assert int(done.stdout.split()[0]) == len(dir(hkrr)) > len(hkrr.__all__)
    with pytest.raises(AttributeError, match="module 'hkrr' has no attribute 'laod'"):
        hkrr.laod  # noqa: B018 -- a name that does not exist


def test_row_sources_can_be_imported_from_rows():
    names = ("DaskRows", "FileRows", "TorchRows")
    code = f"import sys; from hkrr.rows import *; print(*sys.modules); from hkrr.rows import {', '.join(names)}"
    code += f"; print({'); print('.join(names)})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    before, *found = done.stdout.splitlines()
    assert not set(before.split()) & set(HEAVY)
    for name, text in zip(names, found, strict=True):
        assert text.startswith("<class 'hkrr.rows.")
        assert text.endswith(f".{name}'>")
        assert name in dir(hkrr.rows)


@pytest.mark.parametrize(("name", "extra"), [("DaskRows", "dask"), ("TorchRows", "torch")])
def test_a_row_source_without_its_package_is_refused_with_a_remedy(monkeypatch, name, extra):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(vars(hkrr.rows), name, raising=False)  # an earlier test may have imported the class
    with pytest.raises(ImportError, match=rf"{name} need the package \w+: .* pip install 'hkrr\[{extra}\]'"):
        getattr(hkrr.rows, name)


def test_a_misspelt_row_source_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'hkrr.rows' has no attribute 'Torchrows'"):
        hkrr.rows.Torchrows  # noqa: B018 -- a name that does not exist


@pytest.mark.thorough
def test_mypy_reports_missing_names(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import hkrr\nhkrr.load\nhkrr.plotting.LinkDisplay\nhkrr.laod\n")
    command = [sys.executable, "-m", "mypy", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=90)
    (line,) = [line for line in done.stdout.splitlines() if "error" in line and str(script.name) in line]
    assert 'script.py:4: error: Module has no attribute "laod"' in line
