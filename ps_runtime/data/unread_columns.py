"""Leaves out the columns of a training input that no mode reads, so that their cells are not checked."""

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
    """Return `given.learn()`, without the columns that have refused cells and that the model does not read.

    Only then are they left out and the input scanned again: a later batch may read columns that the first one does not.
    """
    try:
        return given.learn(non_finite, where)
    except RefusedCellsError as error:
        refused = error
    learned = refused.schema.preprocessing
    assert learned is not None, "tabular files have a preprocessing"
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
    """Return an input without some columns and their preprocessing."""
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
