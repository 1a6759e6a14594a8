"""The stress table: every case fits soundly, or is refused by an error that says why; and the docs say which."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from stress_cases import CASES, GROUPS, estimators, rows
from stress_check import check, share_of_error, time_bound
from stress_table import BEGIN, PAGE, row

RUNS = [(name, cls) for name, case in CASES.items() for cls in estimators(case)]


@pytest.mark.parametrize(("name", "cls"), RUNS)
def test_a_case_fits_soundly_or_is_refused(name, cls):
    check(estimators(CASES[name])[cls], *CASES[name].make())


class _Broken:
    """An estimator that does what it is told, however bad."""

    def __init__(self, **told):
        told = {"predicted": None, "raised": None, "dual_coef_": np.ones(2)} | told
        self.predicted, self.raised, self.dual_coef_ = told["predicted"], told["raised"], told["dual_coef_"]
        self.components_ = self.centers_ = self.gamma_ = self.reg_lambda_ = self.intercept_ = np.ones(1)

    def fit(self, X, y, weight=None):
        if self.raised is not None:
            raise self.raised
        return self

    def predict(self, X):
        return np.full(len(X), self.predicted)


@pytest.mark.parametrize(
    "told",
    [
        {"predicted": 5.0},
        {"predicted": np.nan},
        {"predicted": 0.0, "dual_coef_": np.array([np.inf])},
        {"raised": ValueError("no")},
        {"raised": np.linalg.LinAlgError("a matrix of this library is not positive definite")},
    ],
    ids=["worse than the mean", "NaN", "infinite coefficients", "an error of one word", "an error of NumPy's"],
)
def test_the_check_catches(told):
    with pytest.raises(AssertionError):
        check(_Broken(**told), *rows())


def test_the_check_lets_foreign_errors_through():
    with pytest.raises(ZeroDivisionError):
        check(_Broken(raised=ZeroDivisionError("division by zero")), *rows())


def test_the_time_bound_ends_what_hangs():
    with pytest.raises(TimeoutError, match="not done after 1 seconds"), time_bound(1):
        threading.Event().wait(30)


def test_the_mean_has_the_error_of_the_mean():
    y, weight = rows()[1], np.arange(30.0)
    mean = np.full(30, np.average(y, weights=weight))
    assert share_of_error(mean, y, weight) == pytest.approx(1.0)
    assert share_of_error(mean + 1e-3, y, weight) > 1.0 + 1e-6
    assert share_of_error(1e150 * mean, 1e150 * y, weight) == pytest.approx(1.0)


def test_the_page_shows_every_case_once():
    """And no other; what came of them is what stress_table.py wrote."""
    text = (Path(__file__).parents[1] / PAGE).read_text().split(BEGIN)[1]
    assert re.findall(r"^\| ([^|]+?) \|", text, flags=re.MULTILINE).count("case") == len(GROUPS)
    for name in CASES:
        assert text.count(f"\n| {name} |") == 1, name
    assert len(re.findall(r"^\| (?!case|---)", text, flags=re.MULTILINE)) == len(CASES)


@pytest.mark.parametrize("name", ["X times 1e200", "one y at 1e12", "lambda = 1e-14"])
def test_the_page_says_what_happens(name):
    text = (Path(__file__).parents[1] / PAGE).read_text()
    assert row(name) in text
