"""Test that the examples of the gallery run and draw a figure.

Examples that define ``n_train`` run with fewer training rows.
"""

import re
import warnings

import matplotlib
import pytest

from hkrr import HKRRWarning
from support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
# Examples that run by default. `make thorough` and `make docs` run all examples.
DEFAULT = ("plot_first_model", "plot_table", "plot_classification", "plot_checkpoint", "plot_own_kernel")
# Number of training rows in the tests of examples that define ``n_train``.
FEW = 80


def test_the_gallery_has_examples():
    assert len(EXAMPLES) >= 10
    assert {path.stem for path in EXAMPLES} >= set(DEFAULT)


@pytest.fixture
def plt(monkeypatch):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    yield plt
    plt.close("all")


@pytest.mark.parametrize(
    "path",
    [path if path.stem in DEFAULT else pytest.param(path, marks=pytest.mark.thorough) for path in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_example_draws(path, plt):
    code = re.sub(r"^n_train = \d+$", f"n_train = {FEW}", path.read_text(), flags=re.MULTILINE)
    with warnings.catch_warnings():
        # With few rows, warnings about the fit are expected.
        warnings.simplefilter("ignore", HKRRWarning)
        exec(compile(code, path, "exec"), {"__name__": "__main__"})
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        assert all(ax.has_data() and (ax.get_xlabel() or ax.get_ylabel()) for ax in figure.axes)
