"""Reads a checkpoint: any rows of any variable or table, from however many shard files they lie in."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import TableEntry, TensorEntry
from psflow.ps_runtime.checkpoint.finite_values import fault_of_variable
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.checkpoint.table_blocks import table_blocks
from psflow.ps_runtime.checkpoint.table_faults import parts_of
from psflow.ps_runtime.checkpoint.tensor_file import REMEDY, TensorFile, Wanted
from psflow.ps_runtime.errors import CheckpointError, did_you_mean
from psflow.ps_runtime.specs.tables import TableSpec
from psflow.ps_runtime.specs.variables import VariableSpec
from psflow.ps_runtime.tables.table import Table

__all__ = ["CheckpointReader", "WantedRows"]


class WantedRows(NamedTuple):
    """The rows of a variable, or of its `slot`, that begin at `row_start`: they go to `out`, which is contiguous."""

    variable: str
    slot: str | None
    row_start: int
    out: NDArray[Any]


class CheckpointReader:
    """The checkpoint of one step, open for reading.

    Raises
    ------
    CheckpointError
        If there is no checkpoint of that step, or its manifest is damaged.

    Notes
    -----
    Every call blocks. Opens a shard file when the first of its tensors is asked for, and no other; the first read of
    it checks the whole file. It does not keep the checkpoint from being collected: `pinned` does, or
    `CheckpointStore.pin` around the reader.
    """

    def __init__(self, store: CheckpointStore, step: int) -> None:
        self.manifest: Manifest = store.manifest(step)
        self._store = store
        self._variables = {variable.name: variable for variable in self.manifest.model.variables}
        self._opened: dict[int, TensorFile] = {}
        self._entries: dict[tuple[str, str | None], list[TensorEntry]] = {}
        for entry in self.manifest.tensors:
            self._entries.setdefault((entry.variable, entry.slot), []).append(entry)
        self._table_parts = parts_of(self.manifest.tables)

    @classmethod
    @contextlib.contextmanager
    def pinned(cls, store: CheckpointStore, step: int, holder: str) -> Iterator[CheckpointReader]:
        """Give a reader of a checkpoint that stays during the block. `holder` is a name for people."""
        with store.pin(step, holder):
            yield cls(store, step)

    def variable(self, name: str) -> NDArray[Any]:
        """Return the whole variable `name`, in its shape.

        Raises
        ------
        CheckpointError
            If there is no such variable, or its bytes are missing or have changed.
        """
        return self.variables([name])[name]

    def variables(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return some variables whole, by name: each file is gone through once.

        Raises
        ------
        CheckpointError
            As `variable`.
        """
        specs = [self._spec(name) for name in names]
        values: dict[str, NDArray[Any]] = {spec.name: np.empty(spec.shape, spec.dtype) for spec in specs}
        self.fill(WantedRows(name, None, 0, value) for name, value in values.items())
        return values

    def rows(self, variable: str, slot: str | None, row_start: int, row_stop: int) -> NDArray[Any]:
        """Return rows ``[row_start, row_stop)`` of `variable`, or of its `slot`: a new array.

        Raises
        ------
        CheckpointError
            If there is no such variable, slot or row, its bytes are missing or have changed, or one of the rows is NaN
            or infinite.
        """
        spec = self._spec(variable)
        if not 0 <= row_start <= row_stop <= spec.num_rows:
            raise self._error(f"variable {variable!r} has rows [0, {spec.num_rows}), not [{row_start}, {row_stop})")
        shape = (row_stop - row_start, *spec.shape[1:]) if spec.shape else ()
        out: NDArray[Any] = np.empty(shape, spec.dtype)
        self.fill([WantedRows(variable, slot, row_start, out)])
        return out

    def fill(self, wanted: Iterable[WantedRows]) -> None:
        """Read rows of variables and slots into arrays that are there already: each file is gone through once.

        Raises
        ------
        CheckpointError
            As `rows`; then the content of the arrays is undefined.
        """
        parts: dict[int, list[Wanted]] = {}
        every = list(wanted)
        for rows in every:
            self._spec(rows.variable)
            row_stop = rows.row_start + (len(rows.out) if rows.out.shape else 1)
            for entry in self._entries_of(rows.variable, rows.slot):
                start, stop = max(rows.row_start, entry.row_start), min(row_stop, entry.row_stop)
                if start < stop:
                    out = rows.out[start - rows.row_start : stop - rows.row_start] if rows.out.shape else rows.out
                    parts.setdefault(entry.shard, []).append(self._part(entry, start - entry.row_start, out))
        for shard, part in parts.items():
            self._file(shard).read(part)
        for rows in every:
            if fault := fault_of_variable(rows.variable, rows.slot, rows.row_start, rows.out):
                raise self._error(f"{fault}; {REMEDY}")

    def table(self, spec: TableSpec) -> Table:
        """Return the whole table that `spec` describes, its weights alone: for evaluation and prediction.

        Raises
        ------
        CheckpointError
            If there is no such table, or its bytes are missing or have changed.
        """
        table = Table(spec, None)
        for rows in self.table_rows(spec, ()):
            table.load(rows)
        return table

    def table_rows(self, spec: TableSpec, slots: Collection[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Yield the rows of a table, those of all shards, some at a time: as `Table.load` takes them.

        What was yielded is overwritten by the next.

        Raises
        ------
        CheckpointError
            If there is no such table or slot, or its bytes are missing, have changed, make no sense, or are NaN or
            infinite.
        """
        tables = {table.name: table for table in self.manifest.model.tables}
        if spec.name not in tables:
            raise self._error(f"no table {spec.name!r}{did_you_mean(spec.name, tables)}")
        if differences := spec.differences(tables[spec.name]):
            raise self._error(f"table {spec.name!r} has {'; '.join(differences)}")
        num_shards = len(self.manifest.shards)
        for shard in range(num_shards):
            part = self._table_parts[spec.name, shard]
            yield from table_blocks(spec, part, num_shards, slots, self._read_rows, self._file(shard).path)

    def _read_rows(self, arrays: Mapping[TableEntry, NDArray[Any]], start: int) -> None:
        parts = [self._part(entry, start, out) for entry, out in arrays.items()]
        self._file(next(iter(arrays)).shard).read(parts)

    def _part(self, entry: TensorEntry | TableEntry, start: int, out: NDArray[Any]) -> Wanted:
        """Say where the rows of a tensor that begin at `start` lie in its file, and that `out` takes them."""
        assert out.dtype.name == entry.dtype
        assert out.flags.c_contiguous
        file = self._file(entry.shard)
        place = file.place(entry.key)
        if (place.dtype, place.shape) != (entry.dtype, entry.shape):
            found, expected = f"{place.dtype}{list(place.shape)}", f"{entry.dtype}{list(entry.shape)}"
            raise CheckpointError(file.path, f"tensor {entry.key!r} is {found}, expected {expected}")
        row_nbytes = entry.nbytes // max(1, entry.shape[0]) if entry.shape else 0
        return place.start + start * row_nbytes, out.reshape(-1).view(np.uint8)

    def _file(self, index: int) -> TensorFile:
        if index not in self._opened:
            shard = self.manifest.shards[index]
            name = self._store.shard_name(self.manifest.step, shard)
            self._opened[index] = TensorFile(self._store.files, name, nbytes=shard.nbytes, checksum=shard.checksum)
        return self._opened[index]

    def _entries_of(self, variable: str, slot: str | None) -> list[TensorEntry]:
        entries = self._entries.get((variable, slot))
        if entries is None:
            slots = sorted(s for v, s in self._entries if v == variable and s is not None)
            raise self._error(f"variable {variable!r} has no slot {slot!r}; it has {', '.join(slots) or 'none'}")
        return entries

    def _spec(self, variable: str) -> VariableSpec:
        spec = self._variables.get(variable)
        if spec is None:
            raise self._error(f"no variable {variable!r}{did_you_mean(variable, self._variables)}")
        return spec

    def _error(self, reason: str) -> CheckpointError:
        return CheckpointError(self._store.files.path(f"checkpoints/step_{self.manifest.step:08d}"), reason)
