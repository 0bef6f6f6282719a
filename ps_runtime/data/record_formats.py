"""The formats of tabular files as a configuration names them: CSV, TSV, Parquet, Arrow, JSON lines, libsvm."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from psflow.ps_runtime.columns.crossing import CrossOptions
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.plain_fields import keep_plain_fields
from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.invalid_cells import INVALID, INVALID_POLICIES, Invalid
from psflow.ps_runtime.data.non_finite import policy_faults
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.tabular_files.arrow_file import ArrowFile
from psflow.ps_runtime.tabular_files.base import NUMBER, RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.libsvm import LibSvmText
from psflow.ps_runtime.tabular_files.libsvm_lines import FEATURES, LABEL
from psflow.ps_runtime.tabular_files.parquet import MAX_COMPRESSION_RATIO, Parquet
from psflow.ps_runtime.tabular_files.scan import MAX_COLUMNS

TEXT_OPTIONS = ("delimiter", "column_names", "na_values", "encoding")


@dataclass(frozen=True, kw_only=True)
class TabularFiles(Format):
    """Files of records with named columns."""

    suffixes: ClassVar[tuple[str, ...]] = ()

    path: Annotated[
        str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        Key("File, folder, glob or fsspec URL, or a list of these."),
    ] = field(kw_only=False)
    label: Annotated[
        str | LabelOptions | None, Key("Column of the labels, or the column and its classes; null: there are none.")
    ] = None
    weight: Annotated[str | None, Key("Column of the weights of the records; it is a feature of that name.")] = None
    key_columns: Annotated[Sequence[str], Key("Columns that name a record; training ignores them.")] = ()
    features: Annotated[Sequence[str] | None, Key("Columns that are features; null: all without another purpose.")] = (
        None
    )
    columns: Annotated[Mapping[str, ColumnOptions], Key("Preprocessing of each column, by name.")] = field(
        default_factory=dict
    )
    groups: Annotated[
        Mapping[str, Sequence[str] | Literal["numeric"]],
        Key("Columns that become one matrix, by the name of the matrix; numeric: all numbers in no other group."),
    ] = field(default_factory=dict)
    crosses: Annotated[
        Mapping[str, CrossOptions], Key("Features made of the combinations of ids of other features, by name.")
    ] = field(default_factory=dict)
    part: Annotated[
        Sequence[float] | None,
        Key(
            "Part of the records, by a hash of their number: [0, 0.9] are nine of ten, [0.9, 1] the others; null: all."
        ),
    ] = None

    invalid: Annotated[Invalid, Key(INVALID)] = "error"
    max_columns: Annotated[
        int, Key("Maximum number of columns of a file, besides those that the model was trained on.", ge=1)
    ] = MAX_COLUMNS

    def __post_init__(self) -> None:
        keep_plain_fields(self)
        if not all(self.path if isinstance(self.path, tuple) else (self.path,)) or not self.path:
            raise UsageError((f"path is {self.path!r}, expected a file, a folder, a glob or a list of these",))
        if faults := (
            *_faults_of_names(self),
            *_faults_of_groups(self.groups),
            *policy_faults("invalid", self.invalid, INVALID_POLICIES),
        ):
            raise UsageError(faults)
        self._input_part()
        self.record_format()

    def _input_part(self) -> InputPart | None:
        if self.part is None:
            return None
        if len(self.part) != 2:
            raise UsageError((f"part is {list(self.part)!r}, expected two numbers, such as [0, 0.9]",))
        return InputPart(*self.part)

    def read(self) -> RecordInput:
        """Return the files, which are opened once it is known what a model reads of them."""
        label = LabelOptions(self.label) if isinstance(self.label, str) else self.label
        return RecordInput(
            paths=self.path,
            record_format=self.record_format(),
            label=label,
            weight=self.weight,
            key_columns=self.key_columns,
            features=self.features,
            columns=self.columns,
            groups=self.groups,
            crosses=self.crosses,
            part=self._input_part(),
            invalid=self.invalid,
            max_columns=self.max_columns,
            stated=self.stated,
        )

    @classmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return only the files: the model determines the columns that it reads."""
        return cls(path=location)

    @property
    def stated(self) -> frozenset[str]:
        """The text options that are set here and override those of training."""
        return frozenset()

    @abstractmethod
    def record_format(self) -> RecordFormat:
        """Return the format with which to read the files."""

    @property
    def types(self) -> dict[str, str]:
        """The types that are set, by column; a ``number`` is read by its stored type, such as date, then converted.

        Cells of several values, and of their weights, are text.
        """
        set_types: dict[str, str] = {
            name: options.type for name, options in self.columns.items() if options.type is not None
        }
        for name, options in self.columns.items():
            if options.separator is not None:
                set_types |= dict.fromkeys([name] if options.weights is None else [name, options.weights], "string")
        return {name: raw for name, raw in set_types.items() if raw != NUMBER}


def _faults_of_names(files: TabularFiles) -> Iterator[str]:
    """Yield the columns that are named twice, or not at all."""
    label = files.label.column if isinstance(files.label, LabelOptions) else files.label
    named = [] if label is None else [("label", label)]
    named += [] if files.weight is None else [("weight", files.weight)]
    named += [("key_columns", name) for name in files.key_columns]
    named += [("features", name) for name in files.features or ()]
    if files.features == ():
        yield "features is empty, expected at least one column; leave it out for all columns without another purpose"
    keys: dict[str, list[str]] = {}
    for key, name in named:
        keys.setdefault(name, []).append(key)
    for name, found in keys.items():
        if len(found) > 1:
            yield f"column {name!r} is named by {' and '.join(found)}: name it once"
    named += [(key, name) for key in ("columns", "groups", "crosses") for name in getattr(files, key)]
    named += [(f"groups[{group!r}]", name) for group, members in files.groups.items() for name in members]
    for key in dict.fromkeys(key for key, name in named if not name):
        yield f"{key} names '', expected the name of a column"


def _faults_of_groups(groups: Mapping[str, Sequence[str] | Literal["numeric"]]) -> Iterator[str]:
    for name, members in groups.items():
        if isinstance(members, str) and members != "numeric":
            yield f"groups[{name!r}] is {members!r}, expected 'numeric' or a list of texts, such as [{members!r}]"


@dataclass(frozen=True, kw_only=True)
class Csv(TabularFiles):
    """Text whose cells are separated by commas, and whose first row names the columns."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    usual_delimiter: ClassVar[Literal[",", "\t"]] = ","

    delimiter: Annotated[
        str | None, Key("Delimiter of cells, one character; null: as in training, else a comma in csv, a tab in tsv.")
    ] = None
    column_names: Annotated[
        Sequence[str] | None,
        Key("Names of the columns if the first row does not name them; null: as in training, else the first row."),
    ] = None
    na_values: Annotated[
        Sequence[str] | None,
        Key("Missing values, besides empty cells; null: as in training, else NA, N/A, NaN, nan, null, NULL."),
    ] = None
    encoding: Annotated[
        str | None,
        Key("utf-8, or one with one byte per character, such as latin-1; null: as in training, else utf-8."),
    ] = None

    def record_format(self) -> RecordFormat:
        """Return the format with which to read the files, unless training determines more."""
        given = {name: getattr(self, name) for name in TEXT_OPTIONS if getattr(self, name) is not None}
        usual = self.usual_delimiter
        return DelimitedText(types=self.types, usual_delimiter=usual, **({"delimiter": usual} | given))

    @property
    def stated(self) -> frozenset[str]:
        """The text options that are set here and override those of training."""
        return frozenset(name for name in TEXT_OPTIONS if getattr(self, name) is not None)


@dataclass(frozen=True, kw_only=True)
class Tsv(Csv):
    """Text whose cells are separated by tabs, and whose first row names the columns."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv",)
    usual_delimiter: ClassVar[Literal[",", "\t"]] = "\t"

    @property
    def stated(self) -> frozenset[str]:
        """The text options that override those of training, the tab included."""
        return super().stated | {"delimiter"}


@dataclass(frozen=True, kw_only=True)
class ParquetInput(TabularFiles):
    """Parquet files."""

    suffixes: ClassVar[tuple[str, ...]] = Parquet.suffixes

    max_compression_ratio: Annotated[
        int,
        Key("Maximum ratio of the values in memory to the size of a file, for values of more than 1 GB.", ge=1),
    ] = MAX_COMPRESSION_RATIO

    def record_format(self) -> RecordFormat:
        """Return the format with which to read the files."""
        return Parquet(types=self.types, max_compression_ratio=self.max_compression_ratio)


@dataclass(frozen=True, kw_only=True)
class ArrowInput(TabularFiles):
    """Files of Arrow's IPC format, such as Feather."""

    suffixes: ClassVar[tuple[str, ...]] = ArrowFile.suffixes

    def record_format(self) -> RecordFormat:
        """Return the format with which to read the files."""
        return ArrowFile(types=self.types)


@dataclass(frozen=True, kw_only=True)
class JsonLinesInput(TabularFiles):
    """Text with a JSON object in each line."""

    suffixes: ClassVar[tuple[str, ...]] = JsonLines.suffixes

    def record_format(self) -> RecordFormat:
        """Return the format with which to read the files."""
        return JsonLines(types=self.types)


@dataclass(frozen=True, kw_only=True)
class LibSvm(TabularFiles):
    """Text with a label and pairs of index and value in each line; its columns are ``label`` and ``features``."""

    suffixes: ClassVar[tuple[str, ...]] = LibSvmText.suffixes

    label: Annotated[
        str | LabelOptions | None,
        Key("The column label, or {column: label, classes: [-1, 1]}; null: the labels are not read."),
    ] = LABEL
    features: Annotated[Sequence[str] | None, Key("The array of each record.")] = (FEATURES,)
    num_features: Annotated[
        int | None,
        Key("Length of the array; null: as in training, else by the largest index of the first file.", ge=1),
    ] = None
    zero_based: Annotated[
        bool | None, Key("Whether the first feature has the index 0; null: as in training, else it has the index 1.")
    ] = None

    def record_format(self) -> RecordFormat:
        """Return the format with which to read the files, unless training determines more."""
        zero_based = False if self.zero_based is None else self.zero_based
        return LibSvmText(types=self.types, num_features=self.num_features, zero_based=zero_based)

    @property
    def stated(self) -> frozenset[str]:
        """The options that are set here and override those of training."""
        return frozenset() if self.zero_based is None else frozenset({"zero_based"})
