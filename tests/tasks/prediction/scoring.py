"""A model, its schema and rows for tests of predictions, without an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.tasks.prediction.columns import OutputColumns, Prediction
from psflow.tasks.prediction.model import ModelInfo
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.partitions import Partition

SUM = Prediction("sum", "float32", ())
BOTH = Prediction("both", "float32", (2,))


class Sums:
    """Predicts ``a + b`` of each row, and both; fails on rows whose ``b`` is 13."""

    def __init__(self) -> None:
        self.num_calls = 0

    def predict(self, context: Any, rows: Any) -> dict[str, Any]:
        self.num_calls += 1
        a, b = (np.asarray(rows[name], np.float32) for name in ("a", "b"))
        if (b == 13).any():
            raise ValueError("13 is no number that I like")
        return {"sum": a + b, "both": np.stack([a, b], axis=1)}


class FilledSums(Sums):
    """Takes NaN for 0."""

    def predict(self, context: Any, rows: Any) -> dict[str, Any]:
        return super().predict(
            context, {name: np.nan_to_num(np.asarray(rows[name], np.float32)) for name in ("a", "b")}
        )


def trained(tmp_path: Path) -> InputSchema:
    """Return the schema of a training on numbers `a` and `b`, with keys `id`."""
    path = tmp_path / "train.csv"
    path.write_text("id,a,b,y\nx,1.5,2.5,0\ny,3,4,1\n")
    return Csv(path=str(path), label="y", key_columns=["id"]).read().learn("error", "the train input").schema()


def info(schema: InputSchema, path: str = "/model") -> ModelInfo:
    return ModelInfo("models:/m@best", "models:/m/3", "3", path, "u1", 40, schema, (SUM, BOTH))


def part(index: int = 0, start: int = 0, stop: int = 3) -> Partition:
    return Partition(index, start, stop, "in.csv", start, 100)


def facts(of: Partition, num_bytes: int = 3, **changes: Any) -> PartFacts:
    known: dict[str, Any] = {
        "name": f"{of.name}.csv",
        "rows": of.num_records,
        "rejects": 0,
        "first_record": of.start,
        "file": of.file,
        "first_in_file": of.first_in_file,
        "num_bytes": num_bytes,
        "sha256": "0" * 64,
        "not_finite_rows": 0,
        "not_finite": {},
        "invalid_rows": 0,
        "invalid": {},
    }
    return PartFacts(**known | changes)


def columns(output_format: Any = "csv", *predictions: Prediction) -> OutputColumns:
    return OutputColumns((), predictions or (SUM, BOTH), output_format)
