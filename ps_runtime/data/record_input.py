"""Record files as somebody describes them, who has not opened them yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from psflow.ps_runtime.columns.labels import Label, weights_of
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.columns.reading import split_type
from psflow.ps_runtime.data.input_scan import scan_input
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.data.record_dataset import Batching, RecordDataset
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.record_files.base import RecordError, RecordFormat
from psflow.ps_runtime.record_files.delimited import DelimitedText
from psflow.ps_runtime.record_files.json_lines import JsonLines
from psflow.ps_runtime.record_files.libsvm import LibSvmText
from psflow.ps_runtime.record_files.libsvm_lines import FEATURES
from psflow.ps_runtime.record_files.listing import list_files
from psflow.ps_runtime.record_files.scan import Scan
from psflow.ps_runtime.specs.schema import InputSchema, LibSvmReading, TextReading
from psflow.ps_runtime.specs.schema_enforcement import missing_faults

__all__ = ["RecordInput"]

TAB = "\t"
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls a column that is the index of a frame and has no name."""
SAMPLE_SEED = 0
"""Of the samples of which medians and quantiles are learned."""


@dataclass(frozen=True, kw_only=True)
class RecordInput:
    """Files of records, and what is made of their columns. An input_fn may return one.

    Parameters
    ----------
    paths : str or sequence of str
        Files, folders, globs or fsspec URLs of these.
    record_format : RecordFormat
        How the files are read.
    label : LabelOptions or None
        The column of the labels; None: there are none.
    weight : str or None
        The column of the weights of the records.
    key_columns : sequence of str
        Columns that training ignores, and that a prediction hands on.
    features : sequence of str or None
        Columns that are features; None: all others.
    columns : mapping of str to ColumnOptions
        What becomes of some of them.
    groups : mapping of str to list of str or "numeric"
        Columns that arrive as one matrix.
    part : InputPart or None
        Which records the input has; None: all.
    stated : frozenset of str
        Options of delimited text that hold for these files, if those of training are others.
    batching : Batching
        In which batches, how often and in which order they are read.
    """

    paths: str | Sequence[str]
    record_format: RecordFormat
    label: LabelOptions | None = None
    weight: str | None = None
    key_columns: Sequence[str] = ()
    features: Sequence[str] | None = None
    columns: Mapping[str, ColumnOptions] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str] | Literal["numeric"]] = field(default_factory=dict)
    part: InputPart | None = None
    stated: frozenset[str] = frozenset()
    batching: Batching = field(default_factory=Batching)

    def batch(self, batch_size: int | None) -> RecordInput:
        """Return the input with batches of `batch_size` records; None: one of all."""
        return replace(self, batching=replace(self.batching, batch_size=batch_size))

    def repeat(self, num_epochs: int | None = None) -> RecordInput:
        """Return the input read `num_epochs` times; None: for ever."""
        return replace(self, batching=replace(self.batching, num_epochs=num_epochs))

    def shuffle(self, seed: int) -> RecordInput:
        """Return the input in an order of its own for each epoch, which `seed` determines."""
        return replace(self, batching=replace(self.batching, shuffle_seed=seed))

    def learn(self, non_finite: NonFinite, where: str) -> RecordDataset:
        """Open the training input: learn what becomes of its columns.

        Raises
        ------
        InputError
            If the files cannot be read, for a cell that `non_finite` refuses, or if the options do not go with the
            columns.
        """
        scan, known = self.scan(self._asked)
        if faults := missing_faults(where, "key column", self.key_columns, list(known)):
            raise InputError(tuple(faults))
        if nested := [name for name in self.key_columns if known[name] not in TYPES]:
            raise InputError(
                tuple(f"{where}: key column {name!r} is {known[name]}, which cannot be written" for name in nested)
            )
        try:
            learner = Learner(
                scan.columns, self.columns, self.groups, SAMPLE_SEED, label=self.label, weight=self.weight
            )
        except UsageError as error:
            raise InputError(tuple(f"{where}: {fault}" for fault in error.faults)) from None
        filled = [name for name, options in self.columns.items() if options.impute is not None]
        found = scan_input(
            scan,
            filled,
            non_finite,
            where,
            label=None if self.label is None else self.label.column,
            learn=learner.update,
            part=self.part,
        )
        keys = tuple(RawColumn(name, known[name]) for name in self.key_columns)
        return RecordDataset(
            found,
            replace(learner.finish(), keys=keys),
            self.batching,
            _unused(known, scan, self.key_columns),
            drops=non_finite == "drop",
            text=_text_of(self.record_format),
            part=self.part,
        )

    def open(self, schema: InputSchema, non_finite: NonFinite, where: str, *, needs_labels: bool) -> RecordDataset:
        """Open a further input of a model that was trained on record files.

        Text is read as the training input was, where this input says nothing else: with its cells that are blank, and
        as of its types, for a zip code must not become a number.

        Raises
        ------
        InputError
            If the files cannot be read, lack a column, or have one of another type; or for a cell that `non_finite`
            refuses.
        """
        preprocessing = schema.preprocessing
        assert preprocessing is not None, "files for a model that was trained on arrays are arrays"
        label = preprocessing.label if needs_labels else None
        if label is not None and self.label is not None:
            label = label.named(self.label.column)
        weight = preprocessing.weight if needs_labels else None
        apart = (None if label is None else label.column, weight)
        columns = [*preprocessing.raw_columns, *(column.raw for column in apart if column is not None)]
        names = [column.name for column in columns]
        keys = [key.name for key in preprocessing.keys]
        given = replace(self, record_format=_as_in_training(self, schema.text, columns, keys))
        scan, known = given.scan(lambda known: names if needs_labels else [*names, *_there(keys, names, known)])
        _check_label(label, preprocessing.label, known, where)
        found = scan_input(
            scan,
            {*preprocessing.filled_columns, *keys},
            non_finite,
            where,
            label=None if label is None else label.column.name,
            learn=None if weight is None else partial(weights_of, column=weight),
            part=self.part,
        )
        return RecordDataset(
            found,
            replace(preprocessing, label=label, weight=weight),
            self.batching,
            _unused(known, scan, keys),
            drops=non_finite == "drop",
            text=schema.text,
            part=self.part,
        )

    def scan(self, chosen: Callable[[Sequence[str]], Sequence[str]]) -> tuple[Scan, Mapping[str, str]]:
        """Return a scan of the columns that are `chosen` by name, and the types of all that there are."""
        files = list_files(self.paths, self.record_format.suffixes)
        look = Scan(files, replace(self.record_format, types={}))
        known = {column.name: column.type for column in look.columns} | dict(look.unreadable)
        names = chosen(list(known))
        if faults := missing_faults(files[0].shown, "column", names, list(known)):
            raise InputError(tuple(faults))
        types = {name: raw for name, raw in self.record_format.types.items() if name in names}
        return Scan(files, replace(self.record_format, types=types), names), known

    def _asked(self, known: Sequence[str]) -> list[str]:
        """Return the columns that training reads, out of all that there are."""
        apart = [*([] if self.label is None else [self.label.column]), *([] if self.weight is None else [self.weight])]
        if self.features is None:
            others = (*apart, *self.key_columns)
            return [*(name for name in known if name not in others and not PANDAS_INDEX.fullmatch(name)), *apart]
        return [*self.features, *apart]


def _there(keys: Sequence[str], names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the key columns of training that an input has, and that are not read anyway."""
    return [key for key in keys if key in known and key not in names]


def _text_of(record_format: RecordFormat) -> TextReading | LibSvmReading | None:
    if isinstance(record_format, LibSvmText):
        return LibSvmReading(record_format.zero_based)
    if not isinstance(record_format, DelimitedText):
        return None
    names = record_format.column_names
    return TextReading(
        record_format.delimiter,
        None if names is None else tuple(names),
        tuple(record_format.na_values),
        record_format.encoding,
    )


def _as_in_training(
    given: RecordInput, text: TextReading | LibSvmReading | None, columns: Sequence[RawColumn], keys: Sequence[str]
) -> RecordFormat:
    """Return how files are read as in training, but for what is stated of them."""
    record_format = given.record_format
    if isinstance(record_format, LibSvmText):
        return _libsvm_as_in_training(given, record_format, text, columns)
    if not isinstance(record_format, DelimitedText | JsonLines):
        return record_format
    # whole numbers may have fractions in a further file
    types = {column.name: column.type for column in columns if column.type in TYPES and column.type != "int64"}
    if not isinstance(record_format, DelimitedText):
        return replace(record_format, types={**record_format.types, **types})
    types |= dict.fromkeys(set(keys).difference(column.name for column in columns), "string")  # as they are written
    read = replace(record_format, types={**record_format.types, **types})
    if not isinstance(text, TextReading):
        return read
    options = {"column_names", "na_values", "encoding"}
    if text.delimiter != TAB:  # which is that of files of another suffix
        options.add("delimiter")
    same = {name: getattr(text, name) for name in options.difference(given.stated)}
    if same.get("column_names") is not None and _has_header(given, replace(read, **same), columns):
        del same["column_names"]
    return replace(read, **same)


def _libsvm_as_in_training(
    given: RecordInput, asked: LibSvmText, text: TextReading | LibSvmReading | None, columns: Sequence[RawColumn]
) -> LibSvmText:
    """Return how libsvm text is read: as many features as the model reads, from the same index on."""
    lengths = [split_type(column.type)[1] for column in columns if column.name == FEATURES]
    length = lengths[0] if lengths else None
    if length is not None and asked.num_features not in (None, length):
        fault = f"num_features is {asked.num_features}, expected {length} as in training; leave it out"
        raise InputError((fault,))
    same = text if isinstance(text, LibSvmReading) and "zero_based" not in given.stated else asked
    return replace(asked, num_features=length, zero_based=same.zero_based)


def _has_header(given: RecordInput, read: DelimitedText, columns: Sequence[RawColumn]) -> bool:
    """Return whether the first row names the columns that a model reads, though that of the training input did not."""
    [file, *_] = list_files(given.paths, read.suffixes)
    try:
        with replace(read, column_names=None, types={}).open(file) as records:
            return {column.name for column in columns} <= set(records.names)
    except RecordError:  # numbers, say, or cells that are there twice
        return False


def _unused(known: Iterable[str], scan: Scan, keys: Sequence[str]) -> tuple[str, ...]:
    read = {*keys, *(column.name for column in scan.columns)}
    return tuple(name for name in known if name not in read)


def _check_label(label: Label | None, learned: Label | None, known: Iterable[str], where: str) -> None:
    """Refuse labels from another column than in training, if that one is there."""
    if label is None or learned is None or label.column.name == learned.column.name:
        return
    if learned.column.name in known:
        expected = f"expected {learned.column.name!r} as in training; correct its label"
        raise InputError((f"{where}: the label is {label.column.name!r}, {expected}",))
