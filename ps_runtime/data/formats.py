"""The registry of formats by name, and the opening of a data set in batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.idx_images import Idx
from psflow.ps_runtime.data.npz_arrays import Npz
from psflow.ps_runtime.data.record_dataset import Batching
from psflow.ps_runtime.data.record_formats import ArrowInput, Csv, JsonLinesInput, LibSvm, ParquetInput, Tsv
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.schema import InputSchema

FORMATS: Mapping[str, type[Format]] = MappingProxyType(
    {
        "digits": Digits,
        "csv": Csv,
        "tsv": Tsv,
        "parquet": ParquetInput,
        "arrow": ArrowInput,
        "jsonl": JsonLinesInput,
        "libsvm": LibSvm,
        "npz": Npz,
        "idx": Idx,
    }
)
"""The formats that a configuration names without a module."""


def open_dataset(
    data: Format,
    *,
    batch_size: int | None = None,
    shuffle: bool = False,
    epochs: int | None = 1,
    seed: int = 0,
    input_schema: InputSchema | None = None,
) -> Dataset | RecordInput:
    """Read data, and set batch size, number of epochs and order.

    Raises InputError as the format does, or if a number is out of range.

    Examples
    --------
    >>> open_dataset(Digits(split="test"), batch_size=60).num_records
    360
    """
    if input_schema is not None:
        data = data.selecting(input_schema.table_columns, input_schema.names)
    dataset = data.read()
    if isinstance(dataset, Dataset) and not dataset.source.name:  # a user's format need not set it
        path = getattr(data, "path", None)
        name = type(data).__name__ if path is None else shown_path(path)
        dataset = replace(dataset, source=replace(dataset.source, name=name))
    shuffle_seed = seed if shuffle else None
    if isinstance(dataset, RecordInput):
        return replace(dataset, batching=Batching(batch_size, epochs, shuffle_seed))
    if batch_size is None:
        return replace(dataset, num_epochs=epochs, shuffle_seed=shuffle_seed)
    return dataset.in_batches(batch_size, epochs, shuffle_seed)
