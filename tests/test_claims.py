"""No claim is a rubber stamp: tables made by hand from which each is plainly true, plainly false, or tied."""

from __future__ import annotations

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from hkrr.experiments import get_experiment
from hkrr.experiments.base import COLOURS

THREE, LINKS = ("VarPro", "AGD", "L-BFGS"), ("square", "sigmoid")


def _claims(name, table):
    return get_experiment(name).claims(table)


# For each start, the (seconds, loss) of VarPro and of AGD; the first loss is 5.
ESCAPES, STAYS = ([(1, 2)], [(9, 1)]), ([(1, 1)], [(9, 2)])
SAME, SLOW, AT_ONCE = ([(1, 1)], [(9, 1)]), ([(9, 1)], [(1, 1)]), ([(3, 1)], [(3, 1)])
TAIL = ([(1, 1.02), (20, 1)], [(9, 1)])  # there after 1 s, but for what counts as the same
ROUNDING = ([(1, 1 + 1e-9)], [(9, 1)])


def _convergence(*starts):
    return [
        {"start": start, "method": method, "seconds": float(seconds), "iteration": k, "loss": float(loss)}
        for start, curves in enumerate(starts)
        for method, curve in zip(THREE, (*curves, curves[0]), strict=True)
        for k, (seconds, loss) in enumerate([(0, 5), *curve])
    ]


@pytest.mark.parametrize(
    ("starts", "lower", "number", "faster", "of_both"),
    [
        ([ESCAPES, ESCAPES, SAME], True, "2 of 3", True, "1 of 1 starts"),
        ([ESCAPES, SAME, SLOW], False, "1 of 3", False, "1 of 2 starts"),
        ([ESCAPES, ESCAPES, STAYS, STAYS], False, "2 of 4", False, "0 of 0 starts"),
        ([STAYS, AT_ONCE], False, "0 of 2", False, "0 of 1 starts"),
        ([TAIL, SAME, SLOW], False, "0 of 3", True, "2 of 3 starts"),
        # What counts as the same, where both arrive, must not count as lower.
        ([ROUNDING, ROUNDING, ROUNDING], False, "0 of 3", True, "3 of 3 starts"),
    ],
)
def test_convergence(starts, lower, number, faster, of_both):
    first, second = _claims("convergence", _convergence(*starts))
    assert (second.holds, second.number) == (faster, of_both)
    assert (first.holds, first.number) == (lower, number)


@pytest.mark.parametrize("starts", [[SAME, SAME], [STAYS, STAYS], [SAME, STAYS], [SAME, ESCAPES], [ESCAPES, ESCAPES]])
def test_titles_of_loss_curves_are_true(starts):
    figure = get_experiment("convergence").plot(_convergence(*starts))
    titles = " ".join(ax.get_title() for ax in figure.axes)
    plt.close(figure)
    assert ("both arrive" in titles) == (SAME in starts)
    assert ("AGD ends lower" in titles) == (ESCAPES in starts)


@pytest.mark.parametrize(
    ("ends", "steps", "holds"),
    [
        ([(-0.5, 1), (1, 1), (-0.5, 1)], (5, 9, 3), [True, True, True]),
        ([(1, 1), (1, 2.5), (-0.5, -0.5)], (5, 9, 3), [False, False, False]),
        ([(1, -0.5), (2.5, 1), (0.9, 1.04)], (5, 9, 3), [False, True, False]),
        ([(-0.5, 1.06), (1, 1), (1, 1)], (9, 5, 3), [False, False, False]),
        ([(-0.5, 1), (1, 1), (-0.5, 1)], (7, 7, 3), [True, True, False]),
    ],
)
def test_toy_path(ends, steps, holds):
    starts = (("square", -1.5, -1.5), ("square", -1.5, -0.1), ("sigmoid", 5.0, -1.75))
    table = [
        {"link": link, "x0": x0, "y0": y0, "method": method, "loss": 1.0, "y": end if k == n else y0}
        for (link, x0, y0), pair in zip(starts, ends, strict=True)
        for method, end, n in zip(THREE, (*pair, 0.25), steps, strict=True)
        for k in range(n + 1)
    ]
    first, sigmoid, fewer = _claims("toy-path", table)
    assert [first.holds, sigmoid.holds, fewer.holds] == holds
    for claim, (varpro, agd) in ((first, ends[0]), (sigmoid, ends[2])):
        assert claim.number == f"AGD ends at y = {agd:.2f}, VarPro at {varpro:.2f}, L-BFGS at 0.25"
    assert fewer.number == "VarPro {}, AGD {}, L-BFGS {}".format(*steps)


def _toy_map(arrivals):
    """``arrivals[link, step]`` has which of four starts each method brings to y = 1."""
    return [
        {"link": link, "first_step": step, "x0": float(k // 2), "y0": float(k % 2)}
        | {f"y_{method}": 1.0 if k in arrived else -0.54 for method, arrived in zip(THREE, ends, strict=True)}
        for (link, step), ends in arrivals.items()
        for k in range(4)
    ]


@pytest.mark.parametrize(
    ("second", "holds", "shares"),
    [
        (({0}, {0, 1, 2}, {3}), True, "VarPro 25.0%, AGD 75.0%, L-BFGS 25.0%"),
        (({0, 1}, {2, 3}, set()), False, "VarPro 50.0%, AGD 50.0%, L-BFGS 0.0%"),
        (({0, 1, 2}, {0}, {0, 1, 2, 3}), False, "VarPro 75.0%, AGD 25.0%, L-BFGS 100.0%"),
    ],
)
@pytest.mark.parametrize("link", LINKS)
def test_toy_map(link, second, holds, shares):
    """The second of two first steps differs for one function: that decides its claim, and no other."""
    keys = list(product(LINKS, (0.1, 1.0)))
    arrivals = dict.fromkeys(keys, ({0}, {0, 1}, {0})) | {(link, 1.0): second}
    claims = dict(zip(keys, _claims("toy-map", _toy_map(arrivals)), strict=True))
    assert {key: claim.holds for key, claim in claims.items()} == dict.fromkeys(keys, True) | {(link, 1.0): holds}
    assert claims[link, 1.0].number == shares
    assert f"({link}, first step 1)" in claims[link, 1.0].text


def test_toy_map_colours():
    """Start 0 is of both, 1 of AGD only, 2 of VarPro only, 3 of none: purple, blue, red, grey."""
    arrivals = dict.fromkeys(product(LINKS, (0.01, 0.1, 1.0)), ({0, 2}, {0, 1}, {0}))
    figure = get_experiment("toy-map").plot(_toy_map(arrivals))
    for ax in figure.axes[:2]:
        mesh = ax.collections[0]
        # A row of the mesh is a y0, a column an x0; starts are counted along y0 first.
        both, *one, none = mesh.cmap(mesh.norm(np.reshape(mesh.get_array(), (2, 2)).T.ravel()))[:, :3]
        assert [to_hex(colour).upper() for colour in one] == [COLOURS["AGD"], COLOURS["VarPro"]]
        assert min(both[0], both[2]) > 1.5 * both[1]
        assert np.ptp(none) < 0.05
        assert {line.get_marker() for line in ax.lines} == {"*", "+"}
    plt.close(figure)


D_TRIED, SETTINGS = (1, 2, 3, 4, 5, 10, 20, 50), tuple(product((1, 2), ("VarPro", "AGD")))
MORE = (0.84, 0.82, 0.81, 0.81, 0.0)


def _latent(R2, odd=None, odd_R2=()):
    """The same R2 for every setting but the odd one; the middle of three runs, the others far off on either side."""
    return [
        {"data_set": data_set, "d": d, "repeat": repeat, "method": method, "true_d": 3}
        | {"R2": (odd_R2 if (data_set, method) == odd else R2)[k] + shift}
        for data_set, (k, d), method in product((1, 2), enumerate(D_TRIED), THREE)
        for repeat, shift in enumerate((-0.3, 0.0, 0.3))
    ]


@pytest.mark.parametrize(
    ("R2", "holds"),
    [
        ((0.0, 0.4, 0.8, *MORE), [True, True, True]),
        ((0.0, 0.71, 0.8, *MORE), [False, True, True]),
        ((0.9, 0.4, 0.8, *MORE), [False, True, True]),
        ((0.0, 0.4, 0.8, 0.74, 0.7, 0.7, 0.7, 0.7), [True, False, False]),
        ((0.0, 0.4, 0.8, 0.76, 0.76, 0.76, 0.76, 0.0), [True, True, False]),
        ((0.0, 0.4, 0.8, 0.8, 0.8, 0.8, 0.8, 0.0), [True, True, False]),
        ((0.0, 0.4, 0.8, 0.81, 0.81, 0.79, 0.79, 0.0), [True, True, False]),
        ((0.0, 0.4, 0.8, 0.81, 0.81, 0.81, 0.79, 0.0), [True, True, True]),
        # Only the first d above d* keeps its accuracy, the others lose all of it: that is not little.
        ((0.0, 0.4, 0.8, 0.8, 0.0, 0.0, 0.0, 0.0), [True, False, False]),
    ],
)
def test_latent_dimension(R2, holds):
    few, _, helps = claims = _claims("latent-dimension", _latent(R2))
    assert [claim.holds for claim in claims] == holds
    lost, share = R2[2] - max(R2[:2]), np.mean([value > R2[2] for value in R2[3:7]])
    for claim, number in ((few, f"{lost:+.2f}"), (helps, f"{share:.0%}")):
        assert claim.number == ", ".join(f"{method}, data set {k}: {number}" for k, method in SETTINGS)


@pytest.mark.parametrize("odd", SETTINGS)
def test_latent_dimension_one_setting_is_enough_against(odd):
    table = _latent((0.0, 0.4, 0.8, *MORE), odd, (0.0, 0.79, 0.8, 0.5, 0.5, 0.5, 0.5, 0.0))
    claims = _claims("latent-dimension", table)
    assert [claim.holds for claim in claims] == [False, False, True]
    for claim, number in zip(claims, ("+0.01", "+0.30", "0%"), strict=True):
        assert f"{odd[1]}, data set {odd[0]}: {number}" in claim.number


@pytest.mark.parametrize(
    ("varpro", "agd", "holds"),
    [
        ((0.5, 0.8, 0.6), (0.4, 0.7, 0.6), [True, True]),
        ((0.5, 0.8, 0.6), (0.5, 0.8, 0.9), [False, True]),
        ((0.5, 0.8, 0.8), (0.5, 0.8, 0.6), [False, True]),
        ((0.5, 0.8, 0.6), (0.8, 0.8, 0.6), [True, False]),
    ],
)
def test_training_size(varpro, agd, holds):
    """At the smaller size it is the other way round, and for L-BFGS: neither matters."""
    at = dict(zip(THREE, (varpro, agd, (0.9, 0.1, 0.9)), strict=True))
    table = [
        {"m": m, "d": d, "repeat": 0, "method": method, "R2": at[method][k] if m == 1000 else 1.0 - at[method][k]}
        for m, (k, d), method in product((100, 1000), enumerate((3, 20, 50)), THREE)
    ]
    first, second = _claims("training-size", table)
    assert [first.holds, second.holds] == holds
    shown = [f"{name}: d = 3: {a:.3f}, d = 20: {b:.3f}, d = 50: {c:.3f}" for name, (a, b, c) in at.items()]
    assert first.number == "; ".join(shown[:2])


@pytest.mark.parametrize(
    ("hkrr", "krr", "holds"),
    [
        ((-1.0, -1.0, -1.05), (-0.8, -0.5, -0.2), [True, True]),
        ((-1.0, -1.0, -1.0), (-0.8, -1.2, -0.2), [False, True]),
        ((-1.0, -2.0, -3.0), (-0.8, -0.5, -0.2), [True, False]),
        # KRR's slope varies even more, but HKRR's is far from hardly depending on D; or neither depends on it.
        ((-1.0, -2.0, -3.0), (1.5, 0.0, -0.6), [True, False]),
        ((-1.0, -1.0, -1.0), (-0.5, -0.5, -0.51), [True, False]),
    ],
)
def test_sample_complexity(hkrr, krr, holds):
    slopes = {"HKRR": hkrr, "KRR on X": krr, "KRR on the true map": (-1.0, -1.0, -1.0)}
    table = [
        {"D": D, "m": m, "repeat": 0, "d": 3, "system": system, "excess_risk": float(m) ** slopes[system][k]}
        for (k, D), m, system in product(enumerate((10, 20, 50)), (100, 200, 400), slopes)
    ]
    faster, spread = _claims("sample-complexity", table)
    assert "HKRR: {:.2f} (D = 10), {:.2f} (D = 20), {:.2f} (D = 50); KRR on X: ".format(*hkrr) in faster.number
    assert spread.number == f"spread over D: HKRR {np.ptp(hkrr):.2f}, KRR on X {np.ptp(krr):.2f}"
    assert [faster.holds, spread.holds] == holds


@pytest.mark.parametrize(
    ("few", "uniform", "leverage", "holds", "number"),
    [
        (-1.0, (9, 5, 2, 1), (9, 1.09, 1, 1), [True, True], "10 against 40"),
        (-0.9, (9, 1.09, 1, 1), (9, 5, 2, 1), [True, False], "40 against 10"),
        (-0.5, (9, 5, 1.1, 1), (9, 5, 1.1, 1), [False, False], "20 against 20"),
        (0.5, (9, 5, 1.11, 1), (9, 5, 1.09, 1), [False, True], "20 against 40"),
        (-1.4, (9, 5, 2, 1), (1, 1, 1, 1), [True, True], "5 against 40"),
    ],
)
def test_nystrom(few, uniform, leverage, holds, number):
    """Seven times the risk is no other rate, and one that falls faster costs nothing."""
    by, rate = {"part": "centers", "m": 40}, {"part": "rate", "centers": "uniform"}
    table = [
        *({**by, "c": 5 * 2**k, "centers": "uniform", "excess_risk": risk} for k, risk in enumerate(uniform)),
        *({**by, "c": 5 * 2**k, "centers": "leverage", "excess_risk": risk} for k, risk in enumerate(leverage)),
        *({**rate, "m": m, "c": c, "excess_risk": 7.0 * m**few} for m, c in ((100, 40), (400, 80))),
        *({**rate, "m": m, "c": m, "excess_risk": 1.0 / m} for m in (100, 400)),
        {"part": "theorem", "m": 40, "c": 0, "centers": "", "n_inf": 34.2, "n_eff": 12.1, "plain": 200, "als": 300},
    ]
    slope, needed = _claims("nystrom", table)
    assert slope.number == f"slope {few:.2f} with few, -1.00 with all"
    assert needed.number == f"{number}; the theorems' formulas give 300 and 200 (N = 12, N_inf = 34)"
    assert [slope.holds, needed.holds] == holds


@pytest.mark.parametrize(
    ("prices", "d", "holds", "above"),
    [
        ((1.0, 1.5), (4, 4, 3), [True, True], "2 of 3 runs"),
        ((2.0, 0.9), (4, 3, 2), [True, False], "1 of 3 runs"),
        ((2.1, 1.0), (3, 4), [False, False], "1 of 2 runs"),
    ],
)
def test_adaptivity(prices, d, holds, above):
    """What the evidence chooses has no part in the claims; nor has d at the smaller size."""
    chosen = [
        {"m": m, "true_d": 3, "rule": "held-out", "least_on_grid": 1, "excess_risk": price, "d": of if m == 800 else 9}
        for m, price in zip((400, 800), prices, strict=True)
        for of in d
    ]
    table = [*chosen, *({**row, "rule": "evidence", "excess_risk": 9.0, "d": 9} for row in chosen)]
    price, exceeds = _claims("adaptivity", table)
    assert [price.holds, exceeds.holds] == holds
    assert price.number == "for m = 400, 800: held-out: {:.2f}, {:.2f}; evidence: 9.00, 9.00".format(*prices)
    assert exceeds.number == above


BETTER, EVEN, WORSE, NOTHING = (lambda n: n**-2.0, lambda n: 1.0 / n, lambda n: 0.5, lambda n: 0.0)


@pytest.mark.parametrize(
    ("gradient", "mapping", "path", "holds", "added", "last"),
    [
        (BETTER, EVEN, lambda n: 1.0 - 1.0 / n, [True, True, True, True], "1.6%", 64),
        (WORSE, BETTER, lambda n: n / 8.0, [False, True, False, False], "50.0%", 64),
        (BETTER, WORSE, NOTHING, [True, False, True, True], "1.6%", 64),
        (NOTHING, NOTHING, NOTHING, [True, True, True, True], "0.0%", 1),
    ],
)
def test_stationarity(gradient, mapping, path, holds, added, last):
    """A run like that (the last ends where it starts), and one that is as it should be."""
    runs = (BETTER, BETTER, lambda n: 1.0 - 1.0 / n, 0.5), (gradient, mapping, path, 1.0)
    table = [
        {"start": start, "method": method, "iteration": n, "least_eigenvalue": 1e-5, "norm_of_B": norm}
        | {"least_squared_gradient": g(n), "least_squared_mapping": h(n), "path_of_B": p(n), "path_of_alpha": 2 * p(n)}
        for (start, (g, h, p, norm)), method, k in product(enumerate(runs), THREE, range(7))
        if (n := 2**k) <= last
    ]
    claims = _claims("stationarity", table)
    assert [claim.holds for claim in claims] == holds * 2
    for k, claim in enumerate(claims):
        assert f"({THREE[k // 4]})" in claim.text
        bounded = f"{1 + holds[k % 4]} of 2 starts; 1 end on the sphere |B| = 1"
        length = f"at most {added}; least eigenvalue of K_mm on the way 1.0e-05"
        assert claim.number == (bounded if k % 4 < 2 else length)
