"""Forged model files, and assertions that `hkrr.load` refuses them, or returns a model that can predict."""

import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hkrr
from hkrr._storage.safetensors_format import pack
from support.models_to_save import apply, fitted, saved
from support.mutated_model_files import parts

MODELS = [
    "HyperKernelRidge",
    "HyperKernelRidgeCV",
    "HyperKernelEnsemble",
    "HyperKernelClassifier",
    "grid",
    "RCLS",
    "polynomials",
    "ReLUNetwork",
    "BKerNN",
    "RBFNetwork",
]


@cache
def data_of(name):
    """Return the bytes of the saved model with this name."""
    with tempfile.TemporaryDirectory() as folder:
        return saved(fitted(name), Path(folder))


def load(data):
    """Return the model that is loaded from a file with these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "forged")
        path.write_bytes(data)
        return hkrr.load(path)


def refused(data, match=None):
    """Assert that a file with these bytes is refused with a matching message."""
    with pytest.raises(hkrr.ModelFileError, match=match) as raised:
        load(data)
    assert "forged cannot be loaded: " in str(raised.value)


def refused_or_valid(data):
    """Return whether a file with these bytes can be loaded.

    If so, assert that the model predicts a value for each row, or raises a ValueError about infinite values.
    """
    try:
        model = load(data)
    except hkrr.ModelFileError:
        return False
    X = np.linspace(-1.0, 1.0, 5 * model.n_features_in_).reshape(5, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers such as 1e308 overflow with a warning
        try:
            assert len(apply(model, X)) == 5
        except ValueError as error:
            if "infinity" not in str(error):
                raise
    assert repr(model)
    return True


def changed(name, **fields):
    """Return the file of a model with the given fields of its header replaced and a correct checksum."""
    header, arrays = parts(data_of(name))
    return pack({**header, **fields}, arrays)


def with_value(name, place, value):
    """Return the file of a model with one value of its header replaced and a correct checksum.

    `place` lists the keys that lead to the value.
    """
    header, arrays = parts(data_of(name))
    *path, last = place
    holder = header
    for key in path:
        holder = holder[key]
    holder[last] = value
    return pack(header, arrays)
