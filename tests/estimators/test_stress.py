"""Test that every stress case gives a valid model or a clear error, and that docs/robustness.md reports all cases."""

import re
import threading

import numpy as np
import pytest

from support.paths import ROOT
from support.platforms import posix_only
from support.stress_cases import CASES, GROUPS, estimators, rows
from support.stress_check import check, explained_without_noise, share_of_error, time_bound
from support.stress_table import BEGIN, PAGE, describe, row

RUNS = [(name, cls) for name, case in CASES.items() for cls in estimators(case)]
# Names of the cases that run by default, one of every kind. The thorough tests run all cases. The additional cases
# differ from these in a power of ten, a dtype or a kernel.
QUICK = {
    *("X times 1e-150", "y times 1e150", "X and y times 1e8", "X times 1e150, scale_features=False"),
    *("columns times 1e-150, 1 and 1e150", "X 1e15 from the origin", "y 1e12 from zero", "X of subnormal numbers"),
    *("X times 1e200", "y times 1e200", "X of float16", "y of int8", "X of bool", "X of float32, times 1e30"),
    *("Fortran order", "read-only", "duplicate columns", "all columns constant", "6 rows, 200 columns", "2 rows"),
    *("d = D", "one unique x", "one center", "one y at 1e12", "y without noise", "y of noise", "y constant"),
    *("two targets, 1e-100 and 1e100", "weights of zero for all rows but 2", "weights from 1e-12 to 1e12"),
    *("weights of 1e300", "lambda = 1e-14, 10 centers", "lambda = 1e6", "kernel anova", "criterion loo", "solver agd"),
    *("gamma = 1e-12",),
}


@pytest.mark.parametrize(
    ("name", "cls"), [run if run[0] in QUICK else pytest.param(*run, marks=pytest.mark.thorough) for run in RUNS]
)
def test_a_case_gives_a_valid_model_or_a_clear_error(name, cls):
    check(estimators(CASES[name])[cls], *CASES[name].make())


class _Broken:
    """An estimator with given predictions and coefficients, or an estimator that raises a given error."""

    def __init__(self, predicted=None, raised=None, dual_coef_=(1.0, 1.0)):
        self.predicted, self.raised, self.dual_coef_ = predicted, raised, np.array(dual_coef_)
        self.components_ = self.centers_ = self.gamma_ = self.reg_lambda_ = self.intercept_ = np.ones(1)

    def fit(self, X, y, weight=None):
        if self.raised is not None:
            raise self.raised
        return self

    def predict(self, X):
        return np.full(len(X), self.predicted)


@pytest.mark.parametrize(
    "behaviour",
    [
        {"predicted": 5.0},
        {"predicted": np.nan},
        {"predicted": 0.0, "dual_coef_": np.array([np.inf])},
        {"raised": ValueError("no")},
        {"raised": np.linalg.LinAlgError("a matrix of this library is not positive definite")},
    ],
    ids=["worse than the mean", "NaN", "infinite coefficients", "an unclear error", "a NumPy error"],
)
def test_the_check_fails_for(behaviour):
    with pytest.raises(AssertionError):
        check(_Broken(**behaviour), *rows())


def test_the_check_does_not_hide_other_errors():
    with pytest.raises(ZeroDivisionError):
        check(_Broken(raised=ZeroDivisionError("division by zero")), *rows())


@posix_only
def test_the_time_bound_raises():
    with pytest.raises(TimeoutError, match="not done after 1 seconds"), time_bound(1):
        threading.Event().wait(30)


def test_the_error_of_the_mean_is_one():
    y, weight = rows()[1], np.arange(30.0)
    mean = np.full(30, np.average(y, weights=weight))
    assert share_of_error(mean, y, weight) == pytest.approx(1.0)
    assert share_of_error(mean + 1e-3, y, weight) > 1.0 + 1e-6
    assert share_of_error(1e150 * mean, 1e150 * y, weight) == pytest.approx(1.0)


def test_the_table_judges_by_new_rows_and_the_target_without_noise():
    X, y = rows()
    f = np.sin(2.0 * rows(500, seed=1)[0][:, 0])
    assert explained_without_noise(f, f, y) == pytest.approx(1.0)
    assert explained_without_noise(np.full(500, f.mean()), f, y) == pytest.approx(0.0)
    assert explained_without_noise(np.full(500, 0.1), np.zeros(500), y) == pytest.approx(-0.01 / np.var(y))
    outcome = check(_Broken(predicted=y.mean()), X, y, fresh=(X, y))
    assert describe(outcome) == "fits, R2 0.0"
    assert describe(check(_Broken(predicted=y.mean()), X, y, fresh=(X, y + 10.0))) == "fits, R2 below -1"


def test_the_new_rows_of_a_case_have_the_columns_of_the_training_rows():
    for case in CASES.values():
        (X, y, _), (X_new, f) = case.make(), case.make.fresh()
        assert X_new.shape[1] == X.shape[1]
        assert X_new.dtype == X.dtype
        assert len(f) == len(X_new) > len(X)
        assert f.shape[1:] == np.asarray(y).shape[1:]


def test_the_page_shows_every_case_once():
    """Test that the table in docs/robustness.md has one row for each case and no other rows.

    The script `support/stress_table.py` writes the table.
    """
    text = (ROOT / PAGE).read_text().split(BEGIN)[1]
    assert re.findall(r"^\| ([^|]+?) \|", text, flags=re.MULTILINE).count("case") == len(GROUPS)
    for name in CASES:
        assert text.count(f"\n| {name} |") == 1, name
    assert len(re.findall(r"^\| (?!case|---)", text, flags=re.MULTILINE)) == len(CASES)


# The case with lambda = 1e-14 has only 10 centers. With all rows as centers, its figures would depend on rounding, and
# thus on the processor.
@pytest.mark.parametrize("name", ["X times 1e200", "one y at 1e12", "lambda = 1e-14, 10 centers"])
def test_the_page_reports_the_outcome(name):
    text = (ROOT / PAGE).read_text()
    assert row(name) in text
