"""Sample tabular files for psflow: people with incomes to classify, houses with prices to predict.

Run as ``python examples/tabular_files.py data``: it writes ``census`` and ``housing`` into the folder ``data``, each as
CSV and as Parquet. The data are synthetic, and the same in each run. ``conf/census.yaml`` and ``conf/housing.yaml``
train on them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc
from pyarrow import csv, parquet

WORK = {"private": 0.0, "state": 0.3, "self-employed": 0.5, "family": -1.5, "none": -2.5, "abroad": 1.0}
WORK_SHARES = [0.6, 0.18, 0.13, 0.05, 0.037, 0.003]
REGIONS = ["north", "east", "south", "west", "islands"]
CONDITIONS = ["poor", "fair", "good", "new"]
START = np.datetime64("2010-01-01")


def census(num_rows: int, seed: int) -> pa.Table:
    """Return people: numbers, strings, booleans, a date and a postcode, some missing, and an income as a category."""
    random = np.random.default_rng(seed)
    age = random.integers(17, 80, num_rows)
    schooling = np.clip(random.normal(11, 3, num_rows).round(), 1, 20)
    hours = np.clip(random.normal(38, 11, num_rows).round(), 1, 90)
    work = random.choice(list(WORK), num_rows, p=WORK_SHARES)
    region = random.choice(REGIONS, num_rows, p=[0.4, 0.25, 0.2, 0.14, 0.01])
    savings = np.exp(random.normal(8 + 0.02 * age, 1.0)).round()
    remote = random.random(num_rows) < 0.3
    hidden = random.random(num_rows) < 0.12
    of_work = np.array([WORK[name] for name in work])
    score = (
        0.35 * (schooling - 11)
        + 0.05 * (hours - 38)
        - 0.0025 * (age - 50) ** 2
        + of_work * (1 + 0.1 * (schooling - 11))
        + 0.6 * (np.log(savings) - 9)
        + 0.8 * (remote & (region == "north"))
        - 1.2 * hidden
        + random.logistic(scale=0.8, size=num_rows)
    )
    return pa.table(
        {
            "id": [f"p{row:06}" for row in range(num_rows)],
            "age": age,
            "schooling": _with_missing(schooling, random, 0.04),
            "work": _with_missing(work, random, 0.06),
            "region": region,
            "hours": hours.astype(np.int64),
            "savings": pa.array(savings, mask=hidden),
            "remote": remote,
            "asked": START + random.integers(0, 400, num_rows),
            "postcode": [f"{code:05}" for code in random.integers(100, 400, num_rows)],
            "survey": ["household"] * num_rows,
            "income": np.where(score > 0.3, "high", "low"),
        }
    )


def housing(num_rows: int, seed: int) -> pa.Table:
    """Return houses: numbers, strings and dates, some missing, and a price as a number."""
    random = np.random.default_rng(seed)
    area = np.exp(random.normal(4.6, 0.35, num_rows)).round(1)
    rooms = np.clip((area / 28 + random.normal(0, 0.8, num_rows)).round(), 1, 12)
    district = random.integers(0, 40, num_rows)
    condition = random.integers(0, 4, num_rows)
    garden = np.exp(random.normal(5.5, 0.8, num_rows)).round()
    no_garden = random.random(num_rows) < 0.4
    built = np.datetime64("1900-01-01") + random.integers(0, 44_000, num_rows)
    sun = random.normal(0, 1, num_rows)
    of_district = np.sin(np.arange(40) * 1.7)[district]
    years = (built - np.datetime64("1900-01-01")).astype(int) / 365
    price = (
        60_000
        + 2_400 * area * (1 + 0.25 * of_district)
        + 9_000 * rooms
        + 14_000 * condition
        + 500 * years
        + np.where(no_garden, -15_000, 40 * garden)
        + 8_000 * sun
        + random.normal(0, 22_000, num_rows)
    )
    return pa.table(
        {
            "house": np.arange(num_rows) + 1,
            "area": area,
            "rooms": rooms.astype(np.int64),
            "district": [f"district {number + 1}" for number in district],
            "condition": _with_missing(np.array(CONDITIONS)[condition], random, 0.05),
            "garden": pa.array(garden, mask=no_garden),
            "built": built,
            "sun": sun.round(3),
            "price": np.maximum(price, 20_000).round(-2).astype(np.int64),
        }
    )


def write(table: pa.Table, name: str, folder: Path) -> None:
    """Write a table as CSV, with a question mark for a missing string, and as Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder / f"{name}.parquet")
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field.name, pc.fill_null(table.column(index), "?"))
    csv.write_csv(table, folder / f"{name}.csv", csv.WriteOptions(quoting_style="needed"))


def _with_missing(values: NDArray[Any], random: np.random.Generator, share: float) -> pa.Array:
    return pa.array(values, mask=random.random(len(values)) < share)


def main(folder: Path) -> None:
    """Write all files."""
    write(census(12_000, seed=1), "census", folder)
    write(housing(8_000, seed=2), "housing", folder)
    print(f"wrote census and housing, as CSV and Parquet, into {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
