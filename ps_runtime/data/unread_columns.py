"""Columns of a training input that no mode reads: their cells are judged by nobody."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from psflow.ps_runtime.data.non_finite import NonFinite, RefusedCellsError
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.specs.schema import InputSchema


def learn_what_is_read(
    given: RecordInput, non_finite: NonFinite, where: str, read_of: Callable[[InputSchema], InputSchema]
) -> RecordDataset:
    """Return `given.learn()`, without those columns whose cells it refuses and that the model does not read.

    They are left out only then, and scanned twice: a later batch may read what the first one does not.
    """
    try:
        return given.learn(non_finite, where)
    except RefusedCellsError as error:
        refused = error
    learned = refused.schema.preprocessing
    assert learned is not None, "it is learned from files of records"
    read = read_of(refused.schema).preprocessing
    kept = {column.name for column in (learned if read is None else read).raw_columns}
    features = [column.name for column in learned.raw_columns]
    left_out = [name for name in features if f"column {name!r}" in refused.columns and name not in kept]
    if not left_out or len(left_out) == len(features):
        raise refused
    opened = _without(given, features, left_out).learn(non_finite, where)
    scanned = replace(opened.scanned, asked=given.asked(non_finite), left_out=tuple(left_out))
    return RecordDataset(scanned, given.batching)


def _without(given: RecordInput, features: Collection[str], left_out: Collection[str]) -> RecordInput:
    """Return an input that does not read some columns, nor makes something of them."""
    return replace(
        given,
        features=[name for name in features if name not in left_out],
        columns={name: own for name, own in given.columns.items() if name not in left_out},
        groups={
            name: members
            for name, members in given.groups.items()
            if members == "numeric" or not set(left_out).intersection(members)
        },
        crosses={name: own for name, own in given.crosses.items() if not set(left_out).intersection(own.columns)},
    )
