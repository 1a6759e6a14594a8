"""Synthetic tables of results, with the columns that the claims and figures of the experiments need.

A claim is a statement of the paper that an experiment checks against its table. The slope of a risk is the slope of
log(risk) against log(m), where m is the number of rows.
"""

from __future__ import annotations

import re
from itertools import product

import matplotlib.pyplot as plt

from hkrr.experiments import get_experiment

THREE, LINKS, STEPS = ("VarPro", "AGD", "L-BFGS"), ("square", "sigmoid"), (0.01, 0.1, 1.0)
TOY_STARTS = (("square", -1.5, -1.5), ("square", -1.5, -0.1), ("sigmoid", 5.0, -1.75))
D_TRIED, SIZES = (1, 2, 3, 4, 6, 10, 20, 50), (100, 200, 400, 800, 1600)


def claims_of(name, table):
    return get_experiment(name).claims(table)


def check_claims_and_figure(name, table):
    """Check the text of all claims of a table, and that its figure can be drawn. Return the claims."""
    claims = claims_of(name, table)
    for claim in claims:
        assert re.fullmatch(r"(holds|does not hold|inconclusive): .+\. Measured: .+", str(claim))
        assert "nan" not in claim.number
    figure = get_experiment(name).plot(table)
    figure.set_layout_engine("none")  # computing the layout takes most of the time
    figure.set_dpi(30)
    figure.canvas.draw()
    assert figure.axes
    plt.close(figure)
    return claims


def without(table, **where):
    """Return the table without the rows that have the values ``where``, as if their cases had failed."""
    left = [row for row in table if any(row.get(name) != value for name, value in where.items())]
    assert 0 < len(left) < len(table)
    return left


def convergence(*starts, limit=40.0):
    """Return a table of loss curves. All curves begin with a loss of 5 at 0 s.

    Each argument in ``starts`` describes the runs from one starting map, by the (seconds, loss) pairs of VarPro and
    those of AGD. L-BFGS has the curve of VarPro.
    """
    return [
        {
            "start": start,
            "method": method,
            "time_limit": limit,
            "seconds": float(s),
            "iteration": k,
            "loss": float(loss),
        }
        for start, curves in enumerate(starts)
        for method, curve in zip(THREE, (*curves, curves[0]), strict=True)
        for k, (s, loss) in enumerate([(0, 5), *curve])
    ]


def toy_trajectories(ends, steps):
    """Return a table of trajectories.

    ``ends[start, step]`` has the final y of VarPro and AGD for a starting point and an initial step size.
    ``steps[step]`` has the numbers of iterations of the three methods for an initial step size.
    """
    return [
        {"link": link, "x0": x0, "y0": y0, "first_step": step, "method": method, "iteration": k}
        | {"x": x0, "y": end if k == n else y0, "loss": 1.0 + n - k}
        for (start, (link, x0, y0)), step in product(enumerate(TOY_STARTS), STEPS)
        for method, end, n in zip(THREE, (*ends[start, step], 0.25), steps[step], strict=True)
        for k in range(n + 1)
    ]


def toy_basins(arrivals, n_points=2):
    """Return a table of final values of y.

    ``arrivals[link, step]`` has, for each method, the indices of the starting points from which the method reaches
    y = 1. The starting points are a grid of ``n_points`` by ``n_points`` points.
    """
    return [
        {"link": link, "first_step": step, "y0": float(k % n_points), "x0": float(k // n_points), "method": method}
        | {"y": 1.0 if k in arrived else -0.54}
        for (link, step), ends in arrivals.items()
        for k in range(n_points**2)
        for method, arrived in zip(THREE, ends, strict=True)
    ]


def latent(R2, odd=None, odd_R2=(), true_d=3, dimensions=D_TRIED, shifts=(-0.3, 0.0, 0.3)):
    """Return a table in which every data set and method has the scores ``R2``, one for each number of directions.

    ``odd`` is a pair (data set, method) that has the scores ``odd_R2`` instead. The given scores are medians over the
    repeats. The scores of the repeats differ from the median by ``shifts``.
    """
    return [
        {"data_set": data_set, "d": d, "repeat": repeat, "method": method, "true_d": true_d}
        | {"R2": (odd_R2 if (data_set, method) == odd else R2)[k] + shift}
        for data_set, (k, d), method in product((1, 2), enumerate(dimensions), THREE)
        for repeat, shift in enumerate(shifts)
    ]


def training_size(R2, sizes=(100, 1000), dimensions=(3, 20, 50), repeats=3):
    """Return a table of scores. ``R2(method, m, k)`` is the score for the k-th number of directions."""
    return [
        {"m": m, "d": d, "repeat": repeat, "method": method, "R2": R2(method, m, k)}
        for repeat, m, (k, d), method in product(range(repeats), sizes, enumerate(dimensions), THREE)
    ]


def sample_complexity(hkrr, krr, features=(10, 20, 50), sizes=SIZES, repeats=3):
    """Return a table of risks.

    ``hkrr`` and ``krr`` hold, for each D, the slope of the risk over the last three sizes. The slopes over all sizes
    are different.
    """
    slopes = {"HKRR": hkrr, "KRR on X": krr, "KRR on the true map": (-1.0,) * len(features)}
    return [
        {"D": D, "m": m, "repeat": repeat, "d": 3, "system": system}
        | {"excess_risk": (float(m) if m in sizes[-3:] else 1e-4) ** slopes[system][k] * 2.0 ** (repeat - 1)}
        for repeat, (k, D), m, system in product(range(repeats), enumerate(features), sizes, slopes)
    ]


def nystrom(few, uniform, leverage, clustered=None, scale=1e-3, sizes=(100, 400), repeats=3):
    """Return a table of risks.

    ``few`` is the slope of the risk with few centers. The slope with all rows as centers is -1. ``uniform`` and
    ``leverage`` contain the risks with 5, 10, 20, ... centers that are sampled in these two ways, divided by the risk
    with all rows as centers. ``clustered`` has these two lists for the clustered inputs.
    """
    ratios = {"cube": (uniform, leverage), "clustered": clustered or (uniform, leverage)}
    theorem = {"n_eff": 12.1, "n_inf": 34.2, "theorem_uniform": 200, "theorem_leverage": 300}
    centers = [
        {"part": "centers", "inputs": inputs, "m": 250, "repeat": repeat, "how": how, "drawn": 5 * 2**k}
        | {"c": 5 * 2**k, "risk_of_all_rows": 10.0**-repeat, "excess_risk": ratio * 10.0**-repeat, **theorem}
        for repeat, (inputs, pair) in product(range(repeats), ratios.items())
        for how, values in zip(("uniform", "leverage"), pair, strict=True)
        for k, ratio in enumerate(values)
    ]
    rate = [
        {
            "part": "rate",
            "inputs": "cube",
            "m": m,
            "repeat": repeat,
            "few": is_few,
            "how": "uniform",
            "drawn": 9,
            "c": 9,
        }
        | {"excess_risk": scale * (7.0 * m**few if is_few else 1.0 / m) * 2.0 ** (repeat - 1)}
        for repeat, m, is_few in product(range(repeats), sizes, (True, False))
    ]
    return [*centers, *rate]


def adaptivity(price, d=(4, 4, 3), sizes=SIZES):
    """Return a table of choices of d and lambda.

    ``price(m)`` is the risk of the model that the held-out rule chooses, divided by the lowest risk on the grid. ``d``
    has the values of d that this rule chooses at the largest size, one for each repeat. All other values of d are 9,
    because the claims do not use them.
    """
    chosen = [
        {"m": m, "repeat": repeat, "true_d": 3, "rule": "held-out", "least_on_grid": 2.0**repeat, "reg_lambda": 1e-3}
        | {"excess_risk": price(m) * 2.0**repeat, "d": of if m == max(sizes) else 9}
        for m in sizes
        for repeat, of in enumerate(d)
    ]
    return [*chosen, *({**row, "rule": "evidence", "excess_risk": float(row["m"]), "d": 9} for row in chosen)]


def stationarity(*runs, last=1024):
    """Return a table of runs.

    Each argument in ``runs`` has the squared gradient, the squared gradient mapping, the path of B and the path of
    alpha as functions of the number of iterations, and the values of |B|, the final loss and the smallest eigenvalue of
    K_mm. The first loss is 2, the smallest step is 0.5, and the Armijo constant of the experiment is 1e-4, so the
    constant of the theorem is 2 / (1e-4 * 0.5) = 40,000.
    """
    return [
        {"start": start, "method": method, "iteration": n, "loss": 2.0 if n == 1 else loss, "least_step": 0.5}
        | {"least_squared_gradient": g(n), "least_squared_mapping": h(n), "path_of_B": p(n), "path_of_alpha": q(n)}
        | {"least_eigenvalue": eigenvalue, "norm_of_B": norm}
        for (start, (g, h, p, q, norm, loss, eigenvalue)), method, k in product(enumerate(runs), THREE, range(11))
        if (n := 2**k) <= last
    ]
