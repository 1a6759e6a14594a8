"""Models from files whose numbers are finite and absurd: what is asked of them is finite, or an error in words."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hkrr
from hkrr.records.format import pack
from hkrr.tables import TableRegressor, describe
from mutated_files import parts
from saved_models import rows, through_a_file
from strangers import load

FOLDER = Path(__file__).parent / "fixtures"
NAMES = ["uncertain", "calibrated", "logistic", "squared", "table"]
WORDS = "hold NaN or infinity|cannot be computed"


def _answers(model, X):
    """All that can be asked of a model, each a function."""
    yield lambda: model.predict(X)
    if hasattr(model, "predict_proba"):
        yield lambda: model.predict_proba(X)
        return
    inner = getattr(model, "model_", model)
    yield lambda: np.concatenate(model.predict(X, return_std=True))
    yield lambda: np.concatenate(model.predict_interval(X))
    yield lambda: inner.feature_importances_
    yield lambda: [each.weight for each in hkrr.tables.directions(model)]
    yield lambda: [share for _, share in inner.summary().importances]
    yield lambda: [each["share"] for each in describe(model)["importances"]]


@pytest.mark.parametrize("value", [1e308, -1e200, 1e155, 1e-308])
@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_absurd(name, value):
    """Warnings are errors here: overflow on the way would be one."""
    expected = json.loads((FOLDER / "format1.json").read_text())[name]
    X = pd.DataFrame(expected["X"]) if name == "table" else np.array(expected["X"])
    header, arrays = parts((FOLDER / f"format1-{name}.safetensors").read_bytes())
    said = []
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
                    said.append(str(error))
                else:
                    assert found.dtype.kind != "f" or np.all(np.isfinite(found)), changed
    assert said or value != 1e308
    assert all(re.search(WORDS, each) for each in said)


def test_a_table_around_kernel_ridge(tmp_path):
    X, y = rows()
    model = TableRegressor(hkrr.baselines.KernelRidgeCV()).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    model = through_a_file(model, tmp_path)
    model.model_.dual_coef_[:] = 1e308
    with pytest.raises(ValueError, match=WORDS):
        model.predict(pd.DataFrame(X, columns=["a", "b", "c"]))


def test_rows_that_are_too_far():
    model = hkrr.load(FOLDER / "format1-uncertain.safetensors")
    with pytest.raises(ValueError, match="predictions hold NaN or infinity: X is far from what was fitted"):
        model.predict(np.full((2, 3), 1e308))
