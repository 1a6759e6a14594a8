"""Fitted models for the tests of reports.

They are a model with a given number of directions, a model found by a search, an ensemble, and a table regressor.
"""

import dataclasses
from functools import cache

import numpy as np
import pandas as pd

from hkrr import HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.tables import TableRegressor
from hkrr.tables.encoding import Column, Encoder
from support.models_to_save import with_two_members


def house_data(n_rows=160, columns=("area", "age", "floor", "rooms", "noise"), seed=0):
    """Return rows and targets. The targets depend on two directions, which use only the first three columns."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n_rows, len(columns))) * [10, 1, 1, 1, 1], columns=list(columns))
    A = X.to_numpy()
    y = np.sin(A[:, 0] / 10 + A[:, 1]) + 0.5 * A[:, 2] ** 2 + 0.05 * rng.normal(size=n_rows)
    return X, pd.Series(y, name="price")


@cache
def fitted_model():
    X, y = house_data()
    return HyperKernelRidge(2, random_state=0).fit(X[:120], y[:120]), X, y


@cache
def searched_model():
    X, y = house_data(80)
    return HyperKernelRidgeCV(n_components=[1, 2, 3], n_init=1, random_state=0).fit(X, y), X, y


@cache
def ensemble_model():
    X, y = house_data(75)
    model = HyperKernelEnsemble(n_init=1, random_state=0).fit(X[:60], y[:60])
    return with_two_members(model, X[:60], y[:60]), X, y


class TableStandIn(TableRegressor):
    """A replacement for `TableRegressor` with a text column, prediction intervals and held-out scores."""

    @dataclasses.dataclass
    class Scores:
        target: str = "price"
        methods: tuple = ("hkrr", "kernel ridge", "linear")
        r2: tuple = (0.5, 0.7, 0.2)
        low: tuple = (0.4, 0.6, 0.1)
        high: tuple = (0.6, 0.8, 0.3)
        n_train: int = 120
        n_test: int = 40
        level: float = 0.95

    def __init__(self, model):
        super().__init__()
        self.model_ = model
        numbers = [Column(name, "number") for name in ("area", "age", "floor", "rooms")]
        self.encoder_ = Encoder((*numbers, Column("colour", "text", values=("red",))))
        self.feature_names_in_ = np.array(["area", "age", "floor", "rooms", "colour"], dtype=object)
        self.held_out_ = self.Scores()

    def transform(self, frame):
        return np.column_stack([frame.iloc[:, :4].to_numpy(), frame["colour"] == "red"]).astype(float)

    def predict(self, frame):
        return self.model_.predict(self.transform(frame))

    def predict_interval(self, frame, coverage=0.9):
        f = self.predict(frame)
        return f - coverage, f + coverage


@cache
def table_model():
    X, y = house_data()
    frame = X.drop(columns="noise").assign(colour=np.where(X["noise"] > 0, "red", "<i>blue</i>"))
    numbers = TableStandIn(None).transform(frame)
    return TableStandIn(HyperKernelRidge(2, random_state=0).fit(numbers[:120], y[:120])), frame, y
