"""Maps the bytes of a shard's arena and the rows of its tables to tensors of a checkpoint, for any number of ps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import ShardRecord, TableEntry, TensorEntry
from psflow.ps_runtime.checkpoint.reader import CheckpointReader, WantedRows, fault_of_tensors
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.optimizers.base import FloatArray
from psflow.ps_runtime.specs.layout import Piece, ShardLayout, piece_views
from psflow.ps_runtime.specs.variables import ModelSpec
from psflow.ps_runtime.tables.table import Table

GroupSlots = Sequence[Mapping[str, FloatArray]]
"""For each group of a layout, slot name -> (size,) array in the order of the group's parameters."""


def shard_tensors(
    layout: ShardLayout, arena: NDArray[np.uint8], slots: GroupSlots
) -> tuple[dict[str, NDArray[Any]], tuple[TensorEntry, ...]]:
    """Return the tensors of a shard: views by key, without copies, and a manifest entry for each."""
    tensors: dict[str, NDArray[Any]] = {}
    entries = []
    for piece, slot, view in _views(layout, arena, slots):
        entry = TensorEntry(
            piece.variable, slot, piece.row_start, piece.row_stop, piece.dtype, piece.shape, layout.index
        )
        tensors[entry.key] = view
        entries.append(entry)
    return tensors, tuple(entries)


def table_tensors(table: Table, index: int) -> tuple[dict[str, NDArray[Any]], tuple[TableEntry, ...]]:
    """Return the tensors of a table: copies by key, and a manifest entry for each."""
    tensors = table.tensors()
    entries = [TableEntry(table.spec.name, name, a.dtype.name, a.shape, index) for name, a in tensors.items()]
    return dict(zip((entry.key for entry in entries), tensors.values(), strict=True)), tuple(entries)


def save_shard(
    store: CheckpointStore,
    step: int,
    num_shards: int,
    layout: ShardLayout,
    arena: NDArray[np.uint8],
    slots: GroupSlots,
    tables: Sequence[Table] = (),
) -> ShardRecord:
    """Write a shard as its file of the checkpoint of `step`; return its part of the manifest. Blocks.

    Raises CheckpointError if a weight or a slot is NaN or infinite; nothing is written then.
    """
    tensors, entries = shard_tensors(layout, arena, slots)
    table_entries: list[TableEntry] = []
    for table in tables:
        rows, of_table = table_tensors(table, layout.index)
        tensors |= rows
        table_entries += of_table
    if fault := fault_of_tensors(tensors, entries, table_entries):
        raise CheckpointError(
            store.path(step),
            f"{fault}, so it is not written and the last one stays the latest; lower the learning rate, or limit the "
            "gradients, then run the same command again to resume",
        )
    return ShardRecord(store.write_shard(step, layout.index, num_shards, tensors), entries, tuple(table_entries))


def load_shard(
    reader: CheckpointReader,
    layout: ShardLayout,
    model: ModelSpec,
    arena: NDArray[np.uint8],
    slots: GroupSlots,
    tables: Sequence[Table] = (),
) -> None:
    """Fill a shard from a checkpoint that any number of ps wrote. Blocks.

    Raises CheckpointError if the checkpoint belongs to another model, with every difference, or is damaged; then the
    content of `arena`, `slots` and `tables` is undefined.
    """
    manifest = reader.manifest
    if differences := model.differences(manifest.model):
        raise CheckpointError(
            f"of step {manifest.step}",
            f"it belongs to another model: {'; '.join(differences)}; choose another model_dir, or train the same model",
        )
    reader.fill(
        WantedRows(piece.variable, slot, piece.row_start, view) for piece, slot, view in _views(layout, arena, slots)
    )
    for table in tables:
        table.clear()
        for rows in reader.table_rows(table.spec, table.optimizer.slot_names if table.optimizer else ()):
            table.load(rows)


def _views(
    layout: ShardLayout, arena: NDArray[np.uint8], slots: GroupSlots
) -> Iterator[tuple[Piece, str | None, NDArray[Any]]]:
    """Yield each piece of the arena (slot None) and each of its slots, in the piece's shape."""
    assert arena.nbytes == layout.nbytes
    assert len(slots) == len(layout.groups)
    for piece, view in zip(layout.pieces, piece_views(layout, arena), strict=True):
        yield piece, None, view
        for group, arrays in zip(layout.groups, slots, strict=True):
            # An empty piece has no bytes in any group or slot.
            if group.start <= piece.offset and piece.offset + piece.nbytes <= group.stop and piece.nbytes:
                start = (piece.offset - group.start) // view.itemsize
                for name, flat in arrays.items():
                    yield piece, name, flat[start : start + view.size].reshape(piece.shape)
