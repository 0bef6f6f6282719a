"""Checks the options of each column against its raw type, and decides the kind of its feature."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psflow.ps_runtime.columns.options import ColumnOptions, as_text, string_list_faults
from psflow.ps_runtime.columns.raw import RawColumn, is_list
from psflow.ps_runtime.columns.reading import NUMBERS, split_type
from psflow.ps_runtime.errors import UsageError, did_you_mean

NUMBER_OPTIONS = ("number", *NUMBERS)
DATES = ("date", "timestamp")
WHOLE = re.compile("0|-?[1-9][0-9]*")

SOURCES = {
    **dict.fromkeys(("number", "float32", "float64"), (*NUMBERS, "bool", "date", "timestamp", "string")),
    "int64": (*NUMBERS, "bool", "string"),
    "string": (*NUMBERS, "bool", "date", "timestamp", "string"),
    "bool": ("bool", "string"),
    "date": ("date", "timestamp", "string"),
    "timestamp": ("date", "timestamp", "string"),
}
"""The raw types that can be read as each type."""


class Becomes(enum.Enum):
    """The kind of feature that a column becomes."""

    NUMBER = enum.auto()
    ARRAY = enum.auto()
    VOCABULARY_IDS = enum.auto()
    HASH_IDS = enum.auto()
    IDENTITY_IDS = enum.auto()
    BUCKET_IDS = enum.auto()
    VALUE_WEIGHTS = enum.auto()

    @property
    def is_string(self) -> bool:
        """Whether its values are handled as strings, even if they are numbers."""
        return self in (Becomes.VOCABULARY_IDS, Becomes.HASH_IDS)

    @property
    def is_id(self) -> bool:
        """Whether its values become ids."""
        return self in (Becomes.VOCABULARY_IDS, Becomes.HASH_IDS, Becomes.IDENTITY_IDS, Becomes.BUCKET_IDS)


@dataclass(frozen=True, slots=True)
class Intent:
    """The kind of feature of one column, with its options."""

    raw: RawColumn
    read_as: str
    becomes: Becomes
    options: ColumnOptions
    vocabulary: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.raw.name

    @property
    def is_many(self) -> bool:
        """Whether a cell has several values."""
        return self.options.max_values is not None

    @property
    def is_one_id(self) -> bool:
        """Whether a record has exactly one id, so the feature may be crossed."""
        return self.becomes.is_id and not self.is_many

    @property
    def needs_quantiles(self) -> bool:
        """Whether a sample of its numbers is needed."""
        return self.options.quantiles is not None or (not self.becomes.is_string and self.options.impute == "median")

    @property
    def needs_moments(self) -> bool:
        """Whether the mean, or the standard deviation, of its numbers is needed."""
        return self.options.normalize == "standard" or (not self.becomes.is_string and self.options.impute == "mean")

    @property
    def needs_counts(self) -> bool:
        """Whether the count of each of its values is needed."""
        learns_strings = self.becomes is Becomes.VOCABULARY_IDS and self.vocabulary is None
        return learns_strings or self.options.impute == "most_frequent"

    @property
    def needs_anything(self) -> bool:
        """Whether anything is to be learned from its values."""
        learns_range = self.options.normalize == "min_max"
        return learns_range or self.needs_quantiles or self.needs_moments or self.needs_counts


def intend(columns: Sequence[RawColumn], options: Mapping[str, ColumnOptions]) -> tuple[Intent, ...]:
    """Return the intent of each column.

    Raises
    ------
    UsageError
        Lists all faults: options for unknown columns, and options that do not suit the type of a column.
    """
    names = dict.fromkeys(column.name for column in columns)
    plain = ColumnOptions()
    faults = [
        f"columns has options for {name!r}, which is not a feature column{did_you_mean(name, names)}"
        for name in options
        if name not in names
    ]
    weighed = {own.weights: own for own in options.values() if own.weights is not None}
    faults += [
        f"columns.{name} has weights {own.weights!r}, which is not a feature column{fault}"
        for name, own in options.items()
        if own.weights is not None and (fault := _weights_fault(own, names, options)) is not None
    ]
    intents = []
    for column in columns:
        try:
            if column.name in weighed:
                intents.append(_weights_intent(column, weighed[column.name]))
            else:
                intents.append(_intent(column, options.get(column.name, plain)))
        except UsageError as error:
            faults += [f"column {column.name!r} ({column.type}): {fault}" for fault in error.faults]
    if faults:
        raise UsageError(tuple(faults))
    return tuple(intents)


def _weights_fault(own: ColumnOptions, names: Collection[str], options: Mapping[str, ColumnOptions]) -> str | None:
    """Return why a column cannot hold the weights of another column's values; None if it can."""
    if own.weights not in names:
        return did_you_mean(str(own.weights), names)
    if own.weights in options:
        return " of its own: it has options; leave them out"
    if sum(other.weights == own.weights for other in options.values()) > 1:
        return " of its own: two columns name it"
    return None


def _weights_intent(raw: RawColumn, weighed: ColumnOptions) -> Intent:
    """Return the intent of a column of weights, whose cells have the form of the weighed ones."""
    if (fault := _many_fault(raw.type, weighed, NUMBERS)) is not None:
        raise UsageError((fault,))
    return Intent(raw, "float64[]", Becomes.VALUE_WEIGHTS, weighed)


def _many_intent(raw: RawColumn, options: ColumnOptions) -> Intent:
    becomes = _becomes(options, is_number=False, type_="string")
    if (fault := _many_fault(raw.type, options, ("int64", "string") if becomes.is_string else ("int64",))) is not None:
        raise UsageError((fault,))
    return Intent(raw, "string[]" if becomes.is_string else "int64[]", becomes, options, _vocabulary(options))


def _many_fault(raw_type: str, options: ColumnOptions, of_each: Sequence[str]) -> str | None:
    """Return why the cells of a column cannot have several values; None if they can."""
    if options.separator is not None:
        return None if raw_type == "string" else f"separator is for text, but the column is {raw_type}"
    element, is_list, _ = raw_type.partition("[")
    if is_list and element in of_each:
        return None
    lists = " or ".join(f"{kind}[]" for kind in of_each)
    return f"max_values is for lists, {lists}, but the column is {raw_type}; set separator if its cells are text"


def _intent(raw: RawColumn, options: ColumnOptions) -> Intent:
    if options.max_values is not None:
        return _many_intent(raw, options)
    if is_list(raw):
        raise UsageError(("a cell is a list; set max_values and vocabulary, hash_buckets or num_ids, or leave it out",))
    scalar, length = split_type(raw.type)
    if length is not None:
        return _array_intent(raw, scalar, options)
    asked = options.type
    if asked is not None and scalar not in SOURCES[asked]:
        raise UsageError((f"cannot be read as {asked}, expected one of {', '.join(SOURCES[asked])}",))
    is_number = asked in NUMBER_OPTIONS or (asked is None and scalar in NUMBERS)
    becomes = _becomes(options, is_number, scalar if asked is None else asked)
    if faults := tuple(_faults(options, becomes, is_number, scalar)):
        raise UsageError(faults)
    vocabulary = _vocabulary(options)
    if (
        vocabulary is not None
        and (strange := _unmatched_string(vocabulary, scalar if asked is None else asked)) is not None
    ):
        raise UsageError(
            (f"vocabulary has {strange!r}, which is not a value of such a column; set type: string if it has strings",)
        )
    return Intent(raw, _read_as(scalar, asked), becomes, options, vocabulary)


def _unmatched_string(vocabulary: Sequence[str], type_: str) -> str | None:
    """Return the first string that is not a value of the type: a decimal integer, ``true`` or ``false``."""
    if type_ == "bool":
        return next((string for string in vocabulary if string not in ("true", "false")), None)
    if type_ in NUMBER_OPTIONS:
        return next((string for string in vocabulary if WHOLE.fullmatch(string) is None), None)
    return None


def _array_intent(raw: RawColumn, scalar: str, options: ColumnOptions) -> Intent:
    if options.keys:
        raise UsageError((f"{', '.join(options.keys)} cannot be set for a column of arrays",))
    if scalar not in (*NUMBERS, "bool"):
        raise UsageError(("only arrays of numbers or booleans can be features; leave the column out",))
    return Intent(raw, raw.type, Becomes.ARRAY, options)


def _read_as(scalar: str, asked: str | None) -> str:
    """Return the type that values are converted to; booleans and dates become numbers later."""
    if asked is not None and asked not in ("number", "float32", "float64"):
        return asked
    return "float64" if scalar in NUMBERS or (scalar == "string" and asked is not None) else scalar


def _becomes(options: ColumnOptions, is_number: bool, type_: str) -> Becomes:
    if options.vocabulary is not None:
        return Becomes.VOCABULARY_IDS
    if options.hash_buckets is not None:
        return Becomes.HASH_IDS
    if options.num_ids is not None:
        return Becomes.IDENTITY_IDS
    if options.buckets is not None:
        return Becomes.BUCKET_IDS
    return Becomes.NUMBER if is_number or type_ in DATES else Becomes.VOCABULARY_IDS


def _faults(options: ColumnOptions, becomes: Becomes, is_number: bool, scalar: str) -> Iterator[str]:
    is_date = (scalar if options.type is None else options.type) in DATES
    if options.normalize is not None and not (is_number or is_date):
        yield "normalize is for numbers; set type: number if these are numbers"
    if becomes is Becomes.BUCKET_IDS and not (is_number or is_date):
        yield "buckets are for numbers; set vocabulary or hash_buckets, or type: number if these are numbers"
    if becomes is Becomes.IDENTITY_IDS and not is_number:
        yield "num_ids is for whole numbers; set vocabulary or hash_buckets, or type: number if these are numbers"
    if is_date and becomes is Becomes.NUMBER and options.normalize is None:
        yield (
            "dates need a type: set normalize, buckets or type: number for days since 1970-01-01, or type: string, "
            "vocabulary or hash_buckets for categories; or leave the column out"
        )
    if becomes is Becomes.NUMBER and options.embedding is not None:
        yield "an embedding needs ids; set vocabulary, hash_buckets, num_ids or buckets too"
    if becomes is Becomes.NUMBER and options.lifetime.is_limited:
        yield f"{options.lifetime} applies to rows of ids; set vocabulary, hash_buckets, num_ids or buckets too"
    yield from _impute_faults(options.impute, becomes)


def _impute_faults(impute: bool | int | float | str | None, becomes: Becomes) -> Iterator[str]:
    if becomes.is_string:
        if impute in ("mean", "median"):
            yield f"impute: {impute} is for numbers; use most_frequent or a string"
        elif isinstance(impute, float) and not impute.is_integer():
            yield f"impute is {impute!r}, expected a string or a whole number"
    elif isinstance(impute, bool) or (isinstance(impute, str) and impute not in ("mean", "median", "most_frequent")):
        yield f"impute is {impute!r}, expected mean, median, most_frequent or a number"


def _vocabulary(options: ColumnOptions) -> tuple[str, ...] | None:
    """Return the given vocabulary, which is read from a file if the option is a path."""
    if not isinstance(options.vocabulary, str) or options.vocabulary == "auto":
        return options.words
    path = options.vocabulary
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = tuple(file.read().removesuffix("\n").split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            (f"the vocabulary {path!r} cannot be read ({error}): expected auto or a local file",)
        ) from None
    if "" in lines:
        raise UsageError(
            (f"the vocabulary {path!r} has an empty line {lines.index('') + 1}: expected one string per line",)
        )
    faults = list(string_list_faults(f"the vocabulary {path!r}", lines))
    if (
        options.impute is not None
        and options.impute != "most_frequent"
        and (string := as_text(options.impute)) not in lines
    ):
        faults.append(f"impute is {string!r}, which is not in the vocabulary {path!r}{did_you_mean(string, lines)}")
    if faults:
        raise UsageError(tuple(faults))
    return lines
