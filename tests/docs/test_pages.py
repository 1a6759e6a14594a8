"""Test the pages of the documentation: tables of contents, links, code, and the list of all public names."""

import contextlib
import doctest
import functools
import importlib
import inspect
import io
import re
import types

import matplotlib
import pytest

from support.paths import DOCS, ROOT

BUILT = {"_build", "_templates", "gallery", "benchmarks", "generated", "reproduced"}
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.*"))
    if page.suffix in (".md", ".rst") and not BUILT & set(page.relative_to(DOCS).parts)
]
REFERENCE = sorted((DOCS / "api").glob("*.rst"))

# Modules with public names. The public names of a module are listed in __all__. Without __all__, they are the classes
# and functions that the module defines.
PUBLIC = [
    "hkrr",
    "hkrr.baselines",
    "hkrr.centers",
    "hkrr.criteria",
    "hkrr.datasets",
    "hkrr.estimators",
    "hkrr.kernels",
    "hkrr.metrics",
    "hkrr.objective",
    "hkrr.plotting",
    "hkrr.solvers.line_search",
    "hkrr.reporting",
    "hkrr.rows",
    "hkrr.solvers",
    "hkrr.tables",
    "hkrr.theory",
]


def _public_names(module_name):
    module = importlib.import_module(module_name)
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
    for name in getattr(module, "__all__", defined):
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isclass(value) or isinstance(value, types.FunctionType)):
            yield pytest.param(module_name, name, id=f"{module_name}.{name}")


def _listed(page):
    """Return the full names listed on a page of the API reference."""
    module, names = "", set()
    for line in page.read_text().splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"(?: +|\.\. auto(?:class|function):: )(\w+)$", line):
            names.add(f"{module}.{found[1]}")
    return names


@pytest.mark.parametrize(("module", "name"), [pair for module in PUBLIC for pair in _public_names(module)])
def test_public_name_is_in_the_reference_with_an_example(module, name):
    pages = [page for page in REFERENCE if f"{module}.{name}" in _listed(page)]
    assert len(pages) == 1, [page.name for page in pages]
    own = ">>> " in (inspect.getdoc(getattr(importlib.import_module(module), name)) or "")
    lines = [line for line in pages[0].read_text().splitlines() if line.startswith((">>> ", "... "))]
    assert own or any(re.search(rf"\b{name}\b", line) for line in lines)


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_examples_of_the_reference(page):
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_every_page_is_in_a_table_of_contents():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        text = page.read_text()
        trees = re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL)
        trees += re.findall(r"\.\. toctree::\n((?:[ \n].*\n?)*)", text)
        for entry in re.findall(r"^ *([\w./-]+)$", "\n".join(trees), flags=re.MULTILINE):
            if entry.split("/")[0] in BUILT:
                continue
            found = [(page.parent / f"{entry}{suffix}").resolve() for suffix in (".md", ".rst")]
            assert any(target.exists() for target in found), f"{page.name}: {entry}"
            waiting += [target for target in found if target.exists()]
    assert set(PAGES) - reached == set()


LINKING = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_exist(page):
    for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def _resolve(name):
    """Return the object with a dotted name, or raise an error if there is no such object."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            return functools.reduce(getattr, parts[length:], importlib.import_module(".".join(parts[:length])))
    raise AssertionError(name)


def test_names_on_pages_exist():
    """Test that every `hkrr.module.name` on a page can be imported.

    The changelog is not tested, because it also mentions names that have moved.
    """
    pages = [*PAGES, *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md")]
    for name in sorted({name for page in pages for name in re.findall(r"`(hkrr(?:\.\w+)+)\b", page.read_text())}):
        _resolve(name)


WITH_CODE = [page for page in PAGES if page.parent == DOCS / "guide" and "```python" in page.read_text()]


@pytest.mark.parametrize(
    "page", [*WITH_CODE, pytest.param(DOCS / "quickstart.md", marks=pytest.mark.thorough)], ids=lambda page: page.stem
)
def test_code_of_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {"__name__": "__main__"})
    if page.stem == "quickstart":
        found = re.fullmatch(r"(\d) directions, test R2 (\d\.\d+)\n", printed.getvalue())
        claimed = re.search(r"prints (\d) directions and a test R2 of (\d\.\d+)", page.read_text())
        assert found[1] == claimed[1]
        assert float(found[2]) == pytest.approx(float(claimed[2]), abs=0.002)
        assert (tmp_path / "first.png").stat().st_size > 10_000
