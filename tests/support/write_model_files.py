"""Write a model file of every class, and the outputs of the models, to tests/saving/fixtures.

    PYTHONPATH=tests python -m support.write_model_files

Run this when the file format has a new number. Later versions must be able to load the files, and the loaded models
must have the same outputs. Files that exist are never replaced.
"""

import json

import numpy as np
import pandas as pd

import hkrr
from hkrr._storage.safetensors_format import FORMAT
from support.models_to_save import CLASSES, apply, fitted, new_rows, rows, unfitted
from support.paths import TESTS

FOLDER = TESTS / "saving" / "fixtures"
TABLE_MODELS = {"TableRegressor": "HyperKernelEnsemble", "TableClassifier": "HyperKernelClassifier"}


def outputs_of(model, X):
    """Return all outputs of a model for the rows X."""
    if hasattr(model, "predict_proba"):
        return {"predict": model.predict(X), "predict_proba": model.predict_proba(X)}
    if not hasattr(model, "predict_interval"):
        return {"predict": apply(model, X)}
    predicted, std = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X, coverage=0.8)
    return {"predict": predicted, "std": std, "lower": lower, "upper": upper}


def _frame(X):
    """Return a data frame with numbers, dates, text and missing values."""
    return pd.DataFrame(
        {
            "size": X[:, 0],
            "age": [None if x < -1.0 else x for x in X[:, 1]],
            "colour": np.where(X[:, 2] < 0.0, "red", "blue"),
            "sold": [f"2024-01-{day:02d}" for day in np.arange(len(X)) % 30 + 1],
        }
    )


def _fitted_to_table(name):
    X, y = rows()
    model = getattr(hkrr, name)(unfitted(TABLE_MODELS[name]))
    return model.fit(_frame(X), np.where(y > 0, "yes", "no") if name == "TableClassifier" else y)


def write(folder):
    """Write the files of all models, and their inputs, outputs and parameters as JSON."""
    X, recorded = new_rows()[5:15], {}
    with open(folder / f"format{FORMAT}.json", "x") as file:
        for name in (*CLASSES, *TABLE_MODELS):
            is_table = name in TABLE_MODELS
            model, given = (_fitted_to_table(name), _frame(X)) if is_table else (fitted(name), X)
            hkrr.save(model, folder / f"format{FORMAT}-{name}.safetensors")
            recorded[name] = {
                "X": given.to_dict("list") if is_table else given.tolist(),
                "outputs": {output: values.tolist() for output, values in outputs_of(model, given).items()},
                "parameters": {key: repr(value) for key, value in model.get_params(deep=False).items()},
            }
        json.dump(recorded, file, indent=1)


if __name__ == "__main__":
    write(FOLDER)
