"""No claim about the figures is a rubber stamp: tables from which each is plainly true, false, tied, or not to say."""

from __future__ import annotations

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from hkrr.experiments import get_experiment
from hkrr.experiments.base import COLOURS, Claim
from tables import LINKS, STEPS, THREE, claims_of, convergence, latent, toy_map, toy_path, training_size

# For each start, the (seconds, loss) of VarPro and of AGD; the first loss is 5, and there are 40 seconds.
ESCAPES, STAYS = ([(1, 2)], [(9, 1)]), ([(1, 1)], [(9, 2)])
SAME, SLOW, AT_ONCE = ([(1, 1)], [(9, 1)]), ([(9, 1)], [(1, 1)]), ([(3, 1)], [(3, 1)])
TAIL = ([(1, 1.02), (20, 1)], [(9, 1)])  # there after 1 s, but for what counts as the same
ROUNDING = ([(1, 1 + 1e-9)], [(9, 1)])
FALLING = ([(1, 4), (39, 2)], [(9, 1)])  # VarPro ends higher, and has not come to rest
LATE = ([(1, 1)], [(9, 2), (39, 1)])  # nor has AGD here


@pytest.mark.parametrize(
    ("holds", "line"),
    [(True, "holds: it is so (1)"), (False, "does not hold: it is so (1)"), (None, "cannot be said: it is so (1)")],
)
def test_claims_in_words(holds, line):
    assert str(Claim("it is so", holds, "1")) == line


@pytest.mark.parametrize(
    ("starts", "lower", "n_lower", "faster", "of_both", "escapes", "n_escapes"),
    [
        ([ESCAPES, ESCAPES, SAME], True, "2 of 3", True, "1 of 1", True, 2),
        ([ESCAPES, SAME, SLOW], False, "1 of 3", False, "1 of 2", True, 1),
        ([ESCAPES, ESCAPES, STAYS, STAYS], False, "2 of 4", None, "0 of 0", True, 2),
        ([STAYS, AT_ONCE], False, "0 of 2", False, "0 of 1", False, 0),
        ([TAIL, SAME, SLOW], False, "0 of 3", True, "2 of 3", False, 0),
        # What counts as the same, where both arrive, must not count as lower.
        ([ROUNDING, ROUNDING, ROUNDING], False, "0 of 3", True, "3 of 3", False, 0),
        # Who still goes down has neither arrived nor stayed.
        ([FALLING, FALLING, SAME], True, "2 of 3", True, "1 of 1", False, 0),
        ([LATE, LATE], False, "0 of 2", None, "0 of 0", False, 0),
    ],
)
def test_convergence(starts, lower, n_lower, faster, of_both, escapes, n_escapes):
    first, second, third = claims_of("convergence", convergence(*starts))
    assert (first.holds, first.number) == (lower, f"{n_lower} starts")
    assert second.holds is faster
    assert second.number == f"{of_both} starts where both arrive at the same loss, of {len(starts)}"
    assert third.holds is escapes
    assert third.number == f"{n_escapes} of {len(starts)} starts where VarPro has come to rest above AGD"


@pytest.mark.parametrize(
    "starts", [[SAME, SAME], [STAYS, STAYS], [SAME, STAYS], [SAME, ESCAPES], [ESCAPES, FALLING], [FALLING, LATE]]
)
def test_titles_of_loss_curves_are_true(starts):
    table = [row for row in convergence(STAYS, *starts) if row["start"] > 0]  # the first one failed
    figure = get_experiment("convergence").plot(table)
    titles = [ax.get_title() for ax in figure.axes]
    plt.close(figure)
    assert any("both arrive" in title for title in titles) == (SAME in starts)
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
    """With one first step it goes like that, with the others as the paper says: one is enough against."""
    well = {(0, step): (-0.5, 1) for step in STEPS} | {(1, step): (1, 1) for step in STEPS}
    well |= {(2, step): (-0.5, 1) for step in STEPS}
    steps = dict.fromkeys(STEPS, (5, 9, 3)) | {odd: counts}
    first, sigmoid, fewer = claims_of("toy-path", toy_path(well | {(k, odd): ends[k] for k in range(3)}, steps))
    assert [first.holds, sigmoid.holds, fewer.holds] == holds
    for claim, (varpro, agd) in ((first, ends[0]), (sigmoid, ends[2])):
        shown = f"VarPro ends at y = {varpro:.2f}, AGD ends at y = {agd:.2f}, L-BFGS ends at y = 0.25"
        assert f"first step {odd:g}: {shown}" in claim.number.split("; ")
    assert f"first step {odd:g}: VarPro {counts[0]}, AGD {counts[1]}, L-BFGS 3" in fewer.number.split("; ")


@pytest.mark.parametrize(
    ("varpro", "agd", "holds"),
    [(range(25), range(75), True), (range(50), range(50, 100), False), (range(75), range(25), False)]
    # One start of a hundred is a point, and no more than that.
    + [(range(n), range(n + 1), False) for n in (2, 28, 56, 57, 98)]
    + [(range(n), range(n + 2), True) for n in (2, 28, 56, 57, 98)],
)
@pytest.mark.parametrize("link", LINKS)
def test_toy_map(link, varpro, agd, holds):
    """One of three first steps differs for one function: that decides its claim, and no other."""
    arrivals = dict.fromkeys(product(LINKS, STEPS), (range(30), range(40), range(99)))
    table = toy_map(arrivals | {(link, 1.0): (varpro, agd, ())}, n_points=10)
    claims = dict(zip(LINKS, claims_of("toy-map", table), strict=True))
    assert {name: claim.holds for name, claim in claims.items()} == dict.fromkeys(LINKS, True) | {link: holds}
    shown = f"first step 1: VarPro {len(varpro):.1f}%, AGD {len(agd):.1f}%, L-BFGS 0.0%"
    assert claims[link].number.split("; ")[2] == shown
    assert f"({link}, for every first step)" in claims[link].text


def test_toy_map_colours():
    """Start 0 is of both, 1 of AGD only, 2 of VarPro only, 3 of none: purple, blue, red, grey; with the middle step."""
    arrivals = dict.fromkeys(product(LINKS, STEPS), ((), (), ())) | {(n, 0.1): ({0, 2}, {0, 1}, {0}) for n in LINKS}
    figure = get_experiment("toy-map").plot(toy_map(arrivals))
    for ax in figure.axes[:2]:
        mesh = ax.collections[0]
        # A row of the mesh is a y0, a column an x0; starts are counted along y0 first.
        both, *one, none = mesh.cmap(mesh.norm(np.reshape(mesh.get_array(), (2, 2)).T.ravel()))[:, :3]
        assert [to_hex(colour).upper() for colour in one] == [COLOURS["AGD"], COLOURS["VarPro"]]
        assert min(both[0], both[2]) > 1.5 * both[1]
        assert np.ptp(none) < 0.05
        assert {line.get_marker() for line in ax.lines} == {"*", "+"}
    (legend,) = figure.legends
    named = {text.get_text() for text in legend.get_texts()}
    assert {"both arrive", "only AGD", "only VarPro", "neither", "global minimum", "local minimum"} <= named
    plt.close(figure)


SETTINGS = tuple(product((1, 2), ("VarPro", "AGD")))
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
        # Only the first d above d* keeps its accuracy, the others lose all of it: that is not little.
        ((0.0, 0.4, 0.8, 0.8, 0.0, 0.0, 0.0, 0.0), [True, False, False]),
        # Nothing was learned at d*: there is nothing to lose, whatever the others do.
        ((-0.5, 0.0, 0.09, 0.5, 0.5, 0.5, 0.5, 0.5), [None, None, None]),
    ],
)
def test_latent_dimension(R2, holds):
    claims = claims_of("latent-dimension", latent(R2))
    assert [claim.holds for claim in claims] == holds
    if holds == [None] * 3:
        left_out = "nothing learned at d*: " + ", ".join(f"{method}, data set {k}" for k, method in SETTINGS)
        assert {claim.number for claim in claims} == {left_out}
        return
    lost = [R2[2] - max(R2[:2]), R2[2] - np.median(R2[3:])]
    share = np.mean([value > R2[2] for value in R2[3:]])
    for claim, number in zip(claims, (f"{lost[0]:+.3f}", f"{lost[1]:+.3f}", f"{share:.0%}"), strict=True):
        assert claim.number == ", ".join(f"{method}, data set {k}: {number}" for k, method in SETTINGS)


@pytest.mark.parametrize("odd", SETTINGS)
def test_latent_dimension_one_setting_is_enough_against(odd):
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
        assert claim.number.endswith(f"; nothing learned at d*: {odd[1]}, data set {odd[0]}")
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
def test_latent_dimension_says_what_can_be_said_at_the_ends(true_d, R2, holds):
    """With d* = 1 there is no d below it, with d* = D none above: of the other side all can be said."""
    claims = claims_of("latent-dimension", latent(R2, true_d=true_d))
    assert not [claim.number for claim in claims if "nothing learned" in claim.number]
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
    """At one of the larger sizes it goes like that, at the other well; the smaller ones do not matter, nor L-BFGS."""
    at = {"VarPro": varpro, "AGD": agd, "L-BFGS": (0.9, 0.1, 0.9)}

    def R2(method, m, k):
        if m == odd:
            return at[method][k]
        return (0.5, 0.8, 0.6)[k] if m > 400 else (0.9, 0.1, 0.9)[k]

    table = training_size(R2, sizes=(100, 400, 800, 1600))
    table += [{**row, "repeat": 3, "R2": -9.0} for row in table if row["repeat"] == 0]  # one run in four goes wrong
    first, second = claims_of("training-size", table)
    assert [first.holds, second.holds] == holds
    for method in THREE[:2]:
        shown = "{}, m = {}: d = 3: {:.3f}, d = 20: {:.3f}, d = 50: {:.3f}".format(method, odd, *at[method])
        assert shown in first.number.split("; ")
    assert first.number == second.number
    assert ["m = 100" in first.number, "m = 400" in first.number, "L-BFGS" in first.number] == [False] * 3
    assert "d = 50 is worse than d = 20" in first.text
    assert "d = 20 is better than d = 3" in second.text
