"""What methods are compared on: planted models with their true map, tables in files, OpenML sets.

A problem is a string, so that it can be given on a command line and stands in the results:

    sines:m=600,D=50,seed=0          a planted model: sines, mixed, or a kind of `hkrr.datasets.PLANTED`
    path/to/prices.csv:target=price  a table, CSV or Parquet; the last column is the target unless one is named
    path/to/folder:split=3           a folder with data.csv.gz (the target last) and test_mask.csv.gz (a column a split)
    openml:house_sales               by name; needs a network

With `seed` other rows are drawn. A fifth of a table's rows are test rows, and at most 10,000 others are training rows.
Rows with missing values are left out, and a text column becomes one column for each of its values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.datasets import PLANTED, Dataset, make_mim_mixed, make_mim_sines, make_planted

MOST_TRAINING_ROWS = 10_000
FEWEST_ROWS = 20
N_TEST = 4000
_PAPERS: dict[str, Callable[..., Dataset]] = {"sines": make_mim_sines, "mixed": make_mim_mixed}

# The planted models of the committed report: every kind, then the paper's two over m, and over D.
PLANTED_SUITE = (
    *(f"{kind}:m=600,D={model.n_features}" for kind, model in PLANTED.items()),
    *(f"{kind}:m={m},D=50" for kind in _PAPERS for m in (300, 600, 1200, 4000, 16000)),
    *(f"sines:m=600,D={D}" for D in (10, 20, 100)),
    *(f"product:m=600,D={D}" for D in (10, 20, 100, 200)),
)


@dataclass(frozen=True)
class Problem:
    """Training and test rows; the true map where there is one; of a table, what was made of it."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    B: Array | None = None
    about: str = ""

    def fingerprint(self) -> str:
        """Return a few digits that change with any of the numbers."""
        digest = hashlib.sha256()
        for part in (self.X, self.y, self.X_test, self.y_test):
            digest.update(str(part.shape).encode())
            digest.update(np.asarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()[:12]


def label(name: str) -> str:
    """Return the name of a problem in the results: a file's or folder's own name, without the path to it."""
    source, options = parse(name)
    if source not in (*planted_names(), "openml"):
        source = Path(source).name
    return f"{source}:{','.join(f'{key}={value}' for key, value in options.items())}" if options else source


def planted_names() -> tuple[str, ...]:
    """Return the names of the planted models."""
    return (*_PAPERS, *PLANTED)


def load_problem(name: str) -> Problem:
    """Return the problem of that name."""
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
    raise ValueError(f"problem {name!r}: there is no such file, nor such a planted model; there are {known}")


def parse(name: str) -> tuple[str, dict[str, str]]:
    """Return the source of a problem and its options."""
    source, _, rest = name.rpartition(":") if "=" in name.rpartition(":")[2] else (name, "", "")
    if source.startswith("openml:"):
        rest = f"name={source.removeprefix('openml:')}" + (f",{rest}" if rest else "")
        source = "openml"
    elif source == "openml" and "name=" not in rest:
        raise ValueError(f"problem {name!r}: write openml:NAME")
    pairs = [item.partition("=") for item in rest.split(",") if item]
    for key, sign, value in pairs:
        if not (key and sign and value):
            raise ValueError(f"problem {name!r}: {key!r} should read NAME=VALUE")
    return source, {key: value for key, _, value in pairs}


def _only(name: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    for key in options:
        if key not in known:
            raise ValueError(f"problem {name!r}: unknown option {key!r}; there are {', '.join(known)}")


def _whole(name: str, options: dict[str, str], key: str, default: int, least: int = 0) -> int:
    value = options.get(key, str(default))
    if not value.isdigit() or int(value) < least:
        raise ValueError(f"problem {name!r}: {key} must be a whole number, {least} or more, got {value!r}")
    return int(value)


def _planted(name: str, kind: str, options: dict[str, str]) -> Problem:
    _only(name, options, ("m", "D", "d", "seed") if kind in _PAPERS else ("m", "D", "seed"))
    m, seed = _whole(name, options, "m", 600, FEWEST_ROWS), _whole(name, options, "seed", 0)
    if kind in _PAPERS:
        d = _whole(name, options, "d", 3, 1)
        D = _whole(name, options, "D", 50, d)
        data = _PAPERS[kind](m + N_TEST, D, d, random_state=seed)
    else:
        D = _whole(name, options, "D", PLANTED[kind].n_features, PLANTED[kind].n_components)
        data = make_planted(kind, m + N_TEST, n_features=D, random_state=seed)
    return Problem(data.X[:m], data.y[:m], data.X[m:], data.y[m:], data.B)


def _cut(name: str, X: Array, y: Array, test: Array, seed: int, about: str) -> Problem:
    """Return the problem with these test rows, and at most 10,000 training rows drawn from the others."""
    if len(y) < FEWEST_ROWS or not 0 < test.sum() < len(y):
        raise ValueError(
            f"problem {name!r}: {len(y)} rows with all their values, {test.sum()} of them for testing, are "
            f"too few; {FEWEST_ROWS} or more are needed"
        )
    if np.all(y == y[0]):
        raise ValueError(f"problem {name!r}: the target is the same in all rows")
    train = np.flatnonzero(~test)
    if len(train) > MOST_TRAINING_ROWS:
        train = np.random.RandomState(seed).choice(train, MOST_TRAINING_ROWS, replace=False)
    about = f"{label(name)}: {about}, {len(train):,} training and {test.sum():,} test rows"
    return Problem(X[train], y[train], X[test], y[test], about=about)


def _folder(name: str, folder: Path, options: dict[str, str]) -> Problem:
    _only(name, options, ("split",))
    split = _whole(name, options, "split", 0)
    try:
        data = np.loadtxt(folder / "data.csv.gz", delimiter=",", ndmin=2)
        masks = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",", ndmin=2) == 1
    except (OSError, ValueError) as error:
        raise ValueError(
            f"problem {name!r}: a folder holds data.csv.gz (numbers without a header, the target last) and "
            f"test_mask.csv.gz (a column of 0 and 1 for each split): {error}"
        ) from error
    if split >= masks.shape[1]:
        raise ValueError(f"problem {name!r}: there are splits 0 to {masks.shape[1] - 1}")
    if len(data) != len(masks):
        raise ValueError(f"problem {name!r}: {len(data)} rows in data.csv.gz, {len(masks)} in test_mask.csv.gz")
    return _cut(name, data[:, :-1], data[:, -1], masks[:, split], split, f"{data.shape[1] - 1} columns")


def _file(name: str, path: Path, options: dict[str, str]) -> Problem:
    import pandas as pd

    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except Exception as error:  # whatever pandas or pyarrow make of a file that is no table
        raise ValueError(f"problem {name!r}: cannot be read as a table: {error}") from error
    return _frame(name, frame, options)


def _openml(name: str, options: dict[str, str]) -> Problem:
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(name=options["name"], as_frame=True)
    except Exception as error:  # no network, or no such set
        raise ValueError(f"problem {name!r}: OpenML cannot be reached or has no such set: {error}") from error
    rest = {key: value for key, value in options.items() if key != "name"}
    return _frame(name, found.data.assign(**{"the target": found.target}), {**rest, "target": "the target"})


def _frame(name: str, frame: Any, options: dict[str, str]) -> Problem:
    """Text columns become one column a value; rows with missing values are left out."""
    import pandas as pd

    _only(name, options, ("target", "seed"))
    target = options.get("target", frame.columns[-1])
    if target not in frame.columns:
        raise ValueError(f"problem {name!r}: no column {target!r}; there are {', '.join(map(str, frame.columns))}")
    kept = frame.dropna()
    y = pd.to_numeric(kept[target], errors="coerce").to_numpy(dtype=np.float64)
    if not np.all(np.isfinite(y)):
        first = kept[target].iloc[int(np.flatnonzero(~np.isfinite(y))[0])]
        raise ValueError(
            f"problem {name!r}: the target {target!r} must hold numbers, but has {first!r}; "
            "name another column, as in prices.csv:target=price"
        )
    inputs = pd.get_dummies(kept.drop(columns=[target]))
    seed = _whole(name, options, "seed", 0)
    test = np.zeros(len(y), dtype=bool)
    test[np.random.RandomState(seed).permutation(len(y))[: len(y) // 5]] = True
    text = frame.shape[1] - 1 - len(set(inputs.columns) & set(frame.columns))
    parts = [f"the target is {target!r}", f"{inputs.shape[1]} columns"]
    if text:
        parts[1] += f" ({text} of text spread over {inputs.shape[1] - (frame.shape[1] - 1 - text)})"
    if len(kept) < len(frame):
        parts.append(f"{len(frame) - len(kept):,} rows with missing values left out")
    return _cut(name, inputs.to_numpy(dtype=np.float64), y, test, seed, ", ".join(parts))
