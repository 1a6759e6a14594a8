"""Tables with columns of any kind: read, encode, fit, hold out, compare, predict. What ``hkrr fit`` does, in Python:

    frame = read_table("houses.csv")
    split = hold_out(frame, "price")
    model = TableRegressor().fit(split.train, pd.Series(split.y_train, name="price"))
    model.held_out_ = compare(model, split)
    hkrr.save(model, "houses.hkrr")

They need pandas and pyarrow: ``pip install "hkrr[cli]"``.
"""

from __future__ import annotations

from hkrr.columns import Column, Encoder, HeldOutScores
from hkrr.tables.comparison import Split, compare, hold_out
from hkrr.tables.description import describe
from hkrr.tables.directions import Direction, directions
from hkrr.tables.guessing import learn_encoder
from hkrr.tables.prediction import as_columns, predict_frame
from hkrr.tables.reading import read_pieces, read_table
from hkrr.tables.regressor import TableRegressor

__all__ = [
    "Column",
    "Direction",
    "Encoder",
    "HeldOutScores",
    "Split",
    "TableRegressor",
    "as_columns",
    "compare",
    "describe",
    "directions",
    "hold_out",
    "learn_encoder",
    "predict_frame",
    "read_pieces",
    "read_table",
]
