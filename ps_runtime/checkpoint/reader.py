"""Reads rows of variables and tables of a checkpoint, whatever the number of shard files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import (
    CANDIDATES,
    IDS,
    WEIGHTS,
    TableEntry,
    TablePart,
    TensorEntry,
    expected_tensors,
    parts_of,
)
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.checkpoint.tensor_file import REMEDY, TensorFile, Wanted
from psflow.ps_runtime.errors import CheckpointError, did_you_mean
from psflow.ps_runtime.numeric import first_non_finite
from psflow.ps_runtime.specs.variables import TableSpec, VariableSpec
from psflow.ps_runtime.tables.table import Table


def fault_of_variable(variable: str, slot: str | None, row_start: int, values: NDArray[Any]) -> str | None:
    """Return a sentence on a non-finite row among `values` of a variable, or of its `slot`; None if all are finite."""
    found = _first(values)
    if found is None:
        return None
    return f"row {row_start + found[0]} of {_named('variable', variable, slot)} is {found[1]}"


def fault_of_table(table: str, rows: Mapping[str, NDArray[Any]]) -> str | None:
    """Return a sentence on a non-finite row of a table with the tensors `rows`; None if all are finite."""
    for name, values in rows.items():
        if (found := _first(values)) is not None:
            row = int(rows[CANDIDATES + IDS if name.startswith(CANDIDATES) else IDS][found[0]])
            return f"row {row} of {_named('table', table, None if name == WEIGHTS else name)} is {found[1]}"
    return None


def fault_of_tensors(
    tensors: Mapping[str, NDArray[Any]], entries: Sequence[TensorEntry], table_entries: Sequence[TableEntry]
) -> str | None:
    """Return a sentence on a non-finite value of a shard with `tensors` by key; None if all are finite."""
    for entry in entries:
        if fault := fault_of_variable(entry.variable, entry.slot, entry.row_start, tensors[entry.key]):
            return fault
    tables: dict[str, dict[str, NDArray[Any]]] = {}
    for row_entry in table_entries:
        tables.setdefault(row_entry.table, {})[row_entry.tensor] = tensors[row_entry.key]
    return next((fault for table, rows in tables.items() if (fault := fault_of_table(table, rows))), None)


def _first(values: NDArray[Any]) -> tuple[int, float] | None:
    return first_non_finite(values) if values.dtype.kind == "f" else None


def _named(kind: str, name: str, slot: str | None) -> str:
    return f"{kind} {name!r}" if slot is None else f"slot {slot!r} of {kind} {name!r}"


BLOCK_BYTES = 32 << 20
"""Bytes of the rows of a table that are read at once: the limit of what is in memory twice."""

Read = Callable[[dict[TableEntry, NDArray[Any]], int], None]
"""Fills arrays with rows of tensors in one file, starting at a given row."""

Block = dict[str, NDArray[Any]]


def table_blocks(
    spec: TableSpec, part: TablePart, num_shards: int, slots: Collection[str], read: Read, path: str
) -> Iterator[Block]:
    """Yield the rows of a table in one shard file, for `Table.load`; each block overwrites the previous one.

    Raises CheckpointError if a slot is missing, ids are out of order, out of range or of another shard, push counts are
    out of range, or a weight or a slot is NaN or infinite.
    """
    if missing := sorted(set(slots) - part.keys()):
        raise CheckpointError(path, f"table {spec.name!r} has no slot {', '.join(missing)}; use another checkpoint")
    names = expected_tensors(spec, part).keys() | set(slots)
    candidates = {name for name in names if name.startswith(CANDIDATES)}
    empty = {name: np.empty((0, *part[name].shape[1:]), part[name].dtype) for name in names}
    for some in (names - candidates, candidates):
        last_id = -1
        for block in _blocks({name: part[name] for name in some}, read):
            ids = block[CANDIDATES + IDS if some is candidates else IDS]
            if not _fit(ids, last_id, spec.num_rows, part[IDS].shard, num_shards):
                raise CheckpointError(
                    path,
                    f"the ids of table {spec.name!r} are not ascending, not below {spec.num_rows}, "
                    "or belong to another shard; use another checkpoint",
                )
            pushes = block.get(CANDIDATES + "pushes")
            if pushes is not None and not ((pushes > 0) & (pushes < spec.admit_after)).all():
                raise CheckpointError(
                    path,
                    f"the push counts of table {spec.name!r} are out of range, expected 1 to {spec.admit_after - 1}; "
                    "use another checkpoint",
                )
            if fault := fault_of_table(spec.name, block):
                raise CheckpointError(path, f"{fault}; use another checkpoint")
            last_id = int(ids[-1])
            yield empty | block


def _blocks(entries: dict[str, TableEntry], read: Read) -> Iterator[Block]:
    if not entries:
        return
    num_rows = min(entry.shape[0] for entry in entries.values())
    row_nbytes = sum(entry.nbytes // num_rows for entry in entries.values()) if num_rows else 1
    size = max(1, BLOCK_BYTES // row_nbytes)
    memory = {name: np.empty((min(size, num_rows), *entry.shape[1:]), entry.dtype) for name, entry in entries.items()}
    for start in range(0, num_rows, size):
        block = {name: array[: num_rows - start] for name, array in memory.items()}
        read({entries[name]: array for name, array in block.items()}, start)
        yield block


def _fit(ids: NDArray[np.int64], last_id: int, num_rows: int, shard: int, num_shards: int) -> bool:
    is_ascending = int(ids[0]) > last_id and int(ids[-1]) < num_rows and bool((ids[1:] > ids[:-1]).all())
    return is_ascending and bool((ids % num_shards == shard).all())


class WantedRows(NamedTuple):
    """The rows of a variable, or of its `slot`, from `row_start` on, to be read into the contiguous `out`."""

    variable: str
    slot: str | None
    row_start: int
    out: NDArray[Any]


class CheckpointReader:
    """The checkpoint of one step, open for reading.

    Raises CheckpointError if the checkpoint does not exist, or its manifest is damaged.

    Notes
    -----
    Every call blocks. Opens a shard file when one of its tensors is first requested; the first read verifies the whole
    file. The reader does not protect the checkpoint from collection: `pinned` does, or `CheckpointStore.pin` around it.
    """

    def __init__(self, store: CheckpointStore, step: int) -> None:
        self.manifest: Manifest = store.manifest(step)
        self.store = store
        self._variables = {variable.name: variable for variable in self.manifest.model.variables}
        self._opened: dict[int, TensorFile] = {}
        self._entries: dict[tuple[str, str | None], list[TensorEntry]] = {}
        for entry in self.manifest.tensors:
            self._entries.setdefault((entry.variable, entry.slot), []).append(entry)
        self._table_parts = parts_of(self.manifest.tables)

    @classmethod
    @contextlib.contextmanager
    def pinned(cls, store: CheckpointStore, step: int, holder: str) -> Iterator[CheckpointReader]:
        """Yield a reader of a checkpoint that is pinned during the block. `holder` is a name for messages."""
        with store.pin(step, holder):
            yield cls(store, step)

    def variable(self, name: str) -> NDArray[Any]:
        """Return the whole variable `name`, in its shape.

        Raises CheckpointError if the variable does not exist, or its bytes are missing or have changed.
        """
        return self.variables([name])[name]

    def variables(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return whole variables by name; each file is read once.

        Raises CheckpointError as in `variable`.
        """
        specs = [self._spec(name) for name in names]
        values: dict[str, NDArray[Any]] = {spec.name: np.empty(spec.shape, spec.dtype) for spec in specs}
        self.fill(WantedRows(name, None, 0, value) for name, value in values.items())
        return values

    def rows(self, variable: str, slot: str | None, row_start: int, row_stop: int) -> NDArray[Any]:
        """Return rows ``[row_start, row_stop)`` of `variable`, or of its `slot`: a new array.

        Raises CheckpointError if the variable, slot or row does not exist, its bytes are missing or have changed, or
        one of the rows is NaN or infinite.
        """
        spec = self._spec(variable)
        if not 0 <= row_start <= row_stop <= spec.num_rows:
            raise self._error(f"variable {variable!r} has rows [0, {spec.num_rows}), not [{row_start}, {row_stop})")
        shape = (row_stop - row_start, *spec.shape[1:]) if spec.shape else ()
        out: NDArray[Any] = np.empty(shape, spec.dtype)
        self.fill([WantedRows(variable, slot, row_start, out)])
        return out

    def fill(self, wanted: Iterable[WantedRows]) -> None:
        """Read rows of variables and slots into existing arrays; each file is read once.

        Raises CheckpointError as in `rows`; then the content of the arrays is undefined.
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
        """Return the whole table of `spec` with its weights only: for evaluation and prediction.

        Raises CheckpointError if the table does not exist, or its bytes are missing or have changed.
        """
        table = Table(spec, None)
        for rows in self.table_rows(spec, ()):
            table.load(rows)
        return table

    def table_rows(self, spec: TableSpec, slots: Collection[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Yield the rows of a table from all shards in blocks, for `Table.load`.

        Each block overwrites the previous one.

        Raises CheckpointError if the table or a slot does not exist, or its bytes are missing, have changed, are
        invalid, or are NaN or infinite.
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
        """Return the position in its file of a tensor's rows from `start` on, to be read into `out`."""
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
            name = self.store.shard_name(self.manifest.step, shard)
            self._opened[index] = TensorFile(self.store.files, name, nbytes=shard.nbytes, checksum=shard.checksum)
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
        return CheckpointError(self.store.files.path(f"checkpoints/step_{self.manifest.step:08d}"), reason)
