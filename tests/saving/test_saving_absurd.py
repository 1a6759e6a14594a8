"""Test that a model file with absurd numbers gives finite outputs, or an error.

Absurd numbers are finite, but so large or so small that computations with them can overflow.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hkrr
from hkrr._storage.safetensors_format import pack
from hkrr.tables import TableRegressor, describe
from support.hostile_files import load
from support.models_to_save import rows, through_a_file
from support.mutated_model_files import parts

FOLDER = Path(__file__).parent / "fixtures"
NAMES = ["uncertain", "calibrated", "ensemble", "classifier", "logistic", "squared", "table"]
MESSAGES = "contain NaN or infinity|hold NaN or infinity|cannot be computed"


def _answers(model, X):
    """Yield functions that return the outputs of a model for X, one function per output."""
    yield lambda: model.predict(X)
    if hasattr(model, "predict_proba"):
        yield lambda: model.predict_proba(X)
        yield lambda: model.decision_function(X)
        yield lambda: model.feature_importances_
        yield lambda: [share for _, share in model.summary().importances]
        return
    inner = getattr(model, "model_", model)
    yield lambda: np.concatenate(model.predict(X, return_std=True))
    yield lambda: np.concatenate(model.predict_interval(X))
    yield lambda: inner.feature_importances_
    yield lambda: [each.weight for each in hkrr.tables.directions(model)]
    yield lambda: [share for _, share in inner.summary().importances]
    yield lambda: [each["share"] for each in describe(model)["importances"]]


@pytest.mark.parametrize(
    "value", [1e308, 1e-308, *(pytest.param(value, marks=pytest.mark.thorough) for value in (-1e200, 1e155))]
)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_absurd(name, value):
    """Test that outputs are finite, or raise an error, after numbers in one array of a model file were replaced.

    The new numbers are absurd, see the docstring of this module. Warnings are errors in the tests, so an overflow in a
    computation would fail the test.
    """
    expected = json.loads((FOLDER / "format1.json").read_text())[name]
    X = pd.DataFrame(expected["X"]) if name == "table" else np.array(expected["X"])
    header, arrays = parts((FOLDER / f"format1-{name}.safetensors").read_bytes())
    messages = []
    for changed in (each for each in sorted(arrays) if arrays[each].dtype == np.float64 and "regressor_" not in each):
        for place in (0, slice(None)):
            absurd = arrays[changed].copy()
            absurd.flat[place] = value
            try:
                model = load(pack(header, {**arrays, changed: absurd}))
            except hkrr.ModelFileError:
                continue
            for answer in _answers(model, X):
                try:
                    found = np.asarray(answer())
                except ValueError as error:
                    messages.append(str(error))
                else:
                    assert found.dtype.kind != "f" or np.all(np.isfinite(found)), changed
    assert messages or value != 1e308
    assert all(re.search(MESSAGES, message) for message in messages)


def test_a_table_around_kernel_ridge(tmp_path):
    X, y = rows()
    model = TableRegressor(hkrr.baselines.KernelRidgeCV()).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    model = through_a_file(model, tmp_path)
    model.model_.dual_coef_[:] = 1e308
    with pytest.raises(ValueError, match=MESSAGES):
        model.predict(pd.DataFrame(X, columns=["a", "b", "c"]))


def test_rows_that_are_too_far():
    model = hkrr.load(FOLDER / "format1-uncertain.safetensors")
    with pytest.raises(ValueError, match="predictions contain NaN or infinity: X is far from the training data"):
        model.predict(np.full((2, 3), 1e308))
