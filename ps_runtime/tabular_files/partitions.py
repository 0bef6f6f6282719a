"""Files below folders such as ``year=2024``: the folders define columns of each of their records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import unquote

from psflow.ps_runtime.tabular_files.base import ChunkRange, OnInvalid, OpenRecords, RecordFormat
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.text_cells import inferred_type, parse_cells

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder name for records without a value."""


def partition_cells(file: DataFile) -> dict[str, str | None]:
    """Return the columns defined by the folders of a file, each with the text of its value; None: missing.

    Examples
    --------
    >>> partition_cells(DataFile("/data/year=2024/town=New%20York/0.parquet", 1, "", "year=2024/town=New%20York"))
    {'year': '2024', 'town': 'New York'}
    """
    folders = [folder.partition("=") for folder in file.folders.split("/")]
    return {
        unquote(name): None if cell == MISSING_VALUE else unquote(cell) for name, mark, cell in folders if name and mark
    }


def with_folders_above(file: DataFile, names: Collection[str]) -> DataFile:
    """Return a file with the columns `names` of the folders above the given path, as if it were one folder of many."""
    named = [folder for folder in _all_folders(file) if _name(folder) in names]
    return replace(file, folders="/".join([*named, file.folders]))


def with_folders_apart(files: Sequence[DataFile]) -> list[DataFile]:
    """Return files of several paths with the columns of the folders that differ, as if their parent was given.

    The folders lie below the parent that all files share; a name that one of the files lacks there is not a column.
    """
    folders = [_all_folders(file) for file in files]
    num_shared = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False)))
    names = set.intersection(*({name for folder in own[num_shared:] if (name := _name(folder))} for own in folders))
    return [with_folders_above(file, names - partition_cells(file).keys()) for file in files]


def _all_folders(file: DataFile) -> list[str]:
    return file.url.partition("?")[0].split("/")[:-1]


def _name(folder: str) -> str | None:
    """Return the column name of a folder."""
    name, mark, _ = folder.partition("=")
    return unquote(name) if name and mark else None


def open_records(record_format: RecordFormat, file: DataFile, all_files: Sequence[DataFile] = ()) -> OpenRecords:
    """Return the open file, with the columns of its folders; their types are those of `all_files`.

    Raises InputError or RecordError as `RecordFormat.open` does.
    """
    records = record_format.open(file)
    cells = {name: cell for name, cell in partition_cells(file).items() if name not in records.names}
    return (
        _OpenPartition(records, cells, [partition_cells(other) for other in all_files or (file,)]) if cells else records
    )


class _OpenPartition(OpenRecords):
    """An open file, with the cells that all its records have by its folders."""

    def __init__(
        self, records: OpenRecords, cells: Mapping[str, str | None], all_cells: Sequence[Mapping[str, str | None]]
    ) -> None:
        self._records, self._cells, self._all_cells = records, cells, all_cells

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._records.names, *self._cells)

    def lacking(self, names: Sequence[str]) -> list[str]:
        return self._records.lacking([name for name in names if name not in self._cells])

    def types(self, names: Sequence[str]) -> dict[str, str]:
        import pyarrow as pa

        types = self._records.types([name for name in names if name not in self._cells])
        for name in self._cells.keys() & set(names):
            cells = [cells[name] for cells in self._all_cells if name in cells]
            types[name] = inferred_type(pa.chunked_array([cells], pa.string()))
        return {name: types[name] for name in names}

    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        return self._records.places(chunk_bytes)

    def starts_run(self, place: ChunkRange) -> bool:
        return self._records.starts_run(place)

    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        import pyarrow as pa

        stored = {name: raw for name, raw in types.items() if name not in self._cells}
        table = self._records.read(place, stored, on_invalid) if stored else None
        num_records = self.count(place) if table is None else table.num_rows
        columns = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
        for name in types.keys() - stored.keys():
            cells = pa.chunked_array([pa.repeat(pa.scalar(self._cells[name], pa.string()), num_records)])
            columns[name] = parse_cells(cells, types[name], name, on_invalid)
        return pa.table({name: columns[name] for name in types})

    def size_fault(self, names: Sequence[str]) -> str | None:
        return self._records.size_fault([name for name in names if name not in self._cells])

    def count(self, place: ChunkRange) -> int:
        return self._records.count(place)

    def parts(self, place: ChunkRange) -> tuple[ChunkRange, ...]:
        return self._records.parts(place)

    def text(self, place: ChunkRange) -> str:
        return self._records.text(place)

    def check_types(self, types: Mapping[str, str]) -> None:
        self._records.check_types({name: raw for name, raw in types.items() if name not in self._cells})

    def bytes_up_to(self, place: ChunkRange) -> int:
        return self._records.bytes_up_to(place)

    def close(self) -> None:
        self._records.close()
