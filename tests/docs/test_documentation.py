"""Test that the code in README.md, CONTRIBUTING.md, docs/extending.md and docstrings runs.

Also test that pages quote the actual results, and that the demo of the experiments runs.
"""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import textwrap
import tomllib
import warnings
from pathlib import Path

import matplotlib.image
import pytest

import hkrr
from hkrr.bench import METHODS
from hkrr.bench.method_interface import MOST_SETTINGS
from hkrr.bench.problems import PLANTED_SUITE, planted_names
from hkrr.experiments import NAMES, demo_picture
from support.paths import ROOT

MODULES = [module.name for module in pkgutil.walk_packages(hkrr.__path__, "hkrr.")]


def _run_python_blocks(path: Path, replacements: dict[str, str] | None = None) -> str:
    """Run the Python code blocks of a page one after another in the same namespace, and return what they print."""
    code = re.findall(r"^( *)```python\n(.*?)```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert code
    text = "\n".join(textwrap.dedent(block) for _, block in code)
    for old, new in (replacements or {}).items():
        assert old in text
        text = text.replace(old, new)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(text, {"__name__": "__main__"})
    return printed.getvalue()


@pytest.mark.parametrize(
    "replacements",
    [
        # If the number of directions is given, the fit takes a fifth of the time and gives the same results to three
        # digits.
        pytest.param({"HyperKernelRidgeCV(random_state": "HyperKernelRidgeCV(3, random_state"}, id="3 directions"),
        pytest.param({}, id="unchanged", marks=pytest.mark.thorough),
    ],
)
def test_readme_example_prints_the_numbers_in_the_readme(replacements):
    printed = _run_python_blocks(ROOT / "README.md", replacements)
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


def test_code_of_the_extending_page_runs():
    assert _run_python_blocks(ROOT / "docs" / "extending.md").strip() == "max_iter\nconverged\nTrue"


def test_code_of_the_contributing_page_runs(tmp_path):
    """Test that the kernel and the solver defined in CONTRIBUTING.md can be passed to an estimator."""
    page = tmp_path / "page.md"
    use = """```python
from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

data = make_mim_sines(60, n_features=3, n_components=1, random_state=0)
model = HyperKernelRidge(1, kernel=Cauchy(), solver=GradientDescent(), max_iter=5, random_state=0).fit(data.X, data.y)
print(model.n_iter_)
```"""
    page.write_text((ROOT / "CONTRIBUTING.md").read_text() + use)
    assert _run_python_blocks(page) == "5\n"


def test_files_named_in_the_contributing_page_exist():
    for name in re.findall(r"`((?:src|tests|docs)/[\w./]+)`", (ROOT / "CONTRIBUTING.md").read_text()):
        assert name == "docs/_build/html" or (ROOT / name).exists(), name


def test_reproduction_page_contains_the_results_of_the_full_runs():
    """Test that the page quotes, for every experiment, the checked claims and the cost of the full run."""
    text = (ROOT / "docs" / "reproduction.md").read_text()
    for name in NAMES:
        *claims, cost, _ = (ROOT / "docs" / "reproduced" / f"{name}.txt").read_text().splitlines()
        assert claims
        for line in (*claims, cost):
            assert line in text, line


def test_benchmarking_page_lists_every_method_and_planted_model():
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
    outcome = demo_picture.run(seed=1, verbose=0)
    assert outcome.score_on_inputs < 0.5 < 0.96 < outcome.score < outcome.score_on_true_map + 0.01
    assert outcome.score_on_true_map < 1 / 1.01 + 0.005
    text = demo_picture.describe(outcome)
    for value in (outcome.score, outcome.score_on_inputs, outcome.score_on_true_map):
        assert f"{value:.3f}" in text
    with warnings.catch_warnings():
        # Ignore deprecation warnings inside matplotlib.
        warnings.simplefilter("ignore")
        demo_picture.plot(outcome, tmp_path / "demo.png")
    picture = matplotlib.image.imread(tmp_path / "demo.png")
    assert picture.shape[0] > 500
    assert picture.std() > 0.05
    assert capsys.readouterr().out == ""


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == hkrr.__version__
    assert f"\nversion: {hkrr.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    headings = re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert hkrr.__version__.split(".dev")[0] == headings[0]
