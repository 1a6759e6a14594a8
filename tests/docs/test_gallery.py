"""The examples of the gallery run as they stand; those that say how many rows they train on, with few."""

import re
import warnings
from pathlib import Path

import matplotlib
import pytest

from hkrr import HKRRWarning

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))
FEW = 80


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.fixture
def plt(monkeypatch):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    yield plt
    plt.close("all")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws(path, plt):
    code = re.sub(r"^n_train = \d+$", f"n_train = {FEW}", path.read_text(), flags=re.MULTILINE)
    with warnings.catch_warnings():
        # Of few rows a fit may well have something to say.
        warnings.simplefilter("ignore", HKRRWarning)
        exec(compile(code, path, "exec"), {"__name__": "__main__"})
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        assert all(ax.has_data() and (ax.get_xlabel() or ax.get_ylabel()) for ax in figure.axes)
