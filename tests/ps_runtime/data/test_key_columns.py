"""Each column of tabular files is one thing: label, weight, key or feature; and keys are kept with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psflow.ps_runtime.columns.options import LabelOptions
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv, ParquetInput
from psflow.ps_runtime.errors import InputError, UsageError

ROWS = "id,a,y\nx1,1,0\nx2,2,1\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "t.csv").write_text(ROWS)
    return str(tmp_path / "t.csv")


def learned(path: str, **keys: Any) -> RecordDataset:
    return Csv(path=path, **keys).read().learn("error", "the train input")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"label": "y", "features": ["a", "y"]}, "column 'y' is named by label and features: name it once"),
        ({"label": LabelOptions("y"), "weight": "y"}, "column 'y' is named by label and weight: name it once"),
        ({"weight": "a", "key_columns": ["a"]}, "column 'a' is named by weight and key_columns: name it once"),
        ({"key_columns": ["id"], "features": ["id"]}, "column 'id' is named by key_columns and features: name it once"),
        ({"features": ["a", "a"]}, "column 'a' is named by features and features: name it once"),
    ],
)
def test_a_column_is_named_once(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        Csv(path="t.csv", **keys)
    assert caught.value.faults == (fault,)


def test_keys_are_no_features_and_are_kept_with_the_model(path: str) -> None:
    schema = learned(path, label="y", key_columns=["id"]).schema()
    assert schema.names == ("a",)
    assert schema.preprocessing is not None
    assert schema.preprocessing.keys == (RawColumn("id", "string"),)


def test_a_later_input_has_the_keys_of_training_beside_what_is_unused(path: str) -> None:
    schema = learned(path, label="y", features=["a"], key_columns=["id"]).schema()
    Path(path).write_text("b," + ROWS.replace("\n", "\n3,", 2))
    opened = Csv(path=path).read().open(schema, "error", "the eval input", needs_labels=True)
    assert opened.unused == ("b",)


def test_a_key_that_is_no_column_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="the train input has no key column 'ids'"):
        learned(path, label="y", key_columns=["ids"])


def test_a_key_of_a_type_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": [b"x"], "a": [1.0]}), file)
    with pytest.raises(InputError, match="key column 'id' is binary, which cannot be written"):
        ParquetInput(path=file, key_columns=["id"]).read().learn("error", "the train input")
