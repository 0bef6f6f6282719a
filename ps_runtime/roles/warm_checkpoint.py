"""Writes the first checkpoint of a job that starts from values of another job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import ShardRecord
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.model.warm_start import WarmSource, WarmStart, warm_rows, warm_value
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.server.input_position import InputPositions
from psflow.ps_runtime.server.shard import ShardArrays
from psflow.ps_runtime.specs.layout import ShardLayout, piece_views, place
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.table import Table

logger = logging.getLogger(__name__)


def write_warm_checkpoint(
    job: JobSpec,
    warm_start: WarmStart,
    initial_values: Mapping[str, NDArray[Any]],
    store: CheckpointStore,
    prepared: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] = lambda values: values,
) -> int:
    """Write a checkpoint of step 0 with values of another job, slots as at a cold start; return its step. Blocks.

    Raises
    ------
    CheckpointError
        If bytes of the other checkpoint are missing or have changed, or it is gone.
    StorageError
        If the checkpoint cannot be written.
    """
    source = CheckpointStore(warm_start.model_dir)
    sources = {one.name: one for one in warm_start.sources}
    with CheckpointReader.pinned(source, warm_start.step, "warm start") as reader:
        values = dict(initial_values)
        for name in sources.keys() & values.keys():
            values[name] = warm_value(reader, sources[name], values[name], job.seed)
        first = prepared(values)
        records = [_write_shard(job, layout, first, sources, reader, store) for layout in place(job.model, job.num_ps)]
    snapshot = Snapshot(0, {}, InputPositions(job.input, job.num_workers + 1).to_facts(), 0)
    store.commit(Manifest.of(snapshot.step, job.model, snapshot.to_facts(), records))
    _log(job, warm_start, source)
    return snapshot.step


def _write_shard(
    job: JobSpec,
    layout: ShardLayout,
    values: Mapping[str, NDArray[Any]],
    sources: Mapping[str, WarmSource],
    reader: CheckpointReader,
    store: CheckpointStore,
) -> ShardRecord:
    arrays = ShardArrays.over(np.empty(layout.nbytes, np.uint8), layout, job.optimizers)
    for piece, view in zip(layout.pieces, piece_views(layout, arrays.arena), strict=True):
        whole = values[piece.variable]
        view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
    tables = [_table(job, layout.index, spec, sources.get(spec.name), reader) for spec in job.model.tables]
    return save_shard(store, 0, job.num_ps, layout, arrays.arena, arrays.slots, tables)


def _table(job: JobSpec, shard: int, spec: TableSpec, source: WarmSource | None, reader: CheckpointReader) -> Table:
    """Return a shard's part of a table: the rows that have values, created, their slots as of a new row."""
    optimizer = None if spec.optimizer is None else job.optimizers[spec.optimizer]
    table = Table(spec, optimizer, shard, job.num_ps)
    if source is None:
        return table
    slots = () if optimizer is None else optimizer.slot_names
    none = np.empty(0, np.int64)
    for ids, weights in warm_rows(reader, source, spec.num_rows):
        first_slots = {name: np.full_like(weights, optimizer.initial_slot(name)) for name in slots if optimizer}
        table.load(
            {"ids": ids, "weights": weights, "last_push": np.zeros(len(ids), np.int64), **first_slots}
            | {"candidate_ids": none, "candidate_pushes": none, "candidate_last_push": none}
        )
    return table


def _log(job: JobSpec, warm_start: WarmStart, source: CheckpointStore) -> None:
    warm = {one.name for one in warm_start.sources}
    names = [*(v.name for v in job.model.variables), *(t.name for t in job.model.tables)]
    cold = sorted(set(names) - warm)
    others = f"; as their initializers say: {', '.join(cold)}" if cold else ""
    logger.info("warm start from %s: %s%s", source.path(warm_start.step), ", ".join(sorted(warm)), others)
