"""Counts the records of files without reading their values, to build the record index of columns of known types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.raw_types import wider_type
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema_enforcement import missing_faults
from psflow.ps_runtime.tabular_files.base import CHUNK_BYTES, ChunkRange, OpenRecords, RecordError, RecordFormat
from psflow.ps_runtime.tabular_files.files import DataFile, unchanged
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.partitions import open_records


def count_records(
    files: Sequence[DataFile],
    record_format: RecordFormat,
    columns: Mapping[str, str],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    on_progress: Callable[[int], object] = lambda done_bytes: None,
) -> RecordIndex:
    """Return the record index of some files, whose columns have known types.

    Raises InputError if a file cannot be opened, lacks a column or stores it as another type, changes, or is damaged so
    that its records cannot be separated; if there are no records.

    Notes
    -----
    For Parquet only the footers are read, for Arrow the heads of batches. An invalid cell, or a record with too few
    cells, is counted here and found when it is read. Memory is bounded by a chunk.
    """
    types = dict(columns)
    chunks: list[tuple[int, ChunkRange, int, bool]] = []  # file, range, number of records, whether it starts a run
    bytes_before = 0
    for number, file in enumerate(files):
        num_records = 0
        try:
            with open_records(record_format, file) as records:
                with unchanged(file):
                    _check(records, types, file)
                places = records.places(chunk_bytes)
                while (place := _next(places, file)) is not None:
                    with unchanged(file):
                        found = records.count(place)
                    if found:
                        chunks.append((number, place, found, records.starts_run(place)))
                    num_records += found
                    on_progress(bytes_before + records.bytes_up_to(place))
        except RecordError as fault:
            raise record_format.error(file, num_records, fault) from None
        bytes_before += file.size
    if not chunks:
        shown = files[0].shown + (f" and {len(files) - 1} more files" if len(files) > 1 else "")
        raise InputError((f"{shown}: expected records, found none",))
    return RecordIndex(
        files=tuple(files),
        record_format=record_format,
        columns=tuple(RawColumn(name, raw) for name, raw in types.items()),
        unreadable={},
        chunk_files=np.array([number for number, *_ in chunks], np.int32),
        chunk_places=np.array([place for _, place, *_ in chunks], np.int64),
        starts_run=np.array([starts for *_, starts in chunks], np.bool_),
        first_records=np.cumsum([0, *(found for _, _, found, _ in chunks)], dtype=np.int64),
    )


def _next(places: Iterator[ChunkRange], file: DataFile) -> ChunkRange | None:
    with unchanged(file):
        return next(places, None)


def _check(records: OpenRecords, types: dict[str, str], file: DataFile) -> None:
    """Refuse a file that lacks a column or stores another type; widen numbers to those of the file."""
    if lacking := records.lacking(tuple(types)):
        raise InputError(tuple(missing_faults(file.shown, "column", lacking, records.names)))
    while True:
        try:
            records.check_types(types)
            return
        except RecordError as fault:
            name = fault.column
            wider = wider_type(types[name]) if name is not None and fault.widens else None
            if name is None or wider is None:
                raise
            types[name] = wider
