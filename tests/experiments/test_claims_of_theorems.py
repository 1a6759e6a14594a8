"""Test that the claims about the paper's theorems are judged correctly, on synthetic tables of results.

In each table a claim is clearly true, clearly false, tied or inconclusive.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from support.experiment_tables import SIZES, adaptivity, claims_of, nystrom, sample_complexity, stationarity

# Slopes of the risk of KRR against m, on logarithmic scales, for D = 10, 20, 50. They deteriorate with D, as the paper
# claims.
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
        # HKRR's slope depends on D as well, or neither slope depends on D.
        ((-1.0, -2.0, -3.0), WELL, [True, False]),
        ((-1.0, -1.0, -1.0), (-0.5, -0.5, -0.5), [True, False]),
        ((-1.0, -1.0, -1.0), (-1.0, -1.0, -1.0), [False, False]),
        # HKRR's risk does not decrease.
        ((0.1, 0.1, 0.1), WELL, [False, True]),
    ],
)
def test_sample_complexity(hkrr, krr, holds):
    """Test that the claims compare the slopes of HKRR and of KRR over the last three sizes.

    ``hkrr`` and ``krr`` have the slopes for D = 10, 20, 50.
    """
    faster, spread = claims_of("sample-complexity", sample_complexity(hkrr, krr))
    assert [faster.holds, spread.holds] == holds
    hkrr_slopes, krr_slopes = (", ".join(f"{value:.2f}" for value in slopes) for slopes in (hkrr, krr))
    shown = f"slopes over m = 400, 800, 1600, for D = 10, 20, 50: HKRR {hkrr_slopes}; KRR on X {krr_slopes}; "
    assert faster.number.startswith(shown)
    assert ". Slopes over all sizes: HKRR " in faster.number
    shown = f"spread of HKRR {np.ptp(hkrr):.2f}; KRR on X from {krr[0]:.2f} at D = 10 to {krr[2]:.2f} at D = 50"
    assert spread.number == shown


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_sample_complexity_without_a_rate_of_krr(slope):
    """Test that the claim that KRR's rate deteriorates with D does not hold if KRR does not converge at any D.

    The rate is then equally bad for all D.
    """
    _, spread = claims_of("sample-complexity", sample_complexity((-1.0,) * 3, (slope,) * 3))
    assert spread.holds is not True


@pytest.mark.parametrize("D", [10, 50])
def test_sample_complexity_with_one_dimension_has_no_spread(D):
    faster, spread = claims_of("sample-complexity", sample_complexity((-1.0,), (-0.5,), features=(D,)))
    assert [faster.holds, spread.holds] == [True, None]


@pytest.mark.parametrize(
    ("few", "uniform", "leverage", "holds", "number"),
    [
        (-1.0, (9, 5, 2, 1), (9, 1.09, 1, 1), [True, True], "leverage 10, uniform 40"),
        (-0.86, (9, 1.09, 1, 1), (9, 5, 2, 1), [True, False], "leverage 40, uniform 10"),
        (-0.84, (9, 5, 1.09, 1), (9, 5, 1.09, 1), [False, False], "leverage 20, uniform 20"),
        (0.5, (9, 5, 1.11, 1), (9, 5, 1.09, 1), [False, True], "leverage 20, uniform 40"),
        (-1.4, (9, 5, 2, 1), (1, 1, 1, 1), [True, True], "leverage 5, uniform 40"),
        # With leverage scores, 5 and 10 centers are sufficient by chance, but 20 centers are not. Therefore 40 centers
        # are needed.
        (-1.0, (9, 5, 1.05, 1), (1, 1, 1.2, 1), [True, False], "leverage 40, uniform 20"),
        # With one of the samplings no number of centers is sufficient. If this holds for both samplings, the claim is
        # inconclusive.
        (-1.0, (9, 5, 2, 1.2), (9, 5, 2, 1), [True, True], "leverage 40, uniform inf"),
        (-1.0, (9, 5, 2, 1), (9, 5, 2, 1.2), [True, False], "leverage inf, uniform 40"),
        (-1.0, (9, 5, 2, 1.2), (9, 5, 2, 1.3), [True, None], "leverage inf, uniform inf"),
    ],
)
@pytest.mark.parametrize("odd", [0, 1])
def test_nystrom(odd, few, uniform, leverage, holds, number):
    """Test the outcome of the claims about the rate with few centers and about the numbers of centers that are needed.

    ``few`` is the slope of the risk with few centers. This risk has the constant factor 7, which does not change the
    rate. ``uniform`` and ``leverage`` contain the risks with 5, 10, 20 and 40 centers that are drawn in these two ways,
    divided by the risk with all rows as centers. One of the two kinds of inputs (cube and clustered) has these ratios,
    and the other kind agrees with the paper.
    """
    well, pair = ((9, 5, 2, 1), (9, 5, 1, 1)), (uniform, leverage)
    slope, *needed = claims_of("nystrom", nystrom(few, *(well if odd else pair), clustered=pair if odd else well))
    assert [slope.holds, needed[odd].holds, needed[1 - odd].holds] == [*holds, True]
    assert slope.number.startswith(
        f"slope {few:.2f} with 4 sqrt(m) centers, -1.00 with all rows; risks at the largest "
    )
    theorem = "N = 12, N_inf = 34; number of centers in the theorems: uniform 200, leverage 300"
    assert needed[odd].number == f"{number}; {theorem}"
    assert needed[1 - odd].number == f"leverage 20, uniform 40; {theorem}"
    assert [f"({name} inputs;" in claim.text for name, claim in zip(("cube", "clustered"), needed, strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize("few", [-1.0, 0.5])
def test_nystrom_without_a_fit_has_no_rate(few):
    slope, *_ = claims_of("nystrom", nystrom(few, (2, 1), (2, 1), scale=400.0))
    assert slope.holds is None


def test_nystrom_notes_theorems_that_require_more_centers_than_rows():
    table = [row | {"m": 150} if row["part"] == "centers" else row for row in nystrom(-1.0, (2, 1), (2, 1))]
    for claim in claims_of("nystrom", table)[1:]:
        assert claim.number.endswith("uniform 200, leverage 300 (more than the 150 rows)")


@pytest.mark.parametrize(
    ("price", "d", "holds", "above"),
    [
        (lambda m: 1.5, (4, 4, 3), [True, True], "2 of 3 runs"),
        (lambda m: 10.0, (4, 3, 2), [True, False], "1 of 3 runs"),  # a constant factor does not change the rate
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
    assert f" for m = 100, 200, 400, 800, 1600: held-out {shown}; evidence " in keeps.number
    assert exceeds.number == above


def test_adaptivity_with_one_size_has_no_slope():
    keeps, exceeds = claims_of("adaptivity", adaptivity(lambda m: 1.5, sizes=(400,)))
    assert [keeps.holds, exceeds.holds] == [None, True]
    assert "slope +" not in keeps.number
    assert "slope -" not in keeps.number


# Squared gradients as functions of the number of iterations n. By the theorem, they fall at least as fast as 1 / n.
BETTER, EVEN, NOTHING = (lambda n: n**-2.0, lambda n: n**-1.01, lambda n: 0.0)
SLOWER, WORSE, HUGE = (lambda n: n**-0.99, lambda n: 0.5, lambda n: 1000.0)
# Lengths of paths as functions of n: ENDS converges, and GOES_ON does not.
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
    """Test that the claims are checked only on the runs that satisfy the assumptions of the theorem.

    There are four runs. The first has the given curves and ends with |B| = 1. The second agrees with the theorem and
    ends with |B| = 0.5, inside the ball |B| <= 1. The last two runs are excluded: in the third run the loss hardly
    falls, and the fourth run has a nearly singular K_mm.
    """
    odd, well = (gradient, mapping, path_B, path_alpha, 1.0, 1.0, 2e-4), (BETTER, BETTER, ENDS, ENDS, 0.5, 1.0, 2e-4)
    bad = (HUGE, HUGE, GOES_ON, GOES_ON, 1.0)
    claims = claims_of("stationarity", stationarity(odd, well, (*bad, 1.99, 2e-4), (*bad, 1.0, 1e-5)))
    assert [claim.holds for claim in claims] == holds * 2
    texts = ("N min |grad_B|^2", "min |grad_B|^2", "min |gradient mapping|^2", "the path of B", "the path of alpha")
    for (method, text), claim in zip(product(("VarPro", "AGD"), texts), claims, strict=True):
        assert claim.text.startswith(text)
        assert claim.text.endswith(f"({method})")
        assert claim.number.endswith(
            "2 of 4 runs satisfy the assumptions; in 1 runs, the smallest eigenvalue of K_mm fell below 0.0001"
        )
    used = max(n * gradient(n) for n in 2 ** np.arange(11.0)) / 40_000
    assert f"at most {max(used, 1 / 40_000):.1e} of the constant" in claims[0].number
    assert "1 runs end on the boundary |B| = 1" in claims[1].number
    slowest = {
        EVEN: "exponent of the slowest run: -1.01",
        SLOWER: "exponent of the slowest run: -0.99",
        WORSE: "the quantity hardly decreased in the slowest run",
        HUGE: "the quantity hardly decreased in the slowest run",
    }
    for claim, curve in zip(claims[1:3], (gradient, mapping), strict=True):
        assert claim.number.startswith(f"{slowest.get(curve, 'exponent of the slowest run: -2.00')}; ")
    added = {ENDS: "1.5%", GOES_ON: "93.8%", NOTHING: "1.5%"}  # the larger gain of the two runs; the second gains 1.5%
    for claim, path in zip(claims[3:5], (path_B, path_alpha), strict=True):
        assert claim.number.startswith(f"largest gain {added[path]}; ")


@pytest.mark.parametrize(("loss", "eigenvalue", "singular"), [(1.99, 0.1, 0), (1.0, 1e-5, 2)])
def test_stationarity_is_inconclusive_without_runs_that_satisfy_the_assumptions(loss, eigenvalue, singular):
    claims = claims_of("stationarity", stationarity(*[(BETTER, BETTER, ENDS, ENDS, 1.0, loss, eigenvalue)] * 2))
    assert [claim.holds for claim in claims] == [None] * 10
    shown = f"0 of 2 runs satisfy the assumptions; in {singular} runs, the smallest eigenvalue"
    assert all(shown in claim.number for claim in claims)


def test_stationarity_with_two_steps():
    """Test that the claims that the gradient decreases do not hold after only two steps with a constant gradient."""
    claims = claims_of("stationarity", stationarity((WORSE, WORSE, ENDS, ENDS, 0.5, 1.0, 0.1), last=2))
    assert not [str(claims[k]) for k in (1, 2, 6, 7) if claims[k].holds]
