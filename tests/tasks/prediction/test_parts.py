from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.tasks.prediction import parts as module
from psflow.tasks.prediction.parts import PartWriter, writing

SCHEMA = pa.schema([("x", pa.float32())])
PLACES = ["", "memory://"]


def table(start: int, stop: int) -> pa.Table:
    return pa.table({"x": np.arange(start, stop, dtype=np.float32)}, SCHEMA)


def store_in(tmp_path: Path, place: str) -> FileStore:
    return FileStore(f"{place}{tmp_path}")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("output_format", ["parquet", "csv"])
def test_a_part_appears_as_a_whole_with_its_checksum(tmp_path: Path, place: str, output_format: Any) -> None:
    files = store_in(tmp_path, place)
    with writing(files, "p") as stream:
        with PartWriter(stream, SCHEMA, output_format) as writer:
            for start in range(0, 90, 30):
                writer.write(table(start, start + 30))
        assert files.size("p") is None
    content = files.read("p")
    assert writer.num_rows == 90
    assert (stream.num_bytes, stream.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    buffer = pa.BufferReader(content)
    read = pq.read_table(buffer) if output_format == "parquet" else csv.read_csv(buffer)
    assert read["x"].to_pylist() == list(range(90))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("output_format", ["parquet", "csv"])
def test_a_part_that_fails_leaves_nothing(tmp_path: Path, place: str, output_format: Any) -> None:
    files = store_in(tmp_path, place)

    def write_and_fail() -> None:
        with writing(files, "p") as stream, PartWriter(stream, SCHEMA, output_format) as writer:
            writer.write(table(0, 3))
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_and_fail()
    assert files.names("") == []


def test_what_waits_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", 400)
    with writing(FileStore(str(tmp_path)), "p") as stream, PartWriter(stream, SCHEMA, "parquet") as writer:
        for start in range(0, 250, 50):
            writer.write(table(start, start + 50))
    metadata = pq.read_metadata(tmp_path / "p")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [100, 100, 50]


@pytest.mark.parametrize("output_format", ["parquet", "csv"])
def test_a_part_without_rows_has_its_columns(tmp_path: Path, output_format: Any) -> None:
    with writing(FileStore(str(tmp_path)), "p") as stream, PartWriter(stream, SCHEMA, output_format):
        pass
    read = pq.read_table(tmp_path / "p") if output_format == "parquet" else csv.read_csv(tmp_path / "p")
    assert (read.column_names, read.num_rows) == (["x"], 0)
