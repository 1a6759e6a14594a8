"""Regression and classification on tables with columns of any type: reading, encoding, fitting, evaluating, predicting.

The command ``hkrr fit`` runs these steps:

    frame = read_table("houses.csv")
    split = hold_out(frame, "price")
    model = TableRegressor().fit(split.train, pd.Series(split.y_train, name="price"))
    model.held_out_ = compare(model, split)
    hkrr.save(model, "houses.hkrr")

This package needs pandas and pyarrow: ``pip install "hkrr[cli]"``.
"""

from __future__ import annotations

from hkrr.tables.classifier import TableClassifier
from hkrr.tables.direction_summary import Direction, directions
from hkrr.tables.encoding import Column, Encoder, HeldOutClassScores, HeldOutScores
from hkrr.tables.held_out_comparison import Split, compare, hold_out
from hkrr.tables.json_description import describe
from hkrr.tables.prediction import as_columns, predict_frame
from hkrr.tables.reading import read_pieces, read_table
from hkrr.tables.regressor import TableRegressor
from hkrr.tables.task import Task, infer_task
from hkrr.tables.type_inference import learn_encoder

__all__ = [
    "Column",
    "Direction",
    "Encoder",
    "HeldOutClassScores",
    "HeldOutScores",
    "Split",
    "TableClassifier",
    "TableRegressor",
    "Task",
    "as_columns",
    "compare",
    "describe",
    "directions",
    "hold_out",
    "infer_task",
    "learn_encoder",
    "predict_frame",
    "read_pieces",
    "read_table",
]
