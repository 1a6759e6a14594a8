"""Load mutated model files, and report the outcomes, the peak memory and the slowest file.

    python benchmarks/fuzz_load.py [n_files] [seed]      (100,000 files by default; some minutes)

Each file is a saved model, mutated by a function of tests/support/mutated_model_files.py. Within a minute, loading
the file must raise a ModelFileError or return a model. The outputs of the model (predictions, standard deviations,
intervals, probabilities and importances) must be finite, or raise an error that names the overflow. The exit status is
1 if a file has any other outcome. Such files are kept in a folder whose name is printed. The results are in
benchmarks/results/fuzzing.md.
"""

from __future__ import annotations

import faulthandler
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd

import hkrr
from hkrr import baselines
from hkrr.estimators.fitted.importance import FeatureImportancesMixin
from hkrr.kernels import Polynomial
from hkrr.tables import TableRegressor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.mutated_model_files import MUTATIONS

# Relative frequencies of mutations that create long headers. These files take milliseconds each, other files less than
# one millisecond. Other mutations have the relative frequency 1.
_RARE = {"huge": 0.05, "deep": 0.3}
# Number of rows for which each loaded model makes predictions.
_ROWS = 3
# A loaded model may raise an error because of extreme numbers. The message must contain one of these texts.
_EXPECTED_ERRORS = ("infinity", "cannot be computed", "coverage=")
# Maximum number of seconds for one file, even on a busy machine. After this time, the process ends with a traceback.
_LIMIT = 60
# Number of files written at once.
_BATCH = 200


def seeds() -> list[bytes]:
    """Return the original files: saved models of different classes, kernels, parameters and versions."""
    warnings.simplefilter("ignore")  # networks do not converge in two iterations and warn
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 3))
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    quick = {"n_init": 1, "random_state": 0}
    frame = pd.DataFrame({"area": X[:, 0], "colour": np.array(["red", "blue", None])[np.arange(25) % 3]})
    frame["sold"], frame["new"] = pd.date_range("2020-01-01", periods=25), X[:, 1] > 0
    frame.loc[3, "area"] = np.nan
    models = [
        hkrr.HyperKernelRidge(2, max_iter=3, **quick).fit(X, y),
        hkrr.HyperKernelRidge(1, kernel=Polynomial(degree=2), max_iter=3, init=X[:1], **quick).fit(X, np.c_[y, -y]),
        hkrr.HyperKernelRidge(kernel="product_matern52", solver=hkrr.solvers.AGD(n_alpha=2), max_iter=2, **quick).fit(
            X, y
        ),
        hkrr.HyperKernelRidgeCV(n_components=1, **quick).fit(X, y),
        hkrr.HyperKernelRidgeCV([1], cv=2, criterion="training", reg_lambdas=[0.1], **quick).fit(X, y),
        hkrr.HyperKernelEnsemble(**quick).fit(X, y),
        hkrr.HyperKernelClassifier(class_weight={0: 1.0, 1: 2.0}, **quick).fit(X, (y > 0).astype(int)),
        hkrr.HyperKernelClassifier(**quick).fit(X, np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])]),
        TableRegressor(hkrr.HyperKernelRidgeCV([1], kernel="anova", **quick)).fit(frame, pd.Series(y, name="price")),
        TableRegressor(baselines.KernelRidgeCV(), missing="impute").fit(frame, y),
        hkrr.HyperKernelRidge(1, n_centers=9, max_iter=3, **quick).fit(X, y).calibrate(X, y + 0.1),
        baselines.SIR(1).fit(X, y),
        baselines.RCLS(1).fit(X, y),
        baselines.RCLS(1, link="polynomial", n_cells=2, degree=1).fit(X, y),
        baselines.BKerNN(n_particles=3, max_iter=2, random_state=0).fit(X, y),
        baselines.RBFNetwork(5, max_iter=2, random_state=np.random.RandomState(0)).fit(X, y),
        baselines.ReLUNetwork(4, max_iter=2, random_state=0).fit(X, y),
    ]
    # Files of classifiers that were saved by version 0.1. Loading converts them to the current format.
    fixtures = Path(__file__).parents[1] / "tests" / "saving" / "fixtures"
    files = [(fixtures / f"format1-{name}.safetensors").read_bytes() for name in ("logistic", "squared")]
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            hkrr.save(model, f"{folder}/model")
            files.append(Path(folder, "model").read_bytes())
    return files


def outcome(path: Path) -> str:
    """Return the outcome of loading a file: "refused", "loaded", or a description of an unexpected error."""
    try:
        model = hkrr.load(path)
    except hkrr.ModelFileError:
        return "refused"
    except Exception as error:
        return f"load raised {type(error).__name__}: {error}"
    try:
        repr(model)
        X, result = rows_for(model), "loaded"
        for answer in answers(model, X):
            try:
                found = np.asarray(answer())
            except ValueError as error:
                # Extreme but valid numbers, such as a scale of 1e-308, can cause an overflow. The error must name the
                # overflow.
                if not any(words in str(error) for words in _EXPECTED_ERRORS):
                    raise
                result = "loaded, and overflows"
            else:
                if len(found) != _ROWS or (found.dtype.kind == "f" and not np.all(np.isfinite(found))):
                    return f"predict raised nothing, but returned {found!r}"
        return result
    except Exception as error:
        return f"predict raised {type(error).__name__}: {error}"


def rows_for(model: Any) -> Any:
    """Return rows for the model: an array, or a data frame with valid cells for its columns."""
    if not isinstance(model, TableRegressor):
        return np.linspace(-1.0, 1.0, _ROWS * model.n_features_in_).reshape(_ROWS, -1)
    cells = {"number": 0.5, "date": "2020-01-05", "text": "red"}
    columns = model.encoder_.columns
    return pd.DataFrame({each.name: [cells.get(each.kind, (*each.values, "")[0])] * _ROWS for each in columns})


def answers(model: Any, X: Any) -> Iterator[Callable[[], Any]]:
    """Yield a function for each output of the model. The functions return one value for each row."""
    yield lambda: model.predict(X) if hasattr(model, "predict") else model.transform(X)
    inner = getattr(model, "model_", model)
    if hasattr(model, "predict_proba"):
        yield lambda: model.predict_proba(X)
        yield lambda: model.decision_function(X)
    if hasattr(inner, "noise_variance_"):
        yield lambda: model.predict(X, return_std=True)[1]
    if hasattr(inner, "interval_scores_"):
        yield lambda: np.stack(model.predict_interval(X, coverage=0.5), axis=1)
    if isinstance(inner, FeatureImportancesMixin | hkrr.HyperKernelEnsemble | hkrr.HyperKernelClassifier):
        yield lambda: np.resize(inner.feature_importances_, _ROWS)


def mutate(originals: list[bytes], folder: Path, n_files: int, seed: int) -> list[tuple[Path, str]]:
    """Write mutated files, and return their paths and the names of their mutations."""
    random, weights = Random(seed), [_RARE.get(name, 1.0) for name in MUTATIONS]
    names = random.choices(list(MUTATIONS), weights, k=n_files)
    paths = [folder / f"{seed}-{i}" for i in range(n_files)]
    for path, name in zip(paths, names, strict=True):
        path.write_bytes(MUTATIONS[name](random.choice(originals), random))
    return list(zip(paths, names, strict=True))


def main(n_files: int = 100_000, seed: int = 0) -> int:
    """Load each mutated file, print the outcomes, and return the exit status."""
    counts, slowest, bad = Counter[tuple[str, str]](), (0.0, ""), 0
    folder = Path(tempfile.mkdtemp(prefix="hkrr-fuzz-"))
    print(f"files are written to {folder}", flush=True)
    # Fit and mutate in another process, so that the peak memory of this process is the memory of loading only.
    with warnings.catch_warnings(), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        warnings.simplefilter("ignore")
        originals = other.submit(seeds).result()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for first in range(0, n_files, _BATCH):
            n_batch = min(_BATCH, n_files - first)
            for path, name in other.submit(mutate, originals, folder, n_batch, seed * n_files + first).result():
                faulthandler.dump_traceback_later(_LIMIT, exit=True)
                started = time.perf_counter()
                what = outcome(path)
                slowest = max(slowest, (time.perf_counter() - started, name))
                faulthandler.cancel_dump_traceback_later()
                counts[name, what] += 1
                if "raised" in what or "rows" in what:
                    bad += 1
                    print(f"{path}: {what}", flush=True)
                else:
                    path.unlink()
    for (name, what), count in sorted(counts.items()):
        print(f"{count:8,}  {name:10} {what}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak resident memory {peak / 1024:.0f} MB, of which {before / 1024:.0f} MB before the first file (imports)")
    print(f"slowest {slowest[0]:.3f} s ({slowest[1]})")
    print(f"{bad} of {n_files:,} files had a wrong outcome" + (f": see {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
