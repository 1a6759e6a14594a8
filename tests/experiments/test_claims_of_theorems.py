"""No claim about the theorems is a rubber stamp: tables from which each is plainly true, false, tied, or not to say."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tables import SIZES, adaptivity, claims_of, nystrom, sample_complexity, stationarity

WELL = (-0.8, -0.5, -0.2)


@pytest.mark.parametrize(
    ("hkrr", "krr", "holds"),
    [
        ((-1.0, -1.0, -1.05), WELL, [True, True]),
        ((-1.0, -1.2, -1.29), (-0.8, -0.5, -0.39), [True, True]),
        ((-1.0, -1.2, -1.31), (-0.8, -0.5, -0.39), [True, False]),
        ((-1.0, -1.0, -1.0), (-0.8, -1.2, -0.2), [False, True]),
        ((-1.0, -1.0, -1.0), (-0.8, -0.5, 0.1), [True, True]),
        ((-1.0, -1.0, -1.0), (-0.8, -0.5, -0.41), [True, False]),
        ((-1.0, -1.0, -1.0), (-0.2, -0.5, -0.8), [True, False]),
        # KRR's slope varies even more, but HKRR's is far from hardly depending on D; or neither depends on it.
        ((-1.0, -2.0, -3.0), WELL, [True, False]),
        ((-1.0, -1.0, -1.0), (-0.5, -0.5, -0.5), [True, False]),
        ((-1.0, -1.0, -1.0), (-1.0, -1.0, -1.0), [False, False]),
        # Worse: HKRR's risk does not fall at all.
        ((0.1, 0.1, 0.1), WELL, [False, True]),
    ],
)
def test_sample_complexity(hkrr, krr, holds):
    """The slopes are those of the last three sizes."""
    faster, spread = claims_of("sample-complexity", sample_complexity(hkrr, krr))
    assert [faster.holds, spread.holds] == holds
    for number in (faster.number, spread.number):
        assert number.startswith("slopes over m = 400, 800, 1600: ")
    for value, D in zip(hkrr, (10, 20, 50), strict=True):
        assert f"{value:.2f} (D = {D}, over all sizes" in faster.number.split("; KRR on X: ")[0]
    shown = f"spread of HKRR {np.ptp(hkrr):.2f}, KRR on X from {krr[0]:.2f} (D = 10) to {krr[2]:.2f} (D = 50)"
    assert spread.number.endswith(shown)


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_sample_complexity_a_rate_that_is_none_does_not_wear_off(slope):
    """KRR's risk does not fall at any D: its slope does not depend on D, and there is none to halve."""
    _, spread = claims_of("sample-complexity", sample_complexity((-1.0,) * 3, (slope,) * 3))
    assert spread.holds is not True


@pytest.mark.parametrize("D", [10, 50])
def test_sample_complexity_with_one_dimension_there_is_no_spread(D):
    faster, spread = claims_of("sample-complexity", sample_complexity((-1.0,), (-0.5,), features=(D,)))
    assert [faster.holds, spread.holds] == [True, None]


@pytest.mark.parametrize(
    ("few", "uniform", "leverage", "holds", "number"),
    [
        (-1.0, (9, 5, 2, 1), (9, 1.09, 1, 1), [True, True], "10 against 40"),
        (-0.86, (9, 1.09, 1, 1), (9, 5, 2, 1), [True, False], "40 against 10"),
        (-0.84, (9, 5, 1.09, 1), (9, 5, 1.09, 1), [False, False], "20 against 20"),
        (0.5, (9, 5, 1.11, 1), (9, 5, 1.09, 1), [False, True], "20 against 40"),
        (-1.4, (9, 5, 2, 1), (1, 1, 1, 1), [True, True], "5 against 40"),
        # As good by luck, and then no more: it is enough from 40 on.
        (-1.0, (9, 5, 1.05, 1), (1, 1, 1.2, 1), [True, False], "40 against 20"),
        # One of them never comes so near; or none does, and who needs fewer cannot be said.
        (-1.0, (9, 5, 2, 1.2), (9, 5, 2, 1), [True, True], "40 against inf"),
        (-1.0, (9, 5, 2, 1), (9, 5, 2, 1.2), [True, False], "inf against 40"),
        (-1.0, (9, 5, 2, 1.2), (9, 5, 2, 1.3), [True, None], "inf against inf"),
    ],
)
@pytest.mark.parametrize("odd", [0, 1])
def test_nystrom(odd, few, uniform, leverage, holds, number):
    """Seven times the risk is no other rate, and one that falls faster costs nothing. One kind of inputs is odd."""
    well, pair = ((9, 5, 2, 1), (9, 5, 1, 1)), (uniform, leverage)
    slope, *needed = claims_of("nystrom", nystrom(few, *(well if odd else pair), clustered=pair if odd else well))
    assert [slope.holds, needed[odd].holds, needed[1 - odd].holds] == [*holds, True]
    assert slope.number.startswith(f"slope {few:.2f} with few, -1.00 with all; risk at the largest m ")
    theorem = "N = 12, N_inf = 34; the theorems' formulas: uniform 200, leverage 300"
    assert needed[odd].number == f"{number}; {theorem}"
    assert needed[1 - odd].number == f"20 against 40; {theorem}"
    assert [f"({name};" in claim.text for name, claim in zip(("cube", "clustered"), needed, strict=True)] == [True] * 2


@pytest.mark.parametrize("few", [-1.0, 0.5])
def test_nystrom_what_is_no_fit_has_no_rate(few):
    slope, *_ = claims_of("nystrom", nystrom(few, (2, 1), (2, 1), scale=400.0))
    assert slope.holds is None


def test_nystrom_says_where_the_formulas_ask_for_more_than_there_is():
    table = [row | {"m": 150} if row["part"] == "centers" else row for row in nystrom(-1.0, (2, 1), (2, 1))]
    for claim in claims_of("nystrom", table)[1:]:
        assert claim.number.endswith("uniform 200, leverage 300 (more than the 150 rows there are)")


@pytest.mark.parametrize(
    ("price", "d", "holds", "above"),
    [
        (lambda m: 1.5, (4, 4, 3), [True, True], "2 of 3 runs"),
        (lambda m: 10.0, (4, 3, 2), [True, False], "1 of 3 runs"),  # a constant, however large, keeps the rate
        (lambda m: m**-0.5, (3, 4), [True, False], "1 of 2 runs"),
        (lambda m: m**0.09, (3, 3, 3), [True, False], "0 of 3 runs"),
        (lambda m: m**0.11, (9, 9, 9), [False, True], "3 of 3 runs"),
        (lambda m: 0.01 * m**0.5, (4,), [False, True], "1 of 1 runs"),
    ],
)
def test_adaptivity(price, d, holds, above):
    keeps, exceeds = claims_of("adaptivity", adaptivity(price, d))
    assert [keeps.holds, exceeds.holds] == holds
    slope = np.log(price(1600) / price(100)) / np.log(16)
    shown = ", ".join(f"{price(m):.2f}" for m in SIZES)
    assert keeps.number.replace("-0.00", "+0.00").startswith(f"slope {slope:+.2f}; ")
    assert f" for m = 100, 200, 400, 800, 1600: held-out: {shown}; evidence: " in keeps.number
    assert exceeds.number == above


def test_adaptivity_of_one_size_has_no_slope():
    keeps, exceeds = claims_of("adaptivity", adaptivity(lambda m: 1.5, sizes=(400,)))
    assert [keeps.holds, exceeds.holds] == [None, True]
    assert "slope +" not in keeps.number
    assert "slope -" not in keeps.number


BETTER, EVEN, NOTHING = (lambda n: n**-2.0, lambda n: n**-1.01, lambda n: 0.0)
SLOWER, WORSE, HUGE = (lambda n: n**-0.99, lambda n: 0.5, lambda n: 1000.0)
ENDS, GOES_ON = (lambda n: 1.0 - 1.0 / n), (lambda n: n / 8.0)


@pytest.mark.parametrize(
    ("gradient", "mapping", "path_B", "path_alpha", "holds"),
    [
        (BETTER, EVEN, ENDS, ENDS, [True, True, True, True, True]),
        (EVEN, BETTER, ENDS, GOES_ON, [True, True, True, True, False]),
        (SLOWER, BETTER, GOES_ON, ENDS, [True, False, True, False, True]),
        (WORSE, SLOWER, ENDS, ENDS, [True, False, False, True, True]),
        (HUGE, HUGE, NOTHING, NOTHING, [False, False, False, True, True]),
        (NOTHING, NOTHING, NOTHING, NOTHING, [True, True, True, True, True]),
    ],
)
def test_stationarity(gradient, mapping, path_B, path_alpha, holds):
    """A run like that (on the sphere) and one as it should be (inside).

    Two are no matter: one that has not moved, and one with a K_mm as good as singular.
    """
    odd, well = (gradient, mapping, path_B, path_alpha, 1.0, 1.0, 2e-4), (BETTER, BETTER, ENDS, ENDS, 0.5, 1.0, 2e-4)
    bad = (HUGE, HUGE, GOES_ON, GOES_ON, 1.0)
    claims = claims_of("stationarity", stationarity(odd, well, (*bad, 1.99, 2e-4), (*bad, 1.0, 1e-5)))
    assert [claim.holds for claim in claims] == holds * 2
    texts = ("N min |grad_B|^2", "min |grad_B|^2", "min |gradient mapping|^2", "the path of B", "the path of alpha")
    for (method, text), claim in zip(product(("VarPro", "AGD"), texts), claims, strict=True):
        assert claim.text.startswith(text)
        assert claim.text.endswith(f"({method})")
        assert claim.number.endswith("2 of 4 starts; in 1 the least eigenvalue of K_mm fell below 0.0001")
    used = max(n * gradient(n) for n in 2 ** np.arange(11.0)) / 40_000
    assert f"at most {max(used, 1 / 40_000):.1e} of it" in claims[0].number
    assert "1 runs end on the sphere |B| = 1" in claims[1].number
    added = {ENDS: "1.5%", GOES_ON: "93.8%", NOTHING: "1.5%"}  # the run that is as it should be adds 1.5%
    for claim, path in zip(claims[3:5], (path_B, path_alpha), strict=True):
        assert claim.number.startswith(f"at most {added[path]}; ")


@pytest.mark.parametrize(("loss", "eigenvalue", "singular"), [(1.99, 0.1, 0), (1.0, 1e-5, 2)])
def test_stationarity_of_runs_that_do_not_suit_cannot_be_said(loss, eigenvalue, singular):
    claims = claims_of("stationarity", stationarity(*[(BETTER, BETTER, ENDS, ENDS, 1.0, loss, eigenvalue)] * 2))
    assert [claim.holds for claim in claims] == [None] * 10
    assert all(f"0 of 2 starts; in {singular} the least" in claim.number for claim in claims)


def test_stationarity_a_gradient_seen_twice_has_not_fallen():
    """Two steps, the loss halved, the gradient as large as ever: nothing says that it falls as 1 / N."""
    claims = claims_of("stationarity", stationarity((WORSE, WORSE, ENDS, ENDS, 0.5, 1.0, 0.1), last=2))
    assert not [str(claims[k]) for k in (1, 2, 6, 7) if claims[k].holds]
