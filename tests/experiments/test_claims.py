"""Test that the claims about the paper's figures are judged correctly, on synthetic tables of results.

In each table a claim is clearly true, clearly false, tied or inconclusive.
"""

from __future__ import annotations

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from hkrr.experiments import get_experiment
from hkrr.experiments.experiment_runner import Claim
from hkrr.experiments.figures import COLOURS
from support.experiment_tables import (
    LINKS,
    STEPS,
    THREE,
    claims_of,
    convergence,
    latent,
    toy_basins,
    toy_trajectories,
    training_size,
)

# Loss curves from one starting map: the (seconds, loss) pairs of VarPro, then those of AGD. The function `convergence`
# adds a loss of 5 at 0 seconds to each curve, and a time limit of 40 seconds. AGD ends with a lower loss than VarPro in
# ESCAPES, with a higher loss in STAYS, and with the same loss in SAME, SLOW and AT_ONCE. It reaches this loss after
# VarPro in SAME, before VarPro in SLOW, and at the same time in AT_ONCE.
ESCAPES, STAYS = ([(1, 2)], [(9, 1)]), ([(1, 1)], [(9, 2)])
SAME, SLOW, AT_ONCE = ([(1, 1)], [(9, 1)]), ([(9, 1)], [(1, 1)]), ([(3, 1)], [(3, 1)])
# In TAIL and ROUNDING, VarPro reaches its final loss after 1 s, up to the tolerance of the claims.
TAIL = ([(1, 1.02), (20, 1)], [(9, 1)])
ROUNDING = ([(1, 1 + 1e-9)], [(9, 1)])
# In FALLING, VarPro ends with a higher loss than AGD and has not converged.
FALLING = ([(1, 4), (39, 2)], [(9, 1)])
# In LATE, AGD has not converged.
LATE = ([(1, 1)], [(9, 2), (39, 1)])


@pytest.mark.parametrize(
    ("holds", "line"),
    [
        (True, "holds: it is so. Measured: 1"),
        (False, "does not hold: it is so. Measured: 1"),
        (None, "inconclusive: it is so. Measured: 1"),
    ],
)
def test_text_of_a_claim(holds, line):
    assert str(Claim("it is so", holds, "1")) == line


@pytest.mark.parametrize(
    ("starts", "lower", "n_lower", "faster", "of_both", "escapes", "n_escapes"),
    [
        ([ESCAPES, ESCAPES, SAME], True, "2 of 3", True, "1 of 1", True, 2),
        ([ESCAPES, SAME, SLOW], False, "1 of 3", False, "1 of 2", True, 1),
        ([ESCAPES, ESCAPES, STAYS, STAYS], False, "2 of 4", None, "0 of 0", True, 2),
        ([STAYS, AT_ONCE], False, "0 of 2", False, "0 of 1", False, 0),
        ([TAIL, SAME, SLOW], False, "0 of 3", True, "2 of 3", False, 0),
        # A difference within the tolerance does not count as lower.
        ([ROUNDING, ROUNDING, ROUNDING], False, "0 of 3", True, "3 of 3", False, 0),
        # A run whose loss still falls has not converged.
        ([FALLING, FALLING, SAME], True, "2 of 3", True, "1 of 1", False, 0),
        ([LATE, LATE], False, "0 of 2", None, "0 of 0", False, 0),
    ],
)
def test_convergence(starts, lower, n_lower, faster, of_both, escapes, n_escapes):
    first, second, third = claims_of("convergence", convergence(*starts))
    assert (first.holds, first.number) == (lower, f"{n_lower} starting maps")
    assert second.holds is faster
    n_faster, n_both = of_both.split(" of ")
    shown = f"both reach the same loss from {n_both} of {len(starts)} starting maps"
    assert second.number == f"{shown}; VarPro is faster from {n_faster} of these"
    assert third.holds is escapes
    shown = f"from {n_escapes} of {len(starts)} starting maps"
    assert third.number == f"{shown}, VarPro converges to a higher loss than AGD"


@pytest.mark.parametrize(
    "starts", [[SAME, SAME], [STAYS, STAYS], [SAME, STAYS], [SAME, ESCAPES], [ESCAPES, FALLING], [FALLING, LATE]]
)
def test_titles_of_loss_curves_are_true(starts):
    # Leave out the runs from start 0, as if they had failed.
    table = [row for row in convergence(STAYS, *starts) if row["start"] > 0]
    figure = get_experiment("convergence").plot(table)
    titles = [ax.get_title() for ax in figure.axes]
    plt.close(figure)
    assert any("same loss" in title for title in titles) == (SAME in starts)
    assert any("AGD escapes" in title for title in titles) == (ESCAPES in starts)
    assert any("AGD ends lower" in title for title in titles) == (FALLING in starts and ESCAPES not in starts)
    assert not any("start 0" in title for title in titles)


@pytest.mark.parametrize(
    ("ends", "counts", "holds"),
    [
        ([(-0.5, 1), (1, 1), (-0.5, 1)], (5, 9, 3), [True, True, True]),
        ([(1, 1), (1, 2.5), (-0.5, -0.5)], (5, 9, 3), [False, False, False]),
        ([(1, -0.5), (2.5, 1), (0.9, 1.04)], (5, 9, 3), [False, True, False]),
        ([(-0.5, 1.06), (1, 1), (1, 1)], (9, 5, 3), [False, False, False]),
        ([(-0.5, 1), (1, 1), (-0.5, 1)], (7, 7, 3), [True, True, False]),
    ],
)
@pytest.mark.parametrize("odd", STEPS)
def test_toy_path(odd, ends, counts, holds):
    """Test that a single initial step size that disagrees with the paper refutes a claim.

    With the initial step size ``odd``, ``ends`` has the final y of VarPro and AGD from each of the three starting
    points, and ``counts`` has the numbers of iterations of the three methods. The results with the other step sizes
    agree with the paper.
    """
    well = {(0, step): (-0.5, 1) for step in STEPS} | {(1, step): (1, 1) for step in STEPS}
    well |= {(2, step): (-0.5, 1) for step in STEPS}
    steps = dict.fromkeys(STEPS, (5, 9, 3)) | {odd: counts}
    first, sigmoid, fewer = claims_of("toy-path", toy_trajectories(well | {(k, odd): ends[k] for k in range(3)}, steps))
    assert [first.holds, sigmoid.holds, fewer.holds] == holds
    for claim, (varpro, agd) in ((first, ends[0]), (sigmoid, ends[2])):
        shown = f"VarPro ends at y = {varpro:.2f}, AGD ends at y = {agd:.2f}, L-BFGS ends at y = 0.25"
        assert f"initial step size {odd:g}: {shown}" in claim.number.split("; ")
    assert f"initial step size {odd:g}: VarPro {counts[0]}, AGD {counts[1]}, L-BFGS 3" in fewer.number.split("; ")


@pytest.mark.parametrize(
    ("varpro", "agd", "holds"),
    [(range(25), range(75), True), (range(50), range(50, 100), False), (range(75), range(25), False)]
    # The claim needs a difference of more than one percentage point. One start in a hundred is not enough.
    + [(range(n), range(n + 1), False) for n in (2, 28, 56, 57, 98)]
    + [(range(n), range(n + 2), True) for n in (2, 28, 56, 57, 98)],
)
@pytest.mark.parametrize("link", LINKS)
def test_toy_map(link, varpro, agd, holds):
    """Test that a single initial step size decides the claim about one function.

    The claim about the other function holds. ``varpro`` and ``agd`` are the indices of the starting points, out of 100,
    from which the methods succeed with this step size.
    """
    arrivals = dict.fromkeys(product(LINKS, STEPS), (range(30), range(40), range(99)))
    table = toy_basins(arrivals | {(link, 1.0): (varpro, agd, ())}, n_points=10)
    claims = dict(zip(LINKS, claims_of("toy-map", table), strict=True))
    assert {name: claim.holds for name, claim in claims.items()} == dict.fromkeys(LINKS, True) | {link: holds}
    shown = f"initial step size 1: VarPro {len(varpro):.1f}%, AGD {len(agd):.1f}%, L-BFGS 0.0%"
    assert claims[link].number.split("; ")[2] == shown
    assert f"({link}, for every initial step size)" in claims[link].text


def test_toy_map_colours():
    """Test that starts are purple if both methods succeed, blue if only AGD, red if only VarPro, grey if neither."""
    arrivals = dict.fromkeys(product(LINKS, STEPS), ((), (), ())) | {(n, 0.1): ({0, 2}, {0, 1}, {0}) for n in LINKS}
    figure = get_experiment("toy-map").plot(toy_basins(arrivals))
    for ax in figure.axes[:2]:
        mesh = ax.collections[0]
        # The rows of the mesh are values of y0 and the columns values of x0. Starts are numbered along y0 first.
        both, *one, none = mesh.cmap(mesh.norm(np.reshape(mesh.get_array(), (2, 2)).T.ravel()))[:, :3]
        assert [to_hex(colour).upper() for colour in one] == [COLOURS["AGD"], COLOURS["VarPro"]]
        assert min(both[0], both[2]) > 1.5 * both[1]
        assert np.ptp(none) < 0.05
        assert {line.get_marker() for line in ax.lines} == {"*", "+"}
    (legend,) = figure.legends
    named = {text.get_text() for text in legend.get_texts()}
    assert {"both succeed", "only AGD", "only VarPro", "neither", "global minimum", "local minimum"} <= named
    plt.close(figure)


# The pairs (data set, method) that the claims are about.
SETTINGS = tuple(product((1, 2), ("VarPro", "AGD")))
# R2 at five values of d above d*, where d is the number of directions and d* the true number. In the scores of a table,
# the third score is R2 at d*.
MORE = (0.84, 0.82, 0.81, 0.81, 0.0)


@pytest.mark.parametrize(
    ("R2", "holds"),
    [
        ((0.0, 0.4, 0.8, *MORE), [True, True, True]),
        ((0.0, 0.71, 0.8, *MORE), [False, True, True]),
        ((0.9, 0.4, 0.8, *MORE), [False, True, True]),
        ((0.0, 0.4, 0.8, 0.74, 0.7, 0.7, 0.7, 0.7), [True, False, False]),
        ((0.0, 0.4, 0.8, 0.76, 0.76, 0.76, 0.76, 0.0), [True, True, False]),
        ((0.0, 0.4, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8), [True, True, False]),
        ((0.0, 0.4, 0.8, 0.81, 0.81, 0.79, 0.79, 0.0), [True, True, False]),
        ((0.0, 0.4, 0.8, 0.81, 0.81, 0.81, 0.79, 0.0), [True, True, True]),
        # Only the first d above d* keeps the accuracy. All larger values of d lose it completely.
        ((0.0, 0.4, 0.8, 0.8, 0.0, 0.0, 0.0, 0.0), [True, False, False]),
        # R2 at d* is below 0.1, so the methods have not fitted the data. The claims are inconclusive.
        ((-0.5, 0.0, 0.09, 0.5, 0.5, 0.5, 0.5, 0.5), [None, None, None]),
    ],
)
def test_latent_dimension(R2, holds):
    claims = claims_of("latent-dimension", latent(R2))
    assert [claim.holds for claim in claims] == holds
    if holds == [None] * 3:
        excluded = "no fit at d* (R2 below 0.1): " + ", ".join(f"{method}, data set {k}" for k, method in SETTINGS)
        assert {claim.number for claim in claims} == {excluded}
        return
    lost = [R2[2] - max(R2[:2]), R2[2] - np.median(R2[3:])]
    share = np.mean([value > R2[2] for value in R2[3:]])
    for claim, number in zip(claims, (f"{lost[0]:+.3f}", f"{lost[1]:+.3f}", f"{share:.0%}"), strict=True):
        assert claim.number == ", ".join(f"{method}, data set {k}: {number}" for k, method in SETTINGS)


@pytest.mark.parametrize("odd", SETTINGS)
def test_latent_dimension_one_counterexample_refutes_a_claim(odd):
    table = latent((0.0, 0.4, 0.8, *MORE), odd, (0.0, 0.79, 0.8, 0.5, 0.5, 0.5, 0.5, 0.0))
    claims = claims_of("latent-dimension", table)
    assert [claim.holds for claim in claims] == [False, False, True]
    for claim, number in zip(claims, ("+0.01", "+0.30", "0%"), strict=True):
        assert f"{odd[1]}, data set {odd[0]}: {number}" in claim.number


@pytest.mark.parametrize("odd", SETTINGS)
def test_latent_dimension_a_setting_without_a_fit_is_named_and_does_not_count(odd):
    claims = claims_of("latent-dimension", latent((0.0, 0.4, 0.8, *MORE), odd, (0.5, 0.5, 0.05, *[0.0] * 5)))
    assert [claim.holds for claim in claims] == [True, True, True]
    for claim in claims:
        assert claim.number.endswith(f"; no fit at d* (R2 below 0.1): {odd[1]}, data set {odd[0]}")
        assert claim.number.count("data set") == 4


@pytest.mark.parametrize(
    ("true_d", "R2", "holds"),
    [
        (1, (0.8, 0.84, 0.82, 0.81, 0.81, 0.81, 0.81, 0.0), [None, True, True]),
        (1, (0.8, *[0.5] * 7), [None, False, False]),
        (50, (*[0.4] * 7, 0.8), [True, None, None]),
        (50, (*[0.75] * 7, 0.8), [False, None, None]),
    ],
)
def test_latent_dimension_with_d_star_at_the_ends(true_d, R2, holds):
    """Test that claims are inconclusive if they need values of d that do not exist.

    There is no d < d* if d* = 1, and no d > d* if d* is the number of inputs D.
    """
    claims = claims_of("latent-dimension", latent(R2, true_d=true_d))
    assert not [claim.number for claim in claims if "no fit" in claim.number]
    assert [claim.holds for claim in claims] == holds


@pytest.mark.parametrize(
    ("varpro", "agd", "holds"),
    [
        ((0.5, 0.8, 0.6), (0.4, 0.7, 0.6), [True, True]),
        ((0.5, 0.8, 0.6), (0.5, 0.8, 0.9), [False, True]),
        ((0.5, 0.8, 0.8), (0.5, 0.8, 0.6), [False, True]),
        ((0.5, 0.8, 0.6), (0.8, 0.8, 0.6), [True, False]),
    ],
)
@pytest.mark.parametrize("odd", [800, 1600])
def test_training_size(odd, varpro, agd, holds):
    """Test that a counterexample at one of the two largest sizes refutes a claim, which is about VarPro and AGD.

    At the size ``odd``, ``varpro`` and ``agd`` each contain the scores for the three values of d. At the other large
    size the scores agree with the paper. Neither the smaller sizes nor L-BFGS affect the claims.
    """
    at = {"VarPro": varpro, "AGD": agd, "L-BFGS": (0.9, 0.1, 0.9)}

    def R2(method, m, k):
        if m == odd:
            return at[method][k]
        return (0.5, 0.8, 0.6)[k] if m > 400 else (0.9, 0.1, 0.9)[k]

    table = training_size(R2, sizes=(100, 400, 800, 1600))
    # One run in four has a very low score, which must not affect the medians.
    table += [{**row, "repeat": 3, "R2": -9.0} for row in table if row["repeat"] == 0]
    first, second = claims_of("training-size", table)
    assert [first.holds, second.holds] == holds
    for method in THREE[:2]:
        shown = "{}, m = {}: {:.3f} (d = 3), {:.3f} (d = 20), {:.3f} (d = 50)".format(method, odd, *at[method])
        assert shown in first.number.split("; ")
    assert first.number == second.number
    assert ["m = 100" in first.number, "m = 400" in first.number, "L-BFGS" in first.number] == [False] * 3
    assert "d = 50 is worse than d = 20" in first.text
    assert "d = 20 is better than d = 3" in second.text
