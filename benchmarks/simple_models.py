"""Accuracy of `HyperKernelEnsemble` on thirty problems. For many of them, a simple model is accurate.

    python benchmarks/simple_models.py [--problems NAME ...] [--seeds N] [--append] [--out NAME] [--list]

The other methods are ridge regression (`RidgeCV`), the lasso (`LassoCV`), tuned kernel ridge regression on all inputs
(`hkrr.baselines.KernelRidgeCV`) and boosted trees (`HistGradientBoostingRegressor`). R2 is computed on 2,000 new rows,
whose targets are the function without noise. The results are written to NAME.csv and NAME.md in benchmarks/results. The
default NAME is `simple_models`. With `--append`, results that are in the CSV file already are kept and not computed
again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from workers import HERE, Row, Table, Worker, commit, median, reported, serve, used_commits, valid

Array = Any
Rng = np.random.Generator

N_NEW = 2000
METHODS = ("ensemble", "ridge", "lasso", "krr", "boosting")
KEYS = ("problem", "seed", "method")
COLUMNS = (*KEYS, "commit", "R2", "seconds", "note", "error")


class Problem(NamedTuple):
    """A synthetic problem.

    `inputs` draws the rows, and `function` is the function of the rows without noise. `function` also gets a generator
    for its coefficients. `noise` is the standard deviation of the noise, relative to that of the function.
    """

    n_rows: int
    n_columns: int
    inputs: Callable[[Rng, int, int], Array]
    function: Callable[[Array, Rng], Array]
    noise: float = 0.3


def normal(rng: Rng, n: int, D: int) -> Array:
    """Draw independent normal columns."""
    return rng.standard_normal((n, D))


def uniform(rng: Rng, n: int, D: int) -> Array:
    """Draw independent columns, uniform on [0, 1]."""
    return rng.uniform(size=(n, D))


def correlated(rng: Rng, n: int, D: int) -> Array:
    """Draw normal columns, each of which has correlation 0.7 with the column before."""
    Z = rng.standard_normal((n, D))
    for j in range(1, D):
        Z[:, j] = 0.7 * Z[:, j - 1] + np.sqrt(1.0 - 0.49) * Z[:, j]
    return Z


def lognormal(rng: Rng, n: int, D: int) -> Array:
    """Draw independent lognormal columns with a heavy tail."""
    return np.exp(1.5 * rng.standard_normal((n, D)))


def binary(rng: Rng, n: int, D: int) -> Array:
    """Draw independent columns of -1 and 1."""
    return rng.choice([-1.0, 1.0], (n, D))


def codes(rng: Rng, n: int, D: int) -> Array:
    """Draw two columns of integer codes of 12 categories, and normal columns."""
    return np.hstack([rng.integers(12, size=(n, 2)).astype(float), rng.standard_normal((n, D - 2))])


def heavy(rng: Rng, n: int, D: int) -> Array:
    """Draw columns with a Student-t distribution with 3 degrees of freedom."""
    return rng.standard_t(3, (n, D))


def linear(n_active: int) -> Callable[[Array, Rng], Array]:
    """Return a linear function of the first `n_active` columns."""
    return lambda X, rng: X[:, :n_active] @ rng.uniform(0.5, 1.5, n_active)


def additive_sines(n_active: int) -> Callable[[Array, Rng], Array]:
    """Return a sum of sines, one for each active column."""
    return lambda X, rng: np.sin(2.0 * X[:, :n_active]).sum(axis=1)


def effects(X: Array, rng: Rng) -> Array:
    """Return the sum of two random effects, one for the category in each of the first two columns."""
    return rng.standard_normal(12)[X[:, 0].astype(int)] + rng.standard_normal(12)[X[:, 1].astype(int)]


def effects_and_sine(X: Array, rng: Rng) -> Array:
    """Return the random effects of the two categories, plus a smooth function of two other columns."""
    return effects(X, rng) + np.sin(2.0 * X[:, 2]) + X[:, 3]


def saturation(X: Array, rng: Rng) -> Array:
    """Return a saturating function of one column plus a sine of the logarithm of another."""
    return X[:, 0] / (1.0 + X[:, 0]) + np.sin(np.log(X[:, 1]))


def steps(X: Array, rng: Rng) -> Array:
    """Return a sum of step functions of three columns."""
    return np.sum(np.floor(4.0 * X[:, :3]) % 2, axis=1)


def boxes(X: Array, rng: Rng) -> Array:
    """Return a function that is constant on boxes of three columns."""
    return rng.standard_normal((3, 3, 3))[tuple(np.minimum((3.0 * X[:, :3]).astype(int), 2).T)]


def friedman1(X: Array, rng: Rng) -> Array:
    """Return the first function of Friedman (1991)."""
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def friedman_inputs(rng: Rng, n: int, D: int) -> Array:
    """Draw the inputs of the second and the third function of Friedman (1991)."""
    low, high = np.array([0.0, 40 * np.pi, 0.0, 1.0]), np.array([100.0, 560 * np.pi, 1.0, 11.0])
    return low + (high - low) * rng.uniform(size=(n, 4))


def impedance(X: Array) -> Array:
    """Return the reactance of the second and third function of Friedman."""
    return X[:, 1] * X[:, 2] - 1.0 / (X[:, 1] * X[:, 3])


PROBLEMS = {
    "sparse linear, 3 of 500": Problem(100, 500, normal, linear(3)),
    "sparse linear, 5 of 300, correlated": Problem(150, 300, correlated, linear(5)),
    "linear, 20 columns": Problem(100, 20, normal, linear(20)),
    "linear, 100 columns": Problem(200, 100, normal, linear(100)),
    "linear, weak signal": Problem(200, 30, normal, linear(30), 2.0),
    "linear, heavy-tailed columns": Problem(300, 10, heavy, linear(10)),
    "linear, 5,000 rows": Problem(5000, 20, normal, linear(20), 0.5),
    "additive sines, 10 of 10": Problem(400, 10, normal, additive_sines(10)),
    "additive sines, 3 of 50": Problem(400, 50, normal, additive_sines(3)),
    "additive sines, 20 of 20": Problem(1500, 20, normal, additive_sines(20)),
    "one sine of 200 columns": Problem(200, 200, normal, additive_sines(1)),
    "integer codes": Problem(600, 5, codes, effects),
    "integer codes and smooth columns": Problem(1000, 8, codes, effects_and_sine),
    "lognormal columns, logarithm": Problem(400, 6, lognormal, lambda X, rng: np.log(X[:, 0]) + np.log(X[:, 1])),
    "lognormal columns, saturation": Problem(
        400, 6, lognormal, lambda X, rng: X[:, 0] / (1.0 + X[:, 0]) + np.sin(np.log(X[:, 1]))
    ),
    "lognormal columns, linear": Problem(400, 6, lognormal, linear(3)),
    "steps": Problem(1000, 10, uniform, steps),
    "boxes": Problem(1000, 6, uniform, boxes),
    "one threshold": Problem(300, 10, normal, lambda X, rng: (X[:, 0] > 0.3) * 2.0),
    "exponential of a linear function": Problem(400, 6, normal, lambda X, rng: np.exp(1.2 * linear(3)(X, rng) / 2.0)),
    "exponential of sines": Problem(800, 6, normal, lambda X, rng: np.exp(additive_sines(3)(X, rng))),
    "product of two of 20 columns": Problem(400, 20, normal, lambda X, rng: X[:, 0] * X[:, 1]),
    "exclusive or of binary columns": Problem(500, 10, binary, lambda X, rng: X[:, 0] * X[:, 1] + X[:, 2]),
    "Friedman 1, 10 columns": Problem(200, 10, uniform, friedman1),
    "Friedman 1, 50 columns": Problem(1000, 50, uniform, friedman1),
    "Friedman 2": Problem(400, 4, friedman_inputs, lambda X, rng: np.hypot(X[:, 0], impedance(X))),
    "Friedman 3": Problem(400, 4, friedman_inputs, lambda X, rng: np.arctan2(impedance(X), X[:, 0])),
    "kinks": Problem(400, 10, normal, lambda X, rng: np.maximum(X[:, 0], X[:, 1]) + np.abs(X[:, 2])),
    "squared norm": Problem(500, 15, normal, lambda X, rng: np.sum(X**2, axis=1)),
    "fast oscillation of one column": Problem(500, 5, normal, lambda X, rng: np.sin(8.0 * X[:, 0]) + X[:, 1]),
}


def draw(problem: Problem, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return the training rows X and y, new rows, and the function without noise at the new rows."""
    rng = np.random.default_rng([seed, problem.n_rows, problem.n_columns])
    X, X_new = (problem.inputs(rng, n, problem.n_columns) for n in (problem.n_rows, N_NEW))
    f, f_new = (problem.function(rows, np.random.default_rng([seed, 1])) for rows in (X, X_new))
    return X, f + problem.noise * np.std(f) * rng.standard_normal(len(f)), X_new, f_new


def estimator(method: str, seed: int) -> Any:
    """Return the estimator of a method."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LassoCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from hkrr import HyperKernelEnsemble
    from hkrr.baselines import KernelRidgeCV

    makers: dict[str, Callable[[], Any]] = {
        "ensemble": lambda: HyperKernelEnsemble(random_state=10**6 + seed),
        "ridge": lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 41))),
        "lasso": lambda: make_pipeline(StandardScaler(), LassoCV()),
        "krr": lambda: KernelRidgeCV(random_state=seed),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
    }
    return makers[method]()


def fit(problem: str, seed: int, method: str) -> Row:
    """Fit a method to a problem and return the results."""
    X, y, X_new, f_new = draw(PROBLEMS[problem], seed)
    model = estimator(method, seed)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    R2 = 1.0 - np.mean((model.predict(X_new) - f_new) ** 2) / np.var(f_new)
    note = ""
    if method == "ensemble":
        from hkrr.kernels import kernel_name

        pairs = zip(model.weights_, model.members_, strict=True)
        note = "; ".join(f"{w:.2f} {kernel_name(one.kernel_)} {one.map_shape_} {one.n_components_}" for w, one in pairs)
    return {"R2": round(float(R2), 4), "seconds": round(seconds, 2), "note": note}


def page(rows: Sequence[Row]) -> str:
    """Return the Markdown page of the results."""
    from objective import machine, markdown

    lines = []
    for name in dict.fromkeys(row["problem"] for row in rows):
        some = [row for row in rows if row["problem"] == name]
        R2 = {method: valid([row for row in some if row["method"] == method], "R2") for method in METHODS}
        behind = [max(others) - own for own, *others in zip(*(R2[method] for method in METHODS), strict=False)]
        line: Row = {"problem": name, **{method: median(R2[method]) for method in METHODS}}
        line |= {"behind the best": median(behind), "most behind": round(max(behind), 4) if behind else ""}
        line["seconds"] = median(valid([row for row in some if row["method"] == "ensemble"], "seconds"), 1)
        lines.append(line)
    close = sum(line["behind the best"] != "" and line["behind the best"] <= 0.01 for line in lines)
    text = ["# benchmarks/simple_models.py", "", machine(), "", used_commits(rows, "method"), ""]
    text += [
        "Medians over the seeds. The columns of the methods contain R2. The column `behind the best` is the R2 of the "
        "best other method minus the R2 of the ensemble.",
        "",
        f"The ensemble is at most 0.01 behind the best other method on {close} of {len(lines)} problems.",
        "",
        markdown(lines),
        "",
    ]
    return "\n".join(text)


def main() -> None:
    """Run the problems and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--append", action="store_true", help="keep the results of the CSV file, and skip their fits")
    parser.add_argument("--out", default="simple_models")
    parser.add_argument("--list", action="store_true", help="list the problems")
    options = parser.parse_args()
    if options.list:
        print("\n".join(PROBLEMS))
        return
    if unknown := [name for name in options.problems if name not in PROBLEMS]:
        raise SystemExit(f"--problems: unknown problem {unknown[0]!r}; the option --list prints all problems")
    table, worker, version = Table(options.out, COLUMNS, len(KEYS), options.append), Worker(__file__), commit(HERE)
    with reported(table, page, [worker]):
        for name in options.problems:
            for seed in range(options.seeds):
                for method in METHODS:
                    if not table.has(problem=name, seed=seed, method=method):
                        found = worker.run(problem=name, seed=seed, method=method)
                        table.add(problem=name, seed=seed, method=method, commit=version, **found)


if __name__ == "__main__":
    serve(fit) if sys.argv[1:] == ["--worker"] else main()
