"""Tests of the labels of runs in ``path_``, and of the functions that read ``path_``."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr.estimators.search.candidates import COMPARE_KERNELS, FIND_DIRECTIONS, Candidate, Origin
from hkrr.estimators.search.path_table import RUN_KINDS, comparable_runs, path_table, race_rows
from hkrr.kernels import Gaussian

KERNEL = Gaussian(gamma=1.0)
# A candidate for each label, and the group of its origin.
LABELS = {
    "random": (Candidate(Origin.RANDOM, KERNEL, np.eye(2), 0.1), [FIND_DIRECTIONS]),
    "cut": (Candidate(Origin.CUT, KERNEL, np.eye(2), 0.1), [FIND_DIRECTIONS]),
    "widened, dropped": (Candidate(Origin.WIDENED, KERNEL, np.eye(2), 0.1, dropped=True), [FIND_DIRECTIONS]),
    "plain": (Candidate(Origin.PLAIN, KERNEL, np.ones(2), 0.1), [COMPARE_KERNELS]),
    "diagonal": (Candidate(Origin.DIAGONAL, KERNEL, np.ones(2), 0.1), [COMPARE_KERNELS]),
    "sparse": (Candidate(Origin.SPARSE, KERNEL, np.eye(3)[1], 0.1), [COMPARE_KERNELS]),
    "held out": (Candidate(Origin.HELD_OUT, KERNEL, np.eye(2), 0.1), []),
}


@pytest.mark.parametrize("label", LABELS)
def test_labels_determine_the_kind_of_a_run(label):
    """Test that `RUN_KINDS` recovers the kind of a run from its label in ``path_["start"]``."""
    candidate, groups = LABELS[label]
    assert candidate.label == path_table([candidate], 1.0)["start"][0] == label
    found = RUN_KINDS[label]
    assert (found.origin, found.dropped) == (candidate.origin, candidate.dropped)
    assert [group for group in (FIND_DIRECTIONS, COMPARE_KERNELS) if found.origin in group] == groups


def test_labels_of_earlier_versions():
    """Test that `comparable_runs` knows the labels of version 0.1 ("grown", "shrunk"), and ignores unknown labels."""
    labels = ["random", "random, dropped", "grown", "shrunk", "polished", "from the future"]
    path = {"start": labels, "score": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    assert_array_equal(comparable_runs(path), [True, False, True, True, False, False])


def test_rounds_of_earlier_versions():
    """Test that `race_rows` returns the number of the round for models saved by version 0.1."""
    path = {"start": ["random", "plain, half", "square, cut", "square, cut, finalist", "rescaled", "from the future"]}
    assert_array_equal(race_rows(path), [0, 1, 2, 3, 0, 0])
