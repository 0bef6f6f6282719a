"""Zips several data sets into one of tuples."""

from __future__ import annotations

from typing import Any

from psflow.ps_runtime.data.lazy_dataset import LazyDataset
from psflow.ps_runtime.data.record_stream import RecordStream
from psflow.ps_runtime.data.transformations import Transformations
from psflow.ps_runtime.errors import InputError


def zipped(data_sets: tuple[Any, ...]) -> LazyDataset | RecordStream:
    """Return tuples of one element of each; see `Dataset.zip`."""
    given = data_sets[0] if len(data_sets) == 1 and isinstance(data_sets[0], tuple) else data_sets
    if not given or not all(isinstance(each, Transformations) for each in given):
        kinds = ", ".join(type(each).__name__ for each in given) or "nothing"
        raise InputError((f"zip expects data sets, such as zip(features, labels), got {kinds}",))
    lazy = [each.by_number() for each in given]
    if any(each is None for each in lazy):
        return RecordStream.zipped(tuple(each.stream() for each in given))
    return LazyDataset.zipped(tuple(each for each in lazy if each is not None))
