"""Decides how to read the files of a further input: as in training, unless its own options or content say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.columns.reading import split_type
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.input import LibSvmReading, TextReading
from psflow.ps_runtime.tabular_files.base import RecordError, RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.libsvm import LibSvmText
from psflow.ps_runtime.tabular_files.libsvm_lines import FEATURES
from psflow.ps_runtime.tabular_files.partitions import partition_cells, with_folders_above

OPTIONS = frozenset({"column_names", "na_values", "encoding"})


def as_in_training(
    record_format: RecordFormat,
    stated: Collection[str],
    text: TextReading | LibSvmReading | None,
    columns: Sequence[RawColumn],
    keys: Collection[str],
    unread_label: str | None,
    first_file: Callable[[], DataFile],
) -> RecordFormat:
    """Return the format with which to read the files.

    Raises InputError if an option contradicts what the model reads.
    """
    if isinstance(record_format, LibSvmText):
        return _libsvm(record_format, stated, text, columns)
    # a column of whole numbers may have fractions in a further file
    types = {column.name: column.type for column in columns if column.type in TYPES and column.type != "int64"}
    if not isinstance(record_format, DelimitedText | JsonLines):
        of_folders = types.keys() & partition_cells(first_file()).keys()
        return replace(record_format, types={**record_format.types, **{name: types[name] for name in of_folders}})
    if not isinstance(record_format, DelimitedText):
        return replace(record_format, types={**record_format.types, **types})
    types |= dict.fromkeys(
        set(keys).difference(column.name for column in columns), "string"
    )  # key columns are read as written
    read = replace(record_format, types={**record_format.types, **types})
    if not isinstance(text, TextReading):
        return read
    options = OPTIONS if text.delimiter is None else OPTIONS | {"delimiter"}
    read = replace(read, **{name: getattr(text, name) for name in options.difference(stated)})
    if "column_names" in stated or text.column_names is None:
        return read
    return replace(read, column_names=_names(read, text.column_names, columns, unread_label, first_file()))


def in_folders_of_training(files: Sequence[DataFile], preprocessing: Preprocessing | None) -> tuple[DataFile, ...]:
    """Return files with the columns of the folders above the given paths that a model reads.

    So a path may be one of the folders of training.
    """
    if preprocessing is None:
        return tuple(files)
    label = () if preprocessing.label is None else (preprocessing.label.column,)
    weight = () if preprocessing.weight is None else (preprocessing.weight,)
    names = {column.name for column in (*preprocessing.raw_columns, *preprocessing.keys, *label, *weight)}
    return tuple(with_folders_above(file, names) for file in files)


def _libsvm(
    asked: LibSvmText,
    stated: Collection[str],
    text: TextReading | LibSvmReading | None,
    columns: Sequence[RawColumn],
) -> LibSvmText:
    """Return the libsvm format with the number of features of the model and the first index of training."""
    lengths = [split_type(column.type)[1] for column in columns if column.name == FEATURES]
    length = lengths[0] if lengths else None
    if length is not None and asked.num_features not in (None, length):
        fault = f"num_features is {asked.num_features}, expected {length} as in training; leave it out"
        raise InputError((fault,))
    same = text if isinstance(text, LibSvmReading) and "zero_based" not in stated else asked
    return replace(asked, num_features=length, zero_based=same.zero_based)


def _names(
    read: DelimitedText,
    names: tuple[str, ...],
    columns: Sequence[RawColumn],
    unread_label: str | None,
    first_file: DataFile,
) -> tuple[str, ...] | None:
    """Return the column names if those of training had no header; None: the first row names them."""
    try:
        with replace(read, types={}).open(first_file) as records:
            cells = [cell.strip() for cell in records.first_cells()]
    except RecordError:  # the scan reports it
        return names
    if {column.name for column in columns} <= set(cells):
        return None
    if unread_label in names and len(cells) == len(names) - 1:
        return tuple(name for name in names if name != unread_label)
    return names
