"""Random mutations of checkpoints, used by the tests and by benchmarks/fuzz_checkpoints.py.

The mutations in `FORGED` change the content of a checkpoint and correct the checksum. A fit may use such a file and end
with a different model or an error. Files with any other mutation must be refused, or be equivalent to the original.
"""

import json
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy

import hkrr
from hkrr._storage.file_signatures import CHECKPOINT
from hkrr._storage.safetensors_format import CHECKPOINT_FORMAT, pack
from support.mutated_model_files import MUTATIONS, mutate_tree


class Broken(Exception):
    """Raised by a callback to stop a fit."""


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Return the training data of all fits."""
    X = np.random.default_rng(0).standard_normal((20, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * X[:, 1]


def _ridge(**more: Any) -> hkrr.HyperKernelRidge:
    quick = {"n_components": 1, "n_centers": 5, "max_iter": 4, "init": np.eye(1, 2), "random_state": 0, "n_jobs": 1}
    return hkrr.HyperKernelRidge(**{**quick, **more})


def _grid() -> hkrr.HyperKernelRidgeCV:
    parameters = {"cv": 2, "criterion": "training", "reg_lambdas": [0.1], "n_init": 1, "random_state": 0, "n_jobs": 1}
    return hkrr.HyperKernelRidgeCV([1], **parameters)


# For each fit: a function that returns the estimator, and the iteration at which the fit is stopped, or None if it is
# not stopped.
FITS: dict[str, tuple[Callable[[], Any], int | None]] = {
    "lbfgs": (_ridge, 2),
    "random": (lambda: _ridge(init="random", n_init=1), 2),
    "varpro": (lambda: _ridge(solver="varpro", reg_lambda=1e-2), 2),
    "evidence": (lambda: _ridge(criterion="evidence", reg_lambda="auto"), 2),
    "done": (lambda: _ridge(random_state=None), None),
    "grid": (_grid, None),
    "search": (lambda: hkrr.HyperKernelRidgeCV(1, n_init=1, random_state=0, n_jobs=1), None),
}


def checkpoints() -> dict[str, bytes]:
    """Return the bytes of a checkpoint without mutations for each fit in `FITS`."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", hkrr.HKRRWarning)  # for example about runs that end after four iterations
        for name, (make, at) in FITS.items():
            path, model = Path(folder, name), make().set_params(checkpoint=Path(folder, name))
            if at is not None:

                def stop(state: Any, at: int = at) -> None:
                    if state.n_iter == at:
                        raise Broken

                model.set_params(callbacks=[stop])
            with suppress(Broken):
                model.fit(*rows())
            found[name] = path.read_bytes()
    return found


def resumed(name: str, path: Path) -> Any:
    """Resume the fit with this name from a checkpoint, and return the fitted model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forged numbers can cause any warning
        return FITS[name][0]().set_params(checkpoint=path).fit(*rows())


def values_of(model: Any) -> tuple[np.ndarray, ...]:
    """Return the values by which two models are compared."""
    return model.components_, model.dual_coef_, model.centers_, np.array([model.gamma_, model.reg_lambda_])


def outcome(name: str, path: Path, expected: tuple[np.ndarray, ...]) -> str:
    """Resume the fit with this name from a checkpoint, and return the outcome as text."""
    try:
        found = values_of(resumed(name, path))
    except hkrr.CheckpointError:
        return "refused"
    except Exception as error:
        return f"an error ({type(error).__name__})"
    if all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True)):
        return "the same model"
    return "another model" if all(np.all(np.isfinite(one)) for one in found) else "not finite"


def _with_checksum(index: Any, texts: bytes, arrays: bytes) -> bytes:
    tensors = {"index": json.dumps(index).encode(), "texts": texts, "arrays": arrays}
    header = {"format": CHECKPOINT_FORMAT, "library": hkrr.__version__}
    return pack(header, {name: np.frombuffer(part, dtype=np.uint8) for name, part in tensors.items()}, CHECKPOINT)


def _opened(data: bytes) -> tuple[Any, bytes, bytes]:
    tensors = safetensors.numpy.load(data)
    return json.loads(tensors["index"].tobytes()), tensors["texts"].tobytes(), tensors["arrays"].tobytes()


def mutate_index(data: bytes, random: Random) -> bytes:
    """Change some values of the index of a checkpoint, and correct the checksum."""
    index, texts, arrays = _opened(data)
    mutate_tree(index, random)
    return _with_checksum(index, texts, arrays)


def mutate_value(data: bytes, random: Random) -> bytes:
    """Change some values of one entry of a checkpoint, and correct the lengths and the checksum."""
    index, texts, arrays = _opened(data)
    k = random.randrange(len(index))
    at = sum(entry[2] for entry in index[:k])
    value = json.loads(texts[at : at + index[k][2]])
    mutate_tree(value, random)
    text = json.dumps(value).encode()
    texts = texts[:at] + text + texts[at + index[k][2] :]
    index[k][2] = len(text)
    return _with_checksum(index, texts, arrays)


def mutate_numbers(data: bytes, random: Random) -> bytes:
    """Change some numbers in the arrays of a checkpoint, and correct the checksum."""
    index, texts, arrays = _opened(data)
    changed = bytearray(arrays)
    for _ in range(random.choice([1, 1, 5])):
        number = random.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, 1e-308, -1.0, random.gauss(0.0, 1.0)])
        at = 8 * random.randrange(len(arrays) // 8)
        changed[at : at + 8] = np.float64(number).tobytes()
    return _with_checksum(index, texts, bytes(changed))


FORGED = {"index": mutate_index, "value": mutate_value, "numbers": mutate_numbers}
_PLAIN = ("table", "bytes", "length", "truncated", "deep", "huge")
CHECKPOINT_MUTATIONS = {**FORGED, **{name: MUTATIONS[name] for name in _PLAIN}}
