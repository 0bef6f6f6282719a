"""No checkpoint holds a weight or a slot that is NaN or infinite: neither written nor read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import TableEntry, TensorEntry
from psflow.ps_runtime.checkpoint.table_faults import CANDIDATES, IDS, WEIGHTS
from psflow.ps_runtime.finite import first_non_finite

__all__ = ["fault_of_table", "fault_of_tensors", "fault_of_variable"]


def fault_of_variable(variable: str, slot: str | None, row_start: int, values: NDArray[Any]) -> str | None:
    """Say which row of a variable, or of its `slot`, is not finite; `values` begin at `row_start`. None if all are."""
    found = _first(values)
    if found is None:
        return None
    return f"row {row_start + found[0]} of {_named('variable', variable, slot)} is {found[1]}"


def fault_of_table(table: str, rows: Mapping[str, NDArray[Any]]) -> str | None:
    """Say which row of a table is not finite; `rows` are its tensors, by name. None if all are."""
    for name, values in rows.items():
        if (found := _first(values)) is not None:
            row = int(rows[CANDIDATES + IDS if name.startswith(CANDIDATES) else IDS][found[0]])
            return f"row {row} of {_named('table', table, None if name == WEIGHTS else name)} is {found[1]}"
    return None


def fault_of_tensors(
    tensors: Mapping[str, NDArray[Any]], entries: Sequence[TensorEntry], table_entries: Sequence[TableEntry]
) -> str | None:
    """Say what of a shard is not finite; `tensors` by key. None if all is."""
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
