"""Checkpoints to warm-start from, and the first values that a plan takes out of them."""

import numpy as np

from psflow import (
    GradientDescent,
)
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.estimator.warm_start import plan_warm_start
from psflow.ps_runtime.model.warm_start import warm_value
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.server.input_position import InputPosition
from psflow.ps_runtime.server.shard import ShardArrays
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec
from psflow.ps_runtime.tables.table import Table

SGD = GradientDescent(learning_rate=0.5)


ROWS = np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])


BIAS = np.float32([10, 20])


STEP = 7


def table_spec(name, num_rows, dim=2, seed=5, **asked):
    return TableSpec(name, num_rows, dim, "float32", 0, {"name": "constant", "value": 9.0}, seed, **asked)


def model_of(variables, tables=(), schema=None, frozen=()):
    """Return a model of variables by name, given as arrays or shapes."""
    specs = []
    for name, value in variables.items():
        shape, dtype = (value, "float32") if isinstance(value, tuple) else (value.shape, value.dtype.name)
        specs.append(VariableSpec(name, shape, dtype, None if name in frozen else 0))
    return ModelSpec(tuple(specs), (SGD.config(),), tuple(tables), schema)


def write(path, variables, tables=(), schema=None, num_ps=2):
    """Write a checkpoint of variables and of rows of tables, ``[(spec, {id: row})]``; return its model_dir."""
    model = model_of(variables, [spec for spec, _ in tables], schema)
    store, records = CheckpointStore(str(path)), []
    store.files.create()
    for layout in place(model, num_ps):
        arrays = ShardArrays.over(np.empty(layout.nbytes, np.uint8), layout, (SGD,))
        for piece, view in zip(layout.pieces, piece_views(layout, arrays.arena), strict=True):
            whole = variables[piece.variable]
            view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
        parts = []
        for spec, rows in tables:
            part = Table(spec, SGD, layout.index, num_ps)
            ids = np.array(sorted(rows), np.int64)
            part.load({"ids": ids, "weights": np.float32([rows[i] for i in ids]).reshape(len(ids), spec.dim)})
            parts.append(part)
        records.append(save_shard(store, STEP, num_ps, layout, arrays.arena, arrays.slots, parts))
    snapshot = Snapshot(STEP, {}, InputPosition(InputSpec(None)).to_facts(), 0)
    store.commit(Manifest.of(STEP, model, snapshot.to_facts(), records))
    return str(path)


def planned(settings, model, frozen=()):
    trainable = {v.name for v in model.variables} - set(frozen)
    return plan_warm_start(settings, model, trainable)


def first_values(start, variables):
    """Return the first values of variables that would be -1 without a warm start."""
    sources = {source.name: source for source in start.sources}
    with CheckpointReader.pinned(CheckpointStore(start.model_dir), start.step, "test") as reader:
        return {
            name: warm_value(reader, sources[name], np.full(shape, -1, np.float32), 3) if name in sources else None
            for name, shape in variables.items()
        }


def vocabulary(path, *words):
    path.write_text("".join(f"{word}\n" for word in words))
    return str(path)


OLD_WORDS = ("apple", "banana", "guava", "orange")


TABLE_ROWS = {1: [1, 1], 2: [2, 2], 5: [5, 5]}
