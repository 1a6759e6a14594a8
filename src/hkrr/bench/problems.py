"""The data of a benchmark: planted models (synthetic data with a known map), tables in files, and OpenML data sets.

A problem is given as a string, on the command line and in the results:

    sines:m=600,D=50,seed=0          a planted model: sines, mixed, or a key of `hkrr.datasets.PLANTED`
    path/to/prices.csv:target=price  a CSV or Parquet table; the target is the last column by default
    path/to/folder:split=3           a folder with data.csv.gz (target last) and test_mask.csv.gz (one column per split)
    openml:house_sales               an OpenML data set by name; needs a network connection

A different `seed` gives a different random draw of a planted model, or a different split of a table. For a planted
model, m is the number of training rows and D the number of inputs, and there are 4,000 test rows. For `sines` and
`mixed`, d sets the number of directions.

For a folder, a column of the file test_mask.csv.gz selects the test rows. For any other table, a fifth of the rows are
test rows, rows with missing values are dropped, and text columns are one-hot encoded. In both cases, at most 10,000 of
the remaining rows are training rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.datasets import PLANTED, Dataset, make_mim_mixed, make_mim_sines, make_planted

# Maximum number of training rows of a table.
MOST_TRAINING_ROWS = 10_000
# Minimum number of rows of a table, and of training rows of a planted model.
FEWEST_ROWS = 20
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
    """The training and test rows of a problem."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    # The true map of a planted model (synthetic data with known directions), or None for a table.
    B: Array | None = None
    # A description of a table after preprocessing, or "" for a planted model.
    about: str = ""

    def fingerprint(self) -> str:
        """Return a 12-digit hash of the data."""
        digest = hashlib.sha256()
        for part in (self.X, self.y, self.X_test, self.y_test):
            digest.update(str(part.shape).encode())
            digest.update(np.asarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()[:12]


def label(name: str) -> str:
    """Return the name of a problem in the results, given its string on the command line.

    Files and folders are named without their parent folders.
    """
    source, options = parse(name)
    if source not in (*planted_names(), "openml"):
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
    path = Path(source)
    if path.is_dir():
        return _folder(name, path, options)
    if path.exists():
        return _file(name, path, options)
    known = ", ".join(planted_names())
    raise ValueError(f"problem {name!r}: there is no such file or planted model; the planted models are {known}")


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


def _split(name: str, X: Array, y: Array, test: Array, seed: int, about: str) -> Problem:
    """Return the problem whose test rows are given by the mask ``test``.

    At most 10,000 of the remaining rows are training rows. If there are more, they are drawn at random.
    """
    if len(y) < FEWEST_ROWS or not 0 < test.sum() < len(y):
        raise ValueError(
            f"problem {name!r}: {len(y)} rows without missing values, {test.sum()} of them test rows; at least "
            f"{FEWEST_ROWS} rows are needed, with at least one training row and one test row"
        )
    if np.all(y == y[0]):
        raise ValueError(f"problem {name!r}: the target is constant; choose another target")
    train = np.flatnonzero(~test)
    if len(train) > MOST_TRAINING_ROWS:
        train = np.random.RandomState(seed).choice(train, MOST_TRAINING_ROWS, replace=False)
    about = f"{label(name)}: {about}, {len(train):,} training and {test.sum():,} test rows"
    return Problem(X[train], y[train], X[test], y[test], about=about)


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
    return _split(name, data[:, :-1], data[:, -1], masks[:, split], split, f"{data.shape[1] - 1} columns")


def _file(name: str, path: Path, options: dict[str, str]) -> Problem:
    import pandas as pd

    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except Exception as error:  # pandas and pyarrow raise many types of errors
        raise ValueError(f"problem {name!r}: the file cannot be read as a table ({error})") from error
    return _frame(name, frame, options)


def _openml(name: str, options: dict[str, str]) -> Problem:
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(name=options["name"], as_frame=True)
    except Exception as error:  # no network, or no such data set
        raise ValueError(f"problem {name!r}: OpenML cannot be reached or has no such data set ({error})") from error
    rest = {key: value for key, value in options.items() if key != "name"}
    return _frame(name, found.data.assign(**{"the target": found.target}), {**rest, "target": "the target"})


def _frame(name: str, frame: Any, options: dict[str, str]) -> Problem:
    """Convert a table to a problem: drop rows with missing values, and one-hot encode text columns."""
    import pandas as pd

    _check_options(name, options, ("target", "seed"))
    target = options.get("target", frame.columns[-1])
    if target not in frame.columns:
        columns = ", ".join(map(str, frame.columns))
        raise ValueError(f"problem {name!r}: there is no column {target!r}; the columns are {columns}")
    kept = frame.dropna()
    y = pd.to_numeric(kept[target], errors="coerce").to_numpy(dtype=np.float64)
    if not np.all(np.isfinite(y)):
        first = kept[target].iloc[int(np.flatnonzero(~np.isfinite(y))[0])]
        raise ValueError(
            f"problem {name!r}: the target {target!r} must be numeric, but contains {first!r}; "
            "choose another column, as in prices.csv:target=price"
        )
    inputs = pd.get_dummies(kept.drop(columns=[target]))
    seed = _int_option(name, options, "seed", 0)
    test = np.zeros(len(y), dtype=bool)
    test[np.random.RandomState(seed).permutation(len(y))[: len(y) // 5]] = True
    text = frame.shape[1] - 1 - len(set(inputs.columns) & set(frame.columns))
    parts = [f"the target is {target!r}", f"{inputs.shape[1]} columns"]
    if text:
        parts[1] += f" (text columns: {text}, encoded as {inputs.shape[1] - (frame.shape[1] - 1 - text)} columns)"
    if len(kept) < len(frame):
        parts.append(f"dropped rows with missing values: {len(frame) - len(kept):,}")
    return _split(name, inputs.to_numpy(dtype=np.float64), y, test, seed, ", ".join(parts))
