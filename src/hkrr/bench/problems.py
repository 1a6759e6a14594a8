"""The data of a benchmark: planted models (synthetic data with a known map), tables in files, and public data sets.

A problem is given as a string, on the command line and in the results:

    sines:m=600,D=50,seed=0          a planted model: sines, mixed, or a key of `hkrr.datasets.PLANTED`
    path/to/prices.csv:target=price  a CSV or Parquet table; the target is the last column by default
    path/to/folder:split=3           a folder with data.csv.gz (target last) and test_mask.csv.gz (one column per split)
    sklearn:iris                     a data set of scikit-learn: breast_cancer, digits, iris, wine or diabetes
    openml:house_sales               an OpenML data set by name; needs a network connection

A different `seed` gives a different random draw of a planted model, or a different split of a table. For a planted
model, m is the number of training rows and D the number of inputs, and there are 4,000 test rows. For `sines` and
`mixed`, d sets the number of directions.

For a folder, a column of the file test_mask.csv.gz selects the test rows. For any other table, a fifth of the rows are
test rows (a fifth of each class), and rows without a target are dropped. In both cases, at most 10,000 of the remaining
rows are training rows. Tables keep their text, dates and missing values. `task=regression` or `task=classification`
overrides the task that is inferred from the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.bench.method_interface import CLASSIFICATION, REGRESSION
from hkrr.bench.scores import constant_error
from hkrr.datasets import PLANTED, Dataset, make_mim_mixed, make_mim_sines, make_planted
from hkrr.exceptions import TableError
from hkrr.tables import hold_out, read_table
from hkrr.tables.encoding import is_numeric, missing_mask
from hkrr.tables.held_out_comparison import stratified
from hkrr.tables.task import are_numbers

# Maximum number of training rows of a table.
MOST_TRAINING_ROWS = 10_000
# Minimum number of rows of a table, and of training rows of a planted model.
FEWEST_ROWS = 20
# Fraction of the rows of a table that are test rows.
_TEST_SHARE = 0.2
# The data sets of scikit-learn.
SKLEARN = ("breast_cancer", "digits", "iris", "wine", "diabetes")
# Number of test rows of a planted model.
N_TEST = 4000
# The functions that generate the two synthetic data sets of the paper.
_PAPERS: dict[str, Callable[..., Dataset]] = {"sines": make_mim_sines, "mixed": make_mim_mixed}

# The planted models of the published benchmark (benchmarks/README.md): each model of `PLANTED` once, then series with
# different m or D.
PLANTED_SUITE = (
    *(f"{kind}:m=600,D={model.n_features}" for kind, model in PLANTED.items()),
    *(f"{kind}:m={m},D=50" for kind in _PAPERS for m in (300, 600, 1200, 4000, 16000)),
    *(f"sines:m=600,D={D}" for D in (10, 20, 100)),
    *(f"product:m=600,D={D}" for D in (10, 20, 100, 200)),
)


@dataclass(frozen=True)
class Problem:
    """The training and test rows of a problem.

    The inputs are arrays, or data frames if the problem is a table. The targets are numbers, or the integers 0, 1, ...,
    ``n_classes - 1`` if ``n_classes`` is positive.
    """

    X: Any
    y: Array
    X_test: Any
    y_test: Array
    # The true map of a planted model (synthetic data with known directions), or None for a table.
    B: Array | None = None
    # A description of a table, or "" for a planted model.
    about: str = ""
    n_classes: int = 0

    def fingerprint(self) -> str:
        """Return a 12-digit hash of the data."""
        digest = hashlib.sha256()
        for part in (self.X, self.y, self.X_test, self.y_test):
            digest.update(str(part.shape).encode())
            is_frame = hasattr(part, "columns")
            digest.update(part.to_csv().encode() if is_frame else np.asarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()[:12]

    def facts(self) -> dict[str, Any]:
        """Return the columns of the CSV file that depend only on the problem."""
        return {
            "data": self.fingerprint(),
            "task": CLASSIFICATION if self.n_classes else REGRESSION,
            "n_train": len(self.X),
            "n_features": self.X.shape[1],
            "constant_error": round(constant_error(self.y, self.y_test, self.n_classes), 6),
        }


def label(name: str) -> str:
    """Return the name of a problem in the results, given its string on the command line.

    Files and folders are named without their parent folders.
    """
    source, options = parse(name)
    if source not in (*planted_names(), "openml") and not source.startswith("sklearn:"):
        source = Path(source).name
    return f"{source}:{','.join(f'{key}={value}' for key, value in options.items())}" if options else source


def planted_names() -> tuple[str, ...]:
    """Return the names of the planted models."""
    return (*_PAPERS, *PLANTED)


def load_problem(name: str) -> Problem:
    """Load or generate the problem with the given name. The docstring of this module describes the names."""
    source, options = parse(name)
    if source in planted_names():
        return _planted(name, source, options)
    if source == "openml":
        return _openml(name, options)
    if source.startswith("sklearn:"):
        return _sklearn(name, source.removeprefix("sklearn:"), options)
    path = Path(source)
    if path.is_dir():
        return _folder(name, path, options)
    if path.exists():
        try:
            return _frame(name, read_table(path), options)
        except TableError as error:
            raise ValueError(f"problem {name!r}: {error}") from error
    known = ", ".join(planted_names())
    raise ValueError(
        f"problem {name!r}: there is no such file, planted model or data set; the planted models are {known}; the data "
        f"sets are {', '.join(f'sklearn:{each}' for each in SKLEARN)}"
    )


def parse(name: str) -> tuple[str, dict[str, str]]:
    """Split a problem string into its source and its options."""
    source, _, rest = name.rpartition(":") if "=" in name.rpartition(":")[2] else (name, "", "")
    if source.startswith("openml:"):
        rest = f"name={source.removeprefix('openml:')}" + (f",{rest}" if rest else "")
        source = "openml"
    elif source == "openml" and "name=" not in rest:
        raise ValueError(f"problem {name!r} must have the form openml:NAME")
    pairs = [item.partition("=") for item in rest.split(",") if item]
    for key, sign, value in pairs:
        if not (key and sign and value):
            raise ValueError(f"problem {name!r}: {key!r} must have the form NAME=VALUE")
    return source, {key: value for key, _, value in pairs}


def _check_options(name: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    for key in options:
        if key not in known:
            raise ValueError(f"problem {name!r}: unknown option {key!r}; the options are {', '.join(known)}")


def _int_option(name: str, options: dict[str, str], key: str, default: int, least: int = 0) -> int:
    value = options.get(key, str(default))
    if not value.isdigit() or int(value) < least:
        raise ValueError(f"problem {name!r}: {key} must be an integer of at least {least}, got {value!r}")
    return int(value)


def _planted(name: str, kind: str, options: dict[str, str]) -> Problem:
    _check_options(name, options, ("m", "D", "d", "seed") if kind in _PAPERS else ("m", "D", "seed"))
    m, seed = _int_option(name, options, "m", 600, FEWEST_ROWS), _int_option(name, options, "seed", 0)
    if kind in _PAPERS:
        d = _int_option(name, options, "d", 3, 1)
        D = _int_option(name, options, "D", 50, d)
        data = _PAPERS[kind](m + N_TEST, D, d, random_state=seed)
    else:
        D = _int_option(name, options, "D", PLANTED[kind].n_features, PLANTED[kind].n_components)
        data = make_planted(kind, m + N_TEST, n_features=D, random_state=seed)
    return Problem(data.X[:m], data.y[:m], data.X[m:], data.y[m:], data.B)


def _folder(name: str, folder: Path, options: dict[str, str]) -> Problem:
    _check_options(name, options, ("split",))
    split = _int_option(name, options, "split", 0)
    try:
        data = np.loadtxt(folder / "data.csv.gz", delimiter=",", ndmin=2)
        masks = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",", ndmin=2) == 1
    except (OSError, ValueError) as error:
        raise ValueError(
            f"problem {name!r}: the folder must contain data.csv.gz (numbers without a header, target last) and "
            f"test_mask.csv.gz (one column of 0 and 1 for each split), but reading failed ({error})"
        ) from error
    if split >= masks.shape[1]:
        raise ValueError(f"problem {name!r}: split must be between 0 and {masks.shape[1] - 1}, got {split}")
    if len(data) != len(masks):
        raise ValueError(
            f"problem {name!r}: data.csv.gz has {len(data)} rows, but test_mask.csv.gz has {len(masks)} rows"
        )
    X, y, test = data[:, :-1], data[:, -1], masks[:, split]
    if len(y) < FEWEST_ROWS or not 0 < test.sum() < len(y):
        raise ValueError(
            f"problem {name!r}: {len(y)} rows, {test.sum()} of them test rows; at least {FEWEST_ROWS} rows are needed, "
            "with at least one training row and one test row"
        )
    if np.all(y == y[0]):
        raise ValueError(f"problem {name!r}: the target is constant; choose another target")
    train = np.flatnonzero(~test)
    if len(train) > MOST_TRAINING_ROWS:
        train = np.random.RandomState(split).choice(train, MOST_TRAINING_ROWS, replace=False)
    about = f"{label(name)}: {X.shape[1]} columns, {len(train):,} training and {test.sum():,} test rows"
    return Problem(X[train], y[train], X[test], y[test], about=about)


def _sklearn(name: str, data_set: str, options: dict[str, str]) -> Problem:
    from sklearn import datasets

    if data_set not in SKLEARN:
        raise ValueError(f"problem {name!r}: the data sets of scikit-learn are {', '.join(SKLEARN)}, got {data_set!r}")
    _check_options(name, options, ("seed", "task"))
    return _frame(name, getattr(datasets, f"load_{data_set}")(as_frame=True).frame, options)


def _openml(name: str, options: dict[str, str]) -> Problem:
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(name=options["name"], as_frame=True)
    except Exception as error:  # no network, or no such data set
        raise ValueError(f"problem {name!r}: OpenML cannot be reached or has no such data set ({error})") from error
    rest = {key: value for key, value in options.items() if key != "name"}
    return _frame(name, found.data.assign(**{"the target": found.target}), {**rest, "target": "the target"})


def _frame(name: str, frame: Any, options: dict[str, str]) -> Problem:
    """Convert a table to a problem. Only rows without a target are dropped."""
    _check_options(name, options, ("target", "seed", "task"))
    seed, task = _int_option(name, options, "seed", 0), options.get("task", "auto")
    if task not in ("auto", REGRESSION, CLASSIFICATION):
        raise ValueError(f"problem {name!r}: task must be {REGRESSION} or {CLASSIFICATION}, got {task!r}")
    target = options.get("target", str(frame.columns[-1]))
    try:
        split = hold_out(frame, target, _TEST_SHARE, seed, task)  # type: ignore[arg-type]  # one of the names above
    except TableError as error:
        # The messages name the option of `hkrr fit`. Here, the task is an option of the problem.
        raise ValueError(f"problem {name!r}: {str(error).replace('--task ', 'task=')}") from error
    n = len(split.y_train) + len(split.y_test)
    if n < FEWEST_ROWS:
        raise ValueError(f"problem {name!r}: {n} rows have a target, but at least {FEWEST_ROWS} are needed")
    order, n_left_out = np.random.RandomState(seed).permutation(len(split.y_train)), 0
    if len(order) > MOST_TRAINING_ROWS:
        n_left_out = len(order) - MOST_TRAINING_ROWS
        order = stratified(split.y_train, order, n_left_out) if split.task.of_classes else order
    kept = np.sort(order[n_left_out:])
    X, y, y_test, n_classes = split.train.iloc[kept], split.y_train[kept], split.y_test, 0
    parts = [f"the target is {split.target!r}", *([split.about] if split.about else [])]
    if split.task.of_classes:
        classes, y = np.unique(y, return_inverse=True)
        n_classes, y_test = len(classes), np.searchsorted(classes, y_test)
        numbers = "; to predict numbers, add task=regression" if are_numbers(classes) else ""
        parts[0] += f", with {n_classes} classes" + (f" ({split.task.reason}{numbers})" if split.task.reason else "")
    n_texts = sum(not is_numeric(X[column]) for column in X.columns)
    n_missing = sum(int(missing_mask(X[column]).sum()) for column in X.columns)
    parts.append(f"{X.shape[1]} columns ({n_texts} not numeric), {n_missing / X.size:.1%} missing values")
    about = f"{label(name)}: {', '.join(parts)}, {len(y):,} training and {len(y_test):,} test rows"
    return Problem(X, y, split.test, y_test, about=about, n_classes=n_classes)
