"""The code in the README and the docs runs as it stands, and the demo does what it says."""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import warnings
from pathlib import Path

import matplotlib.image
import pytest

import hkrr
from hkrr.bench import METHODS
from hkrr.bench.methods import MOST_SETTINGS
from hkrr.bench.problems import PLANTED_SUITE, planted_names
from hkrr.experiments import NAMES, demo

ROOT = Path(__file__).parents[1]
MODULES = [module.name for module in pkgutil.walk_packages(hkrr.__path__, "hkrr.")]


def _run_python_blocks(path: Path) -> str:
    code = re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)
    assert code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # One namespace for a page: later blocks build on earlier ones, as a reader would.
        exec("\n".join(code), {"__name__": "__main__"})
    return printed.getvalue()


def test_readme_example_runs_and_prints_what_the_readme_says():
    printed = _run_python_blocks(ROOT / "README.md")
    found = re.fullmatch(
        r"(\d) directions, test R2 (\d\.\d+)\ndistance to the true subspace (\d\.\d+)\n", printed
    ).groups()
    text = (ROOT / "README.md").read_text()
    claimed = re.search(
        r"prints (\d) directions, a test R2 of (\d\.\d+).*?distance of\s+(\d\.\d+)", text, flags=re.DOTALL
    ).groups()
    assert found[0] == claimed[0]
    assert float(found[1]) == pytest.approx(float(claimed[1]), abs=0.002)
    assert float(found[2]) == pytest.approx(float(claimed[2]), abs=0.02)


def test_extending_page_runs():
    assert _run_python_blocks(ROOT / "docs" / "extending.md").strip() == "max_iter\nTrue"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_page_of_the_reproduction_says_what_its_runs_said():
    """Every claim, holding or not, and the cost of each experiment stand in the page as the full run wrote them."""
    text = (ROOT / "docs" / "reproduction.md").read_text()
    for name in NAMES:
        *claims, cost, _ = (ROOT / "docs" / "reproduced" / f"{name}.txt").read_text().splitlines()
        assert claims
        for line in (*claims, cost):
            assert line in text, line


def test_the_page_on_benchmarks_names_every_method_and_model():
    text = (ROOT / "docs" / "benchmarking.md").read_text()
    for name, method in METHODS.items():
        assert f"| `{name}` | {method.about} |" in text
    for name in planted_names():
        assert f"`{name}" in text
    assert f"the {len(PLANTED_SUITE)} planted models" in text
    assert f"at most {MOST_SETTINGS} settings" in text


@pytest.mark.parametrize("name", ["hkrr", *MODULES])
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert module.__doc__
    assert doctest.testmod(module).failed == 0


def test_demo(tmp_path, capsys):
    outcome = demo.run(seed=1, verbose=0)
    assert outcome.score_on_inputs < 0.5 < 0.96 < outcome.score < outcome.score_on_true_map + 0.01
    assert outcome.score_on_true_map < 1 / 1.01 + 0.005
    text = demo.describe(outcome)
    for value in (outcome.score, outcome.score_on_inputs, outcome.score_on_true_map):
        assert f"{value:.3f}" in text
    with warnings.catch_warnings():
        # matplotlib's own deprecations are not ours to fail on.
        warnings.simplefilter("ignore")
        demo.plot(outcome, tmp_path / "demo.png")
    picture = matplotlib.image.imread(tmp_path / "demo.png")
    assert picture.shape[0] > 500
    assert picture.std() > 0.05
    assert capsys.readouterr().out == ""
