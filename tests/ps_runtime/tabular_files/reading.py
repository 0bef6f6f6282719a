"""Scan some files, and read all of their records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.ps_runtime.tabular_files.reader import RecordReader
from psflow.ps_runtime.tabular_files.scan import Scan

CSV = DelimitedText()


def index_of(
    paths: Any, record_format: RecordFormat = CSV, columns: Sequence[str] | None = None, chunk_bytes: int = 4096
) -> RecordIndex:
    scan = Scan(list_files(paths, record_format.suffixes), record_format, columns, chunk_bytes=chunk_bytes)
    for _ in scan:
        pass
    return scan.index()


def read_all(index: RecordIndex) -> pa.Table:
    with RecordReader(index) as reader:
        return reader.read(0, index.num_records)


def table_of(paths: Any, record_format: RecordFormat = CSV, **options: Any) -> pa.Table:
    return read_all(index_of(paths, record_format, **options))


def types_of(index: RecordIndex) -> dict[str, str]:
    return {column.name: column.type for column in index.columns}


def rewrite(path: Path, content: bytes) -> None:
    """Give a file another content, and a time of change that is another one for sure."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 1, before + 1))
