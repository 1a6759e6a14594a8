"""Files as a stranger may have made them, and what is expected of each: refused, or a model that predicts."""

import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hkrr
from hkrr.records.format import pack
from mutated_files import parts
from saved_models import apply, fitted, saved

MODELS = [
    "HyperKernelRidge",
    "HyperKernelRidgeCV",
    "grid",
    "RCLS",
    "polynomials",
    "ReLUNetwork",
    "BKerNN",
    "RBFNetwork",
]


@cache
def data_of(name):
    with tempfile.TemporaryDirectory() as folder:
        return saved(fitted(name), Path(folder))


def load(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stranger")
        path.write_bytes(data)
        return hkrr.load(path)


def refused(data, match=None):
    with pytest.raises(hkrr.ModelFileError, match=match) as raised:
        load(data)
    assert "stranger cannot be loaded: " in str(raised.value)


def refused_or_sound(data):
    """Return whether it was loaded; then it predicts rows, in a shape that makes sense."""
    try:
        model = load(data)
    except hkrr.ModelFileError:
        return False
    X = np.linspace(-1.0, 1.0, 5 * model.n_features_in_).reshape(5, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers of 1e308 overflow on the way, and say so
        try:
            assert len(apply(model, X)) == 5
        except ValueError as error:
            if "infinity" not in str(error):
                raise
    assert repr(model)
    return True


def changed(name, **fields):
    header, arrays = parts(data_of(name))
    return pack({**header, **fields}, arrays)


def with_value(name, place, value):
    """Return the file with one value of its header replaced, its checksum right."""
    header, arrays = parts(data_of(name))
    *path, last = place
    holder = header
    for key in path:
        holder = holder[key]
    holder[last] = value
    return pack(header, arrays)
