"""Tabular files with the description of their columns, before they are opened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Literal

from psflow.ps_runtime.columns.crossing import CrossOptions
from psflow.ps_runtime.columns.labels import Label, weights_of
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.columns.reading import fits
from psflow.ps_runtime.data.as_in_training import as_in_training, in_folders_of_training
from psflow.ps_runtime.data.input_scan import scan_input
from psflow.ps_runtime.data.invalid_cells import Invalid
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.data.record_dataset import Batching, RecordDataset
from psflow.ps_runtime.data.scanned_input import Asked, ScannedInput, digest_of, model_digest
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.specs.input import LibSvmReading, TextReading
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.schema_enforcement import missing_faults
from psflow.ps_runtime.tabular_files.base import NUMBER, RecordFormat
from psflow.ps_runtime.tabular_files.counting import count_records
from psflow.ps_runtime.tabular_files.delimited import DelimitedText, likely_delimiter
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.libsvm import LibSvmText
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.ps_runtime.tabular_files.scan import MAX_COLUMNS, Scan, column_names

PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""The name that pandas gives to an unnamed index of a frame."""
SAMPLE_SEED = 0
"""Seed of the samples for medians and quantiles."""


@dataclass(frozen=True, kw_only=True)
class RecordInput:
    """Tabular files, and the preprocessing of their columns. An input_fn may return one."""

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    record_format: RecordFormat
    label: LabelOptions | None = None
    weight: str | None = None
    key_columns: Sequence[str] = ()
    features: Sequence[str] | None = None
    columns: Mapping[str, ColumnOptions] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str] | Literal["numeric"]] = field(default_factory=dict)
    crosses: Mapping[str, CrossOptions] = field(default_factory=dict)
    part: InputPart | None = None
    invalid: Invalid = "error"
    max_columns: int = MAX_COLUMNS
    stated: frozenset[str] = frozenset()
    batching: Batching = field(default_factory=Batching)

    def batch(self, batch_size: int | None) -> RecordInput:
        """Return the input with batches of `batch_size` records; None: one batch of all."""
        return replace(self, batching=replace(self.batching, batch_size=batch_size))

    def repeat(self, num_epochs: int | None = None) -> RecordInput:
        """Return the input read `num_epochs` times; None: forever."""
        return replace(self, batching=replace(self.batching, num_epochs=num_epochs))

    def shuffle(self, *, seed: int) -> RecordInput:
        """Return the input in another order for each epoch, determined by `seed`.

        Records are mixed within windows of about 32 MiB of features, and windows take chunks of all files at random.
        """
        return replace(self, batching=replace(self.batching, shuffle_seed=seed))

    def learn(self, non_finite: NonFinite, where: str) -> RecordDataset:
        """Open the training input: learn the preprocessing of its columns.

        Raises InputError if the files cannot be read, or the options do not suit the columns; a RefusedCellsError for
        cells that `non_finite` refuses.
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
                scan.columns,
                self.columns,
                self.groups,
                SAMPLE_SEED,
                label=self.label,
                weight=self.weight,
                crosses=self.crosses,
            )
        except UsageError as error:
            raise InputError(tuple(f"{where}: {fault}" for fault in error.faults)) from None
        filled = [name for name, own in self.columns.items() if own.impute is not None or own.max_values is not None]
        filled += [own.weights for own in self.columns.values() if own.weights is not None]
        vocabularies = self.vocabularies()
        found = scan_input(
            scan,
            filled,
            non_finite,
            where,
            label=None if self.label is None else self.label.column,
            learn=learner.update,
            part=self.part,
            invalid=self.invalid,
        )
        keys = tuple(RawColumn(name, known[name]) for name in self.key_columns)
        preprocessing, text = replace(learner.finish(), keys=keys), _text_of(self.record_format)
        scanned = ScannedInput(
            asked=self.asked(non_finite),
            vocabularies=vocabularies,
            model=model_digest(preprocessing, text),
            scan=found,
            preprocessing=preprocessing,
            text=text,
            unused=_unused(known, scan, self.key_columns),
            drops=non_finite == "drop",
            part=self.part,
        )
        apart = (self.weight, None if self.label is None else self.label.column)
        features = [column.name for column in scan.columns if column.name not in apart]
        return RecordDataset(scanned, self.batching).judged(non_finite, where, features)

    def open(self, schema: InputSchema, non_finite: NonFinite, where: str, *, needs_labels: bool) -> RecordDataset:
        """Open a further input of a model that was trained on tabular files.

        Text is read as the training input was, unless this input says otherwise: with its missing values and types, so
        that a zip code does not become a number.

        Raises
        ------
        InputError
            If the files cannot be read, lack a column, or have one of another type; or for a refused cell.
            Without labels it is a prediction, one row per record: ``invalid="drop"`` refuses what it would drop.
        """
        preprocessing = schema.preprocessing
        assert preprocessing is not None, "a model that was trained on arrays reads files as arrays"
        label = preprocessing.label if needs_labels else None
        if label is not None and self.label is not None:
            label = label.named(self.label.column)
        weight = preprocessing.weight if needs_labels else None
        apart = (None if label is None else label.column, weight)
        columns = [*preprocessing.raw_columns, *(column.raw for column in apart if column is not None)]
        names = [column.name for column in columns]
        given = replace(self, record_format=self._as_in_training(schema, columns, needs_labels=needs_labels))
        scan, known = given.scan(lambda known: names, schema)
        _check_label(label, preprocessing.label, known, where)
        found = scan_input(
            scan,
            preprocessing.filled_columns,
            non_finite,
            where,
            label=None if label is None else label.column.name,
            learn=None if weight is None else partial(weights_of, column=weight),
            part=self.part,
            invalid=self.invalid,
        )
        scanned = ScannedInput(
            asked=self.asked(non_finite),
            vocabularies=(),
            model=model_digest(preprocessing, schema.text),
            scan=found,
            preprocessing=replace(preprocessing, label=label, weight=weight),
            text=schema.text,
            unused=_unused(known, scan, [key.name for key in preprocessing.keys]),
            drops=non_finite == "drop",
            part=self.part,
        )
        return RecordDataset(scanned, self.batching).judged(non_finite, where, may_drop=needs_labels)

    def asked(self, non_finite: NonFinite) -> Asked:
        """Return the description of the input, independent of content and batching."""
        plain = replace(self, columns=dict(self.columns), groups=dict(self.groups), crosses=dict(self.crosses))
        described = asdict(plain)
        for name in ("paths", "batching", "stated"):
            del described[name]
        facts = [described, sorted(self.stated), self.record_format.name, non_finite]
        return Asked(_listed(self.paths), digest_of(facts))

    def files(self, schema: InputSchema | None = None) -> tuple[DataFile, ...]:
        """Return the files as they are now, with the folders of training if `schema` is given; see `list_files`."""
        files = list_files(self.paths, self.record_format.suffixes)
        return files if schema is None else in_folders_of_training(files, schema.preprocessing)

    def vocabularies(self) -> tuple[DataFile, ...]:
        """Return the vocabulary files, as they are now."""
        named = [options.vocabulary for options in self.columns.values() if isinstance(options.vocabulary, str)]
        paths = [path for path in dict.fromkeys(named) if path != "auto"]
        return list_files(paths, ()) if paths else ()

    def index(self, schema: InputSchema, on_progress: Callable[[int, int], object]) -> IndexedRecords:
        """Count the records to predict with a model that was trained on tabular files; values are not read.

        Text is read as in `open`, with whole numbers as the model reads them.

        Raises InputError if the files cannot be read, lack a column, or store one as another type.
        """
        preprocessing = schema.preprocessing
        assert preprocessing is not None, "a model that was trained on arrays reads files as arrays"
        names = [column.name for column in preprocessing.columns]
        keys = [key.name for key in preprocessing.keys]
        read = self._as_in_training(schema, preprocessing.raw_columns, needs_labels=False)
        if isinstance(read, DelimitedText | JsonLines):
            whole = [column.name for column in preprocessing.raw_columns if column.type == "int64"]
            as_numbers = dict.fromkeys(set(whole) - preprocessing.string_columns, "float64")  # fractions are allowed
            read = replace(read, types={**read.types, **as_numbers})
        given = replace(self, record_format=read)
        scan, known = given.scan(lambda known: [*names, *_there(keys, names, known)], schema)
        asked = frozenset([*names, *keys])
        index = count_records(
            self.files(schema),
            replace(read, types={name: raw for name, raw in read.types.items() if name in asked}),
            {column.name: column.type for column in scan.columns},
            on_progress=lambda done: on_progress(done, scan.num_bytes),
        )
        there = tuple(key for key in keys if key in known)
        _check_types(index, preprocessing.raw_columns)
        return IndexedRecords(index, there, _unused(known, scan, keys))

    def scan(
        self, chosen: Callable[[Sequence[str]], Sequence[str]], schema: InputSchema | None = None
    ) -> tuple[Scan, Mapping[str, str]]:
        """Return a scan of the columns `chosen` by name, and the types of all columns.

        Lists without a value have the type of training.
        """
        files = self.files(schema)
        learned = () if schema is None or schema.preprocessing is None else schema.preprocessing.raw_columns
        lists = {column.name: column.type for column in learned if "[" in column.type}
        most = self.max_columns + len(learned)  # the columns of training are allowed anyway
        look = Scan(files, replace(self.record_format, types={}), lists=lists, max_columns=most)
        known = {column.name: column.type for column in look.columns} | dict(look.unreadable)
        names = chosen(list(known))
        if faults := missing_faults(files[0].shown, "column", names, list(known)):
            raise InputError(tuple(faults + _header_hints(self.record_format, list(known))))
        asked = frozenset(names)
        types = {name: raw for name, raw in self.record_format.types.items() if name in asked}
        if self.invalid != "error" and not isinstance(self.record_format, JsonLines):
            numbers = [name for name, own in self.columns.items() if own.type == NUMBER and name in asked]
            types |= {name: "float64" for name in numbers if known[name] == "string"}  # even if few are numbers
        as_asked = replace(self.record_format, types=types)
        scan = Scan(files, as_asked, names, lists=lists, known=known, allows_invalid=True)
        return scan, known

    def known_columns(self, schema: InputSchema, *, needs_labels: bool) -> tuple[str, ...]:
        """Return the names of the columns of the files, for a model that was trained on tabular files.

        Raises InputError if the first file cannot be read.
        """
        assert schema.preprocessing is not None
        columns = schema.preprocessing.raw_columns
        read = self._as_in_training(schema, columns, needs_labels=needs_labels)
        return column_names(self.files(schema), replace(read, types={}), self.max_columns + len(columns))

    def _as_in_training(self, schema: InputSchema, columns: Sequence[RawColumn], *, needs_labels: bool) -> RecordFormat:
        """Return the format for some columns of the files, completed by the options of training."""
        preprocessing = schema.preprocessing
        assert preprocessing is not None
        unread_label = None if needs_labels or preprocessing.label is None else preprocessing.label.column.name
        keys = [key.name for key in preprocessing.keys]
        return as_in_training(
            self.record_format, self.stated, schema.text, columns, keys, unread_label, lambda: self.files(schema)[0]
        )

    def _asked(self, known: Sequence[str]) -> list[str]:
        """Return the columns that training reads, out of all columns."""
        apart = [*([] if self.label is None else [self.label.column]), *([] if self.weight is None else [self.weight])]
        if self.features is None:
            others = (*apart, *self.key_columns)
            return [*(name for name in known if name not in others and not PANDAS_INDEX.fullmatch(name)), *apart]
        return [*self.features, *apart]


def _listed(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths))


@dataclass(frozen=True, slots=True)
class IndexedRecords:
    """Counted records, with their key columns and the columns that are not read."""

    index: RecordIndex
    keys: tuple[str, ...]
    unused: tuple[str, ...]


def _check_types(index: RecordIndex, learned: Sequence[RawColumn]) -> None:
    """Refuse columns whose type cannot be that of training; one without values is float64."""
    found = {column.name: column.type for column in index.columns}
    if faults := [
        f"{index.files[0].shown}: column {column.name!r} is {found[column.name]}, expected {column.type} as in training"
        for column in learned
        if not fits(found[column.name], column.type) and found[column.name] != "float64"
    ]:
        raise InputError(tuple(faults))


def _there(keys: Sequence[str], names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the key columns of training that an input has and that are not read anyway."""
    return [key for key in keys if key in known and key not in names]


def _text_of(record_format: RecordFormat) -> TextReading | LibSvmReading | None:
    if isinstance(record_format, LibSvmText):
        return LibSvmReading(record_format.zero_based)
    if not isinstance(record_format, DelimitedText):
        return None
    names = record_format.column_names
    return TextReading(
        None if record_format.delimiter == record_format.usual_delimiter else record_format.delimiter,
        None if names is None else tuple(names),
        tuple(record_format.na_values),
        record_format.encoding,
    )


def _header_hints(record_format: RecordFormat, known: Sequence[str]) -> list[str]:
    """Return a hint if the first row probably has another delimiter, or is not a header."""
    if not isinstance(record_format, DelimitedText) or len(known) != 1:
        return []
    if (delimiter := likely_delimiter(known, record_format.delimiter)) is not None:
        return [f"the first row is one cell, {known[0]!r}: set delimiter to {delimiter!r}"]
    return [f"the first row is one cell, {known[0]!r}: it must name all columns; remove the lines above it"]


def _unused(known: Iterable[str], scan: Scan, keys: Sequence[str]) -> tuple[str, ...]:
    read = {*keys, *(column.name for column in scan.columns)}
    return tuple(name for name in known if name not in read)


def _check_label(label: Label | None, learned: Label | None, known: Iterable[str], where: str) -> None:
    """Refuse labels from another column than in training if that column is present."""
    if label is None or learned is None or label.column.name == learned.column.name:
        return
    if learned.column.name in known:
        expected = f"expected {learned.column.name!r} as in training; correct its label"
        raise InputError((f"{where}: the label is {label.column.name!r}, {expected}",))
