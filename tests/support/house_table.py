"""A small table of house prices for tests. It has numbers, text, booleans, dates, missing values and identifiers."""

import numpy as np
import pandas as pd

TARGET = "price"


def table(n=120, seed=0):
    """Return the table as a data frame of strings and numbers, in the form that `read_table` returns."""
    rng = np.random.default_rng(seed)
    area, age = rng.uniform(30, 200, n).round(1), rng.integers(0, 80, n)
    town = rng.choice(["Trento", "Genova", "Bari"], n, p=[0.5, 0.3, 0.2])
    garden = rng.choice(["yes", "no"], n)
    sold = np.datetime64("2015-01-01") + rng.integers(0, 3000, n)
    price = 2 * np.sin(area / 50) + 0.02 * age + (town == "Trento") + 0.5 * (garden == "yes")
    return pd.DataFrame(
        {
            "id": np.arange(1, n + 1),
            "area (m2)": np.where(np.arange(n) % 12 == 7, np.nan, area),
            "age": age,
            "rooms": np.where(np.arange(n) % 20 == 3, "?", (area // 25).astype(int).astype(str)),
            "town": np.where(np.arange(n) % 20 == 4, None, town),
            "garden": garden,
            "sold": sold.astype(str),
            "owner": [f"Owner, {k}" for k in range(n)],
            "country": "Italy",
            "empty": [None] * n,
            TARGET: (price + 0.05 * rng.standard_normal(n)).round(4),
        }
    )


def write(folder, name="houses.csv", **options):
    """Write the table to a CSV or Parquet file in a folder, and return the path of the file."""
    path = folder / name
    frame = table(**options)
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


KIND = "kind"


def kinds(n=120, seed=0):
    """Return the table with the kind of each house ("flat", "house" or "villa") instead of its price."""
    frame = table(n, seed)
    limits = np.quantile(table(400, seed=1)[TARGET], [0.4, 0.8])
    labels = np.array(["flat", "house", "villa"])[np.searchsorted(limits, frame[TARGET])]
    return frame.drop(columns=TARGET).assign(**{KIND: labels})
