"""Predicts one partition in a Dask worker, block by block, without Prefect and the flow."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.one_thread import one_thread
from psflow.tasks.prediction.columns import OutputColumns
from psflow.tasks.prediction.folder import OutputError, PredictionFolder
from psflow.tasks.prediction.inputs import PredictionInput, open_rows
from psflow.tasks.prediction.model import ModelInfo, load_model, read_model_info
from psflow.tasks.prediction.options import OnError
from psflow.tasks.prediction.part_facts import CellCount, PartFacts
from psflow.tasks.prediction.partitions import Partition
from psflow.tasks.prediction.parts import HashedStream, PartWriter
from psflow.tasks.prediction.predictor import batch_rows, cells_of, predicted_batches
from psflow.tasks.prediction.record_rows import RecordRows
from psflow.tasks.prediction.rows import Block, OnFault, PredictionRows, RecordFault

CellsByColumn = Mapping[str, NDArray[np.bool_]]
"""Maps columns to the rows of a block with such a cell; columns without one are left out."""
NOT_FINITE = "a missing, NaN or infinite cell in {}, which non_finite refuses"


@dataclass(frozen=True, slots=True)
class PredictionWork:
    """Settings of all partitions of a prediction; small, as each task carries them."""

    model_path: str
    model_uri: str
    source: PredictionInput
    digest: str
    output: str
    owner: Owner
    columns: OutputColumns
    on_error: OnError


def predict_in_turn(work: PredictionWork, parts: Sequence[Partition]) -> list[PartFacts]:
    """Predict some partitions, one after the other, as `predict_partition` does; what is common to them costs once."""
    prepare_environment()
    leave_quickly()
    _rows(work)  # the libraries of the model are loaded before their threads are limited
    with one_thread():
        return [predict_partition(work, part) for part in parts]


def predict_partition(work: PredictionWork, part: Partition) -> PartFacts:
    """Predict one partition and write its part; return its facts.

    Raises
    ------
    InputError
        If this process cannot read the input or the model, or if the input has changed; with ``stop``, also for the
        first unreadable record.
    LostDirectoryError
        If this host cannot see the output.
    ModelFnError
        If a prediction contradicts the model's signature; with ``stop``, also for the first record on which the model
        fails or predicts NaN.

    Notes
    -----
    Repeatable, also by several workers concurrently: each file appears atomically, with the same content. Memory is
    bounded by a chunk of the input and a row group of the output.
    """
    model, rows = _model(work.model_path, work.model_uri), _rows(work)
    folder = PredictionFolder(work.output)
    name = f"{part.name}.{work.columns.output_format}"
    with _rejecting(folder, part, rows, work.on_error) as rejects, folder.writing(name) as stream:
        not_finite, invalid = _Found(), _Found()
        num_rows = _write(work, model, rows, part, stream, rejects, not_finite, invalid)
    facts = PartFacts(
        name=name,
        rows=num_rows,
        rejects=0 if rejects is None else rejects.count,
        first_record=part.start,
        file=part.file,
        first_in_file=part.first_in_file,
        num_bytes=stream.num_bytes,
        sha256=stream.sha256,
        not_finite_rows=not_finite.num_rows,
        not_finite=not_finite.columns,
        invalid_rows=invalid.num_rows,
        invalid=invalid.columns,
    )
    if facts.num_records != part.num_records:
        raise OutputError(f"{folder.shown}/{name}", f"{facts.num_records} records, expected {part.num_records}")
    folder.note_part(part, facts)
    return facts


def _write(
    work: PredictionWork,
    model: _Model,
    rows: PredictionRows,
    part: Partition,
    stream: HashedStream,
    rejects: _Rejects | None,
    not_finite: _Found,
    invalid: _Found,
) -> int:
    """Predict the blocks of a partition into a stream; return the number of predictions."""
    schema = work.columns.schema()
    with PartWriter(stream, schema, work.columns.output_format) as writer:
        for block in rows.blocks(part, rejects):
            columns = rows.not_finite(block)
            is_refused = columns and work.source.non_finite == "error"
            judged = _without_refused(block, columns, rows, rejects) if is_refused else block
            predicted: list[NDArray[np.int64]] = []
            for batch, predictions in predicted_batches(model.loaded, rows, judged, model.batch_rows, rejects):
                writer.write(work.columns.table(batch.keys, predictions, len(batch), schema))
                predicted.append(batch.records)
                del batch, predictions
            not_finite.count(rows, block.records, columns, predicted)
            invalid.count(rows, block.records, block.invalid, predicted)
            del block, judged  # before the next one is loaded
    return writer.num_rows


def _without_refused(block: Block, columns: CellsByColumn, rows: PredictionRows, on_fault: OnFault | None) -> Block:
    """Return a block without the rows that have cells that are not finite."""
    faulty = np.logical_or.reduce(list(columns.values()))
    for row in np.flatnonzero(faulty).tolist():
        reason = NOT_FINITE.format(", ".join(name for name, which in columns.items() if which[row]))
        record = int(block.records[row])
        if on_fault is None:
            raise InputError((f"{rows.located(record)}: {reason}",))
        on_fault(RecordFault(record, reason, cells_of(block[row : row + 1])))
    return block.without(faulty)


@dataclass
class _Found:
    """Counts predicted rows with cells of some kind, and these cells."""

    num_rows: int = 0
    columns: dict[str, CellCount] = field(default_factory=dict)

    def count(
        self,
        rows: PredictionRows,
        records: NDArray[np.int64],
        columns: CellsByColumn,
        predicted: Sequence[NDArray[np.int64]],
    ) -> None:
        """Count the rows and cells of records that were `predicted`."""
        if not columns:
            return
        is_predicted = np.isin(records, np.concatenate([records[:0], *predicted]))
        self.num_rows += int((np.logical_or.reduce(list(columns.values())) & is_predicted).sum())
        for name, faulty in columns.items():
            which = faulty & is_predicted
            if which.any():
                known = self.columns.get(name) or CellCount(0, *rows.place(int(records[which.argmax()])))
                self.columns[name] = replace(known, cells=known.cells + int(which.sum()))


class _Rejects:
    """Writes a line of JSON for each rejected record."""

    def __init__(self, opened: Callable[[], HashedStream], rows: PredictionRows) -> None:
        self.count = 0
        self._opened, self._rows = opened, rows

    def __call__(self, fault: RecordFault) -> None:
        if not self.count:
            self._stream = self._opened()
        file, row = self._rows.place(fault.record)
        held = "text" if isinstance(fault.cells, str) else "cells"
        line = {"file": file, "row": row, "record": fault.record, "reason": fault.reason, held: fault.cells}
        self._stream.write(json.dumps(_plain(line), default=str, allow_nan=False).encode() + b"\n")
        self.count += 1


def _plain(value: Any) -> Any:
    """Return a JSON value; NaN and infinities become strings."""
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _rejecting(
    folder: PredictionFolder, part: Partition, rows: PredictionRows, on_error: OnError
) -> Iterator[_Rejects | None]:
    """Give a writer of rejects, if the policy is ``reject``; without rejects it writes no file."""
    if on_error == "stop":
        yield None
        return
    with ExitStack() as stack:
        yield _Rejects(lambda: stack.enter_context(folder.writing_rejects(part)), rows)


@dataclass(frozen=True, slots=True)
class _Model:
    info: ModelInfo
    loaded: Any
    batch_rows: int


@functools.lru_cache(maxsize=1)
def _model(path: str, uri: str) -> _Model:
    """Return the model, loaded once for all partitions in this process."""
    loaded = load_model(path, uri)
    info = read_model_info(path, uri, uri, None)
    return _Model(info, loaded, batch_rows(info.schema))


@functools.lru_cache(maxsize=1)
def _rows(work: PredictionWork) -> PredictionRows:
    """Return the rows, opened once for all partitions: by the record index of the flow, or as arrays."""
    schema = _model(work.model_path, work.model_uri).info.schema
    folder = PredictionFolder(work.output)
    folder.mark(work.owner, "a Dask worker", never_stop).find()
    index = folder.index()
    if index is not None:
        assert schema.preprocessing is not None, "it was counted for a model that preprocesses"
        rows: PredictionRows = RecordRows(index, schema.preprocessing, work.source.invalid)
    else:
        rows = open_rows(replace(work.source, non_finite="keep"), schema)  # `_without_refused` handles other policies
    if rows.digest() != work.digest:
        raise InputError((f"{work.source} has changed, or differs on this Dask worker; run the command again",))
    return rows
