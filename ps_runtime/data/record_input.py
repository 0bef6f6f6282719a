"""Record files as somebody describes them, who has not opened them yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.data.input_scan import scan_input
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.record_dataset import Batching, RecordDataset
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.record_files.base import RecordFormat
from psflow.ps_runtime.record_files.delimited import DelimitedText
from psflow.ps_runtime.record_files.json_lines import JsonLines
from psflow.ps_runtime.record_files.listing import list_files
from psflow.ps_runtime.record_files.scan import Scan, unreadable_fault
from psflow.ps_runtime.specs.schema_enforcement import missing_faults

__all__ = ["RecordInput"]

SAMPLE_SEED = 0
"""Of the samples of which medians and quantiles are learned."""
NOTHING_LEARNED: Mapping[str, str] = MappingProxyType({})


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
        keys = [RawColumn(name, known[name]) for name in self.key_columns]
        try:
            learner = Learner(
                [*scan.columns, *keys],
                self.columns,
                self.groups,
                SAMPLE_SEED,
                label=self.label,
                weight=self.weight,
                keys=self.key_columns,
            )
        except UsageError as error:
            raise InputError(tuple(f"{where}: {fault}" for fault in error.faults)) from None
        filled = [name for name, options in self.columns.items() if options.impute is not None]
        found = scan_input(
            scan, filled, non_finite, where, label=None if self.label is None else self.label.column, learner=learner
        )
        return RecordDataset(
            found,
            learner.finish(),
            self.batching,
            _unused(known, scan, self.key_columns),
            drops=non_finite == "drop",
        )

    def open(
        self, preprocessing: Preprocessing, non_finite: NonFinite, where: str, *, needs_labels: bool
    ) -> RecordDataset:
        """Open a further input of a model that has learned `preprocessing`.

        Raises
        ------
        InputError
            If the files cannot be read, lack a column, or have one of another type; or for a cell that `non_finite`
            refuses.
        """
        label = preprocessing.label if needs_labels else None
        if label is not None and self.label is not None:
            label = label.named(self.label.column)
        weight = preprocessing.weight if needs_labels else None
        apart = (None if label is None else label.column, weight)
        columns = [*preprocessing.raw_columns, *(column.raw for column in apart if column is not None)]
        names = [column.name for column in columns]
        scan, known = self.scan(lambda _: names, _types_of_text(columns))
        _check_label(label, preprocessing.label, known, where)
        found = scan_input(
            scan,
            preprocessing.filled_columns,
            non_finite,
            where,
            label=None if label is None else label.column.name,
        )
        return RecordDataset(
            found,
            replace(preprocessing, label=label, weight=weight),
            self.batching,
            _unused(known, scan, [*self.key_columns, *(key.name for key in preprocessing.keys)]),
            drops=non_finite == "drop",
        )

    def scan(
        self, chosen: Callable[[Sequence[str]], Sequence[str]], learned: Mapping[str, str] = NOTHING_LEARNED
    ) -> tuple[Scan, dict[str, str]]:
        """Return a scan of the columns that are `chosen`, and the names of all that there are, with their types.

        Text is parsed as of the types that training has `learned`: none are inferred anew, where a zip code would
        become a number.
        """
        files = list_files(self.paths, self.record_format.suffixes)
        look = Scan(files, self.record_format)
        known = {column.name: column.type for column in look.columns} | look.unreadable
        names = chosen(list(known))
        if faults := missing_faults(files[0].shown, "column", [*names, *self.key_columns], list(known)):
            raise InputError(tuple(faults))
        if strange := [name for name in self.key_columns if name in look.unreadable]:
            raise InputError(tuple(unreadable_fault(files[0].shown, name, known[name]) for name in strange))
        record_format = self.record_format
        if isinstance(record_format, DelimitedText | JsonLines):
            record_format = replace(record_format, types={**record_format.types, **learned})
        return Scan(files, record_format, names), known

    def _asked(self, known: Sequence[str]) -> list[str]:
        """Return the columns that training reads, out of all that there are."""
        apart = [*([] if self.label is None else [self.label.column]), *([] if self.weight is None else [self.weight])]
        if self.features is None:
            return [*(name for name in known if name not in (*apart, *self.key_columns)), *apart]
        return [*self.features, *apart]


def _unused(known: Iterable[str], scan: Scan, keys: Sequence[str]) -> tuple[str, ...]:
    read = {*keys, *(column.name for column in scan.columns)}
    return tuple(name for name in known if name not in read)


def _types_of_text(columns: Sequence[RawColumn]) -> dict[str, str]:
    """Return the types as which the cells of columns are parsed; whole numbers may have fractions in a further file."""
    return {column.name: column.type for column in columns if column.type in TYPES and column.type != "int64"}


def _check_label(label: Label | None, learned: Label | None, known: Collection[str], where: str) -> None:
    """Refuse labels from another column than in training, if that one is there."""
    if label is None or learned is None or label.column.name == learned.column.name:
        return
    if learned.column.name in known:
        expected = f"expected {learned.column.name!r} as in training; correct its label"
        raise InputError((f"{where}: the label is {label.column.name!r}, {expected}",))
