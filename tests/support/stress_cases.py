"""Data and settings at the limits of floating point, used in tests/estimators/test_stress.py and docs/robustness.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.kernels import KERNELS

M, D = 30, 3
# Number of new rows on which the R2 in the table of docs/robustness.md is computed.
N_FRESH = 500

Data = tuple[Any, Any, Any]  # X, y, sample_weight
Change = Callable[[Any, Any], Any]


def rows(m: int = M, n_features: int = D, seed: int = 0, noise: float = 0.1) -> tuple[Any, Any]:
    """Return inputs X, and a target y that depends on the first column and has a little noise."""
    rng = np.random.default_rng([seed, m, n_features])
    X = rng.normal(size=(m, n_features))
    return X, np.sin(2.0 * X[:, 0]) + noise * rng.normal(size=m)


@dataclass(frozen=True)
class ChangedRows:
    """The data of the function `rows`, changed by the function `change`.

    `change` takes X and y, and returns the changed X and y, and possibly sample weights. `truth` is the function that
    changes the new rows and their target without noise. The default is `change`.
    """

    change: Change
    truth: Change | None = None
    n_rows: int = M
    n_features: int = D

    def __call__(self) -> Data:
        """Return X, y and the sample weights (or None)."""
        made = self.change(*rows(self.n_rows, self.n_features))
        return made if len(made) == 3 else (*made, None)

    def fresh(self) -> tuple[Any, Any]:
        """Return the inputs of new rows and their target without noise."""
        made = (self.truth or self.change)(*rows(N_FRESH, self.n_features, seed=1, noise=0.0))
        return made[0], made[1]


@dataclass(frozen=True)
class Case:
    """A stress case: the data, and the parameters of the two estimators.

    Attributes
    ----------
    make : ChangedRows
        The data. A call returns X, y and the sample weights (or None).
    ridge, tuned : dict or None
        Parameters of HyperKernelRidge and of HyperKernelRidgeCV. None means that the case does not apply to this
        estimator.
    """

    make: ChangedRows
    ridge: dict[str, Any] | None = field(default_factory=dict)
    tuned: dict[str, Any] | None = field(default_factory=dict)


def _with(change: Change, truth: Change | None = None, m: int = M, n_features: int = D) -> ChangedRows:
    return ChangedRows(change, truth, m, n_features)


def _unchanged(X: Any, y: Any) -> Any:
    return X, y


def _zero(X: Any, y: Any) -> Any:
    return X, np.zeros(len(X))


def _frozen(*arrays: Any) -> tuple[Any, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays


def _spread(values: Any, at: Any, value: float) -> Any:
    values = np.array(values, dtype=np.float64)
    values[at] = value
    return values


def _scales() -> dict[str, Case]:
    found = {}
    for power in (-150, -100, -30, -8, 8, 30, 100, 150):
        s = 10.0**power
        found[f"X times 1e{power}"] = Case(_with(lambda X, y, s=s: (s * X, y)))
        found[f"y times 1e{power}"] = Case(_with(lambda X, y, s=s: (X, s * y)))
        found[f"X and y times 1e{power}"] = Case(_with(lambda X, y, s=s: (s * X, s * y)))
    for power in (-150, -8, 8, 150):
        raw = {"scale_features": False}
        found[f"X times 1e{power}, scale_features=False"] = Case(
            _with(lambda X, y, s=10.0**power: (s * X, y)), raw, raw
        )
    found["columns times 1e-150, 1 and 1e150"] = Case(_with(lambda X, y: (X * [1e-150, 1.0, 1e150], y)))
    found["columns times 1e-8, 1 and 1e8"] = Case(_with(lambda X, y: (X * [1e-8, 1.0, 1e8], y)))
    found["X 1e8 from the origin"] = Case(_with(lambda X, y: (X + 1e8, y)))
    found["X 1e15 from the origin"] = Case(_with(lambda X, y: (X + 1e15, y)))
    found["y 1e12 from zero"] = Case(_with(lambda X, y: (X, y + 1e12)))
    found["X of subnormal numbers"] = Case(_with(lambda X, y: (X * 1e-310, y)))
    found["y of subnormal numbers"] = Case(_with(lambda X, y: (X, y * 1e-310)))
    found["a column of subnormal numbers"] = Case(_with(lambda X, y: (X * [1.0, 1e-310, 1.0], y)))
    found["some entries subnormal"] = Case(_with(lambda X, y: (_spread(X, np.s_[::3, 1], 5e-324), y)))
    found["X times 1e200"] = Case(_with(lambda X, y: (1e200 * X, y)))
    found["y times 1e200"] = Case(_with(lambda X, y: (X, 1e200 * y)))
    found["X times 1e-200"] = Case(_with(lambda X, y: (1e-200 * X, y)))
    found["y times 1e-200"] = Case(_with(lambda X, y: (X, 1e-200 * y)))
    return found


def _kinds_and_memory() -> dict[str, Case]:
    found = {}
    for kind in ("float16", "float32", "float64", "int8", "int64", "uint8", "bool", ">f8"):

        def of_kind(values: Any, kind: str = kind) -> Any:
            return values > 0 if kind == "bool" else (40 * values).astype("i8").astype(kind)

        found[f"X of {kind}"] = Case(_with(lambda X, y, of_kind=of_kind: (of_kind(X), y)))
        found[f"y of {kind}"] = Case(_with(lambda X, y, of_kind=of_kind: (X, of_kind(y))))
    found["X of float32, y times 1e150"] = Case(_with(lambda X, y: (X.astype(np.float32), 1e150 * y)))
    found["X of float32, times 1e30"] = Case(_with(lambda X, y: ((1e30 * X).astype(np.float32), y)))
    found["X of float32, times 1e-40"] = Case(_with(lambda X, y: ((1e-40 * X).astype(np.float32), y)))
    found["Fortran order"] = Case(_with(lambda X, y: (np.asfortranarray(X), y)))
    found["strided"] = Case(_with(lambda X, y: (np.repeat(np.repeat(X, 2, 0), 3, 1)[::2, ::3], np.repeat(y, 2)[::2])))
    found["reversed"] = Case(_with(lambda X, y: (X[::-1, ::-1], y[::-1])))
    found["read-only"] = Case(_with(lambda X, y: _frozen(X, y, np.ones(M))))
    found["a broadcast column"] = Case(_with(lambda X, y: (np.broadcast_to(X[:, :1], X.shape), y)))
    return found


def _shapes() -> dict[str, Case]:
    one = {"n_components": 1}
    return {
        "duplicate columns": Case(_with(lambda X, y: (X[:, [0, 0, 1, 1, 2]], y))),
        "collinear columns": Case(_with(lambda X, y: (np.column_stack([X, X @ [1.0, 2.0, 3.0]]), y))),
        "nearly collinear columns": Case(_with(lambda X, y: (np.column_stack([X, X[:, 0] * (1 + 1e-13)]), y))),
        "a constant column": Case(_with(lambda X, y: (np.column_stack([X, np.full(len(X), 7.1e8)]), y))),
        "all columns constant": Case(_with(lambda X, y: (np.full_like(X, 0.3), y))),
        "6 rows, 200 columns": Case(_with(lambda X, y: (X, y), m=6, n_features=200)),
        "2 rows": Case(_with(lambda X, y: (X, y), m=2)),
        "2 rows, 1 column": Case(_with(lambda X, y: (X, y), m=2, n_features=1), one),
        "D = 1": Case(_with(lambda X, y: (X, y), n_features=1), one),
        "d = D": Case(_with(lambda X, y: (X, y)), {"n_components": D}, {"n_components": D}),
        "one unique row": Case(_with(lambda X, y: (np.tile(X[:1], (M, 1)), np.full(M, y[0])), _unchanged)),
        "one unique x": Case(_with(lambda X, y: (np.tile(X[:1], (M, 1)), y), _unchanged)),
        "every row twice": Case(_with(lambda X, y: (np.tile(X, (2, 1)), np.tile(y, 2)))),
        "one center": Case(_with(lambda X, y: (X, y)), {"n_centers": 1}, {"refit": 1}),
        "all rows as centers": Case(_with(lambda X, y: (X, y)), {"n_centers": "all"}),
        "half of the rows as centers": Case(_with(lambda X, y: (X, y)), {"n_centers": M // 2}, {"refit": M // 2}),
    }


def _targets_and_weights() -> dict[str, Case]:
    lopsided = _spread(np.full(M, 1e-12), [0, 1], 1e12)
    return {
        "one y at 1e12": Case(_with(lambda X, y: (X, _spread(y, 0, 1e12)), _unchanged)),
        "outliers at 1e12 and -1e12": Case(
            _with(lambda X, y: (X, _spread(y, [1, 5, 9], [1e12, -1e12, 1e12])), _unchanged)
        ),
        "y without noise": Case(_with(lambda X, y: (X, np.sin(X[:, 0])))),
        "y linear, without noise": Case(_with(lambda X, y: (X, 3.0 * X[:, 0] + 1.0))),
        "y of noise": Case(_with(lambda X, y: (X, np.random.default_rng(1).normal(size=M)), _zero)),
        "y constant": Case(_with(lambda X, y: (X, np.full(len(X), 0.1)))),
        "y constant at 1e150": Case(_with(lambda X, y: (X, np.full(len(X), 1e150)))),
        "y zero": Case(_with(_zero)),
        "two targets, 1e-100 and 1e100": Case(_with(lambda X, y: (X, np.column_stack([1e-100 * y, 1e100 * y])))),
        "two targets, one constant": Case(_with(lambda X, y: (X, np.column_stack([y, np.ones(len(y))])))),
        "weights of zero for half the rows": Case(_with(lambda X, y: (X, y, np.arange(M) % 2))),
        "weights of zero for all rows but 2": Case(_with(lambda X, y: (X, y, _spread(np.zeros(M), [3, 7], 1.0)))),
        "weights from 1e-12 to 1e12": Case(_with(lambda X, y: (X, y, np.logspace(-12, 12, M)))),
        "nearly all the weight on 2 rows": Case(_with(lambda X, y: (X, y, lopsided))),
        "weights of 1e-300": Case(_with(lambda X, y: (X, y, np.full(M, 1e-300)))),
        "weights of 1e300": Case(_with(lambda X, y: (X, y, np.full(M, 1e300)))),
    }


def _settings() -> dict[str, Case]:
    found = {}
    for power in (-14, -12, -9, -6, -3, 0, 3, 6):
        value = 10.0**power
        grid = {"cv": "holdout", "criterion": "training", "reg_lambdas": [value], "n_components": 1}
        found[f"lambda = 1e{power}"] = Case(_with(lambda X, y: (X, y)), {"reg_lambda": value}, grid)
        found[f"lambda = 1e{power}, 10 centers"] = Case(
            _with(lambda X, y: (X, y)), {"reg_lambda": value, "n_centers": 10}, {**grid, "refit": 10}
        )
    for name in KERNELS:
        found[f"kernel {name}"] = Case(_with(lambda X, y: (X, y)), {"kernel": name}, {"kernel": name})
    for criterion in ("evidence", "loo"):
        chosen = {"criterion": criterion}
        found[f"criterion {criterion}"] = Case(_with(lambda X, y: (X, y)), {**chosen, "reg_lambda": "auto"}, chosen)
    for solver in ("varpro", "agd"):
        grid = {"cv": 2, "criterion": "training", "solver": solver, "reg_lambdas": [0.1, 0.01], "n_components": 1}
        found[f"solver {solver}"] = Case(_with(lambda X, y: (X, y)), {"solver": solver}, grid)
    for gamma in (1e-12, 1e12):
        found[f"gamma = {gamma:g}"] = Case(_with(lambda X, y: (X, y)), {"gamma": gamma, "max_iter": 0}, None)
    return found


GROUPS: dict[str, dict[str, Case]] = {
    "Scales": _scales(),
    "Dtypes and memory layouts": _kinds_and_memory(),
    "Shapes": _shapes(),
    "Targets and weights": _targets_and_weights(),
    "Settings": _settings(),
}
CASES: dict[str, Case] = {name: case for group in GROUPS.values() for name, case in group.items()}


def estimators(case: Case) -> dict[str, Any]:
    """Return the estimators of a case as {name of the class: estimator}."""
    X = case.make()[0]
    found: dict[str, Any] = {}
    if case.ridge is not None:
        few = {"n_components": min(2, X.shape[1]), "n_init": 1, "max_iter": 10}
        found["HyperKernelRidge"] = HyperKernelRidge(**{**few, **case.ridge}, random_state=0)
    if case.tuned is not None:
        few = {"n_components": [1, 2][: X.shape[1]], "n_init": 1}
        found["HyperKernelRidgeCV"] = HyperKernelRidgeCV(**{**few, **case.tuned}, random_state=0)
    return found
