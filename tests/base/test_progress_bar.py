"""Progress bars: tqdm is used only if a bar is shown."""

import subprocess
import sys

import pytest

from hkrr._base.progress_bar import NoBar, progress_bar

_FITS = """
import sys
import numpy as np
import hkrr

X = np.random.default_rng(0).normal(size=(40, 2))
hkrr.HyperKernelRidge(1, n_init=1, max_iter=2, random_state=0).fit(X, X[:, 0])
hkrr.HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(X, np.sin(X[:, 0]))
print([name for name in sys.modules if name.split(".")[0] == "tqdm"])
"""


def test_a_fit_without_a_bar_does_not_import_tqdm():
    """Test that a fit does not import tqdm if it shows no progress bar.

    The package tqdm has a lock that is shared between processes. If a forked process were killed while it holds this
    lock, all other processes would be blocked.
    """
    done = subprocess.run([sys.executable, "-c", _FITS], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("shown", [0, False])
def test_a_hidden_bar_iterates(shown):
    bar = progress_bar([1, 2], shown=shown, desc="fits")
    assert isinstance(bar, NoBar)
    assert list(bar) == [1, 2]


def test_a_shown_bar_is_that_of_tqdm(capsys):
    with progress_bar([1, 2], shown=1, desc="fits") as bar:
        assert list(bar) == [1, 2]
    with progress_bar([], shown=1) as bar:
        assert list(bar) == []
    assert "fits" in capsys.readouterr().err
