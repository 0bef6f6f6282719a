"""Options of columns and labels, as users set them: one set of keys for each column, and for the labels."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args

from psflow.ps_runtime.columns.plain_fields import keep_plain_fields
from psflow.ps_runtime.columns.row_lifetime import RowLifetime, lifetime_faults
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.keys import Key

MAX_VOCABULARY = 100_000
"""The maximum size of a vocabulary."""

MAX_QUANTILES = 10_000

MAX_NUMBER = 2**62 - 1
"""Maximum of `hash_buckets` and `embedding`: ids are int64, with one more for missing values. Tables may hold fewer."""

TypeOption = Literal["number", "string", "bool", "date", "timestamp", "int64", "float32", "float64"]
Normalization = Literal["standard", "min_max", "log1p"]
Statistic = Literal["mean", "median", "most_frequent"]
Combiner = Literal["sum", "mean", "sqrtn"]

MAX_VALUES = 10_000
"""The maximum number of values of a cell: each record has memory for as many as its column allows."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Buckets that hold about the same number of records of the training input.

    Parameters
    ----------
    quantiles : int
        Number of buckets, 2 to 10,000; there are fewer if many values are equal.
    """

    quantiles: Annotated[int, Key("Number of buckets.", ge=2, le=MAX_QUANTILES)] = 10

    def __post_init__(self) -> None:
        keep_plain_fields(self)
        if not 2 <= self.quantiles <= MAX_QUANTILES:
            raise UsageError((f"quantiles is {self.quantiles!r}, expected a whole number from 2 to {MAX_QUANTILES:,}",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """The preprocessing of one column. By default numbers stay numbers, and strings become ids of a learned vocabulary.

    Parameters
    ----------
    type : str, optional
        ``number`` or a type of `RawColumn`; default: the type in the file. A column of text is parsed. Dates as a
        ``number`` are days since 1970-01-01.
    normalize : {"standard", "min_max", "log1p"}, optional
        Subtract the mean and divide by the standard deviation; map the range to [0, 1]; or take ``log(1 + x)``.
    impute : {"mean", "median", "most_frequent"} or value, optional
        The replacement of missing values, applied first; default: missing values stay missing.
    indicator : bool
        Whether to add a feature ``<name>_is_missing``, which is 1 where the value is missing, else 0.
    vocabulary : "auto" or list of values or path, optional
        Strings or whole numbers become ids, their positions in a list: learned, by falling count; given; or read from
            a local file with one string per line.
    hash_buckets : int, optional
        Strings become the hash of their text modulo this number.
    num_ids : int, optional
        Whole numbers from 0 to ``num_ids - 1`` are ids already; other values are an error.
    buckets : list of numbers or "quantiles" or Quantiles, optional
        Numbers become the id of their interval. A number on an edge belongs to the interval above it.
    embedding : int, optional
        The size of the embedding vector of each id.
    max_values : int, optional
        The maximum number of values of a cell, each of which becomes an id: a list, or text with a `separator`.
    separator : str, optional
        The text between the values of a cell.
    weights : str, optional
        The column of the weights of the values: the same number of values in each cell, in the same form.
    combiner : {"sum", "mean", "sqrtn"}, optional
        How the vectors of several ids are combined; default: mean.
    admit_after, expire_after_steps : int
        See `RowLifetime`: when the rows of ids are created and when they expire.

    Raises
    ------
    UsageError
        Lists all keys with an invalid value, and those that contradict one another.
    """

    type: Annotated[
        TypeOption | None,
        Key("Type: number, string, bool, date, timestamp, or int64, float32, float64; null: as in the file."),
    ] = None
    normalize: Annotated[Normalization | None, Key("Scaling of numbers; null: none.")] = None
    impute: Annotated[
        Statistic | bool | int | float | str | None,
        Key("Replacement of missing values: mean, median, most_frequent or a value; null: none."),
    ] = None
    indicator: Annotated[bool, Key("Whether to add a feature <name>_is_missing: 1 where a value is missing.")] = False
    vocabulary: Annotated[
        str | os.PathLike[str] | Sequence[str | int | bool] | None,
        Key("Strings become ids: auto learns the vocabulary; or a list, or a file with one string per line."),
    ] = None
    hash_buckets: Annotated[int | None, Key("Strings are hashed to ids below this number.", ge=1)] = None
    num_ids: Annotated[int | None, Key("Whole numbers from 0 to num_ids - 1 are ids already.", ge=1)] = None
    buckets: Annotated[
        Sequence[float] | Literal["quantiles"] | Quantiles | None,
        Key("Numbers become ids of buckets: a list of edges, quantiles (ten), or {quantiles: N}."),
    ] = None
    embedding: Annotated[int | None, Key("Size of the embedding vector of each id.", ge=1)] = None
    max_values: Annotated[
        int | None, Key("Maximum number of values in a cell, which is a list, or text with a separator.", ge=1)
    ] = None
    separator: Annotated[str | None, Key("Text between the values of a cell, such as |; null: cells are lists.")] = None
    weights: Annotated[str | None, Key("Column of the weights of the values of each cell; null: 1 each.")] = None
    combiner: Annotated[
        Combiner | None, Key("How to combine the vectors of the values of a cell: sum, mean, sqrtn; null: mean.")
    ] = None
    admit_after: Annotated[
        int, Key("A row of a sparse table is created once this many pushes have touched it.", ge=1)
    ] = 1
    expire_after_steps: Annotated[
        int | None, Key("Steps without a push after which a row is removed; null: never.", ge=1)
    ] = None

    def __post_init__(self) -> None:
        keep_plain_fields(self)
        faults = tuple(self._value_faults()) or tuple(self._contradictions())
        if faults:
            raise UsageError(faults)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the keys that are set."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    @property
    def lifetime(self) -> RowLifetime:
        """The lifetime of the rows of its ids."""
        return RowLifetime(self.admit_after, self.expire_after_steps)

    @property
    def quantiles(self) -> int | None:
        """The number of buckets, if these are quantiles."""
        if self.buckets == "quantiles":
            return Quantiles().quantiles
        return self.buckets.quantiles if isinstance(self.buckets, Quantiles) else None

    @property
    def edges(self) -> tuple[float, ...] | None:
        """The edges of the buckets, if they are listed."""
        return tuple(map(float, self.buckets)) if isinstance(self.buckets, tuple) else None

    @property
    def words(self) -> tuple[str, ...] | None:
        """The vocabulary as text, if it is listed."""
        return tuple(map(as_text, self.vocabulary)) if isinstance(self.vocabulary, tuple) else None

    def _value_faults(self) -> Iterator[str]:
        yield from _choice_faults("type", self.type, get_args(TypeOption))
        yield from _choice_faults("normalize", self.normalize, get_args(Normalization))
        if isinstance(self.impute, int | float) and not _is_finite(self.impute):
            yield f"impute is {self.impute!r}, expected a finite number"
        for name in ("hash_buckets", "num_ids", "embedding"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_NUMBER:
                yield f"{name} is {value!r}, expected a whole number from 1 to {MAX_NUMBER:,}"
        yield from lifetime_faults(self.admit_after, self.expire_after_steps)
        yield from _choice_faults("combiner", self.combiner, get_args(Combiner))
        if self.max_values is not None and not 1 <= self.max_values <= MAX_VALUES:
            yield f"max_values is {self.max_values!r}, expected a whole number from 1 to {MAX_VALUES:,}"
        for name in ("separator", "weights"):
            if getattr(self, name) == "":
                yield f"{name} is '', expected {'a text such as |' if name == 'separator' else 'the name of a column'}"
        if not isinstance(self.vocabulary, str | None):
            yield from string_list_faults("vocabulary", self.vocabulary)
        elif self.vocabulary == "":
            yield "vocabulary is empty, expected auto, a list of strings or a path"
        if self.buckets is not None and self.buckets != "quantiles" and not isinstance(self.buckets, Quantiles):
            yield from _edge_faults(self.buckets)

    def _contradictions_of_many(self) -> Iterator[str]:
        if self.max_values is None:
            for name in ("separator", "weights", "combiner"):
                if getattr(self, name) is not None:
                    yield f"{name} applies to cells of several values; set max_values too"
            return
        if self.vocabulary is None and self.hash_buckets is None and self.num_ids is None:
            yield "the values of a cell become ids; set vocabulary, hash_buckets or num_ids beside max_values"
        for name in ("type", "normalize", "impute", "buckets"):
            if getattr(self, name) is not None:
                yield f"{name} and max_values contradict each other: it applies to cells of one value"
        if self.indicator:
            yield "indicator and max_values contradict each other: a cell may be empty"
        if self.combiner is not None and self.embedding is None:
            yield "combiner combines vectors; set embedding too"

    def _contradictions(self) -> Iterator[str]:
        yield from self._contradictions_of_many()
        ids = [name for name in ("vocabulary", "hash_buckets", "num_ids", "buckets") if getattr(self, name) is not None]
        if len(ids) > 1:
            yield f"{' and '.join(ids)} contradict each other: a column becomes ids in one way"
        if self.normalize is not None and ids:
            yield f"normalize and {ids[0]} contradict each other: ids are not scaled"
        if self.normalize is not None and self.embedding is not None:
            yield "normalize and embedding contradict each other: an embedding needs ids, which are not scaled"
        if self.normalize is not None and self.lifetime.is_limited:
            yield f"normalize and {self.lifetime} contradict each other: rows belong to ids, which are not scaled"
        if self.impute in ("mean", "median") and ids and ids[0] != "buckets":
            yield f"impute: {self.impute} is for numbers, not for {ids[0]}; use most_frequent or a string"
        if self.num_ids is not None and isinstance(self.impute, int | float) and not self._is_id(self.impute):
            yield f"impute is {self.impute!r}, expected an id from 0 to {self.num_ids - 1}"
        if self.words is not None and self.impute is not None and self.impute != "most_frequent":
            text = as_text(self.impute)
            if self.impute not in get_args(Statistic) and text not in self.words:
                yield f"impute is {text!r}, which is not in the vocabulary{did_you_mean(text, self.words)}"

    def _is_id(self, value: float) -> bool:
        return not isinstance(value, bool) and value == int(value) and 0 <= value < (self.num_ids or 0)


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The column of the labels, and their classes.

    Parameters
    ----------
    column : str
        Its name.
    classes : list or "auto", optional
        Strings or whole numbers whose labels are 0, 1, ... in this order. ``auto`` learns them, sorted as
        scikit-learn's LabelEncoder sorts them. Default: numbers are labels themselves, booleans are 0 and 1, and the
        classes of strings are learned.
    normalize : {"standard"}, optional
        Labels are returned unchanged, but a canned regressor trains on them standardized, and scales its predictions
        back.

    Raises
    ------
    UsageError
        If there is no class, or one occurs twice; if classes are to be normalized.
    """

    column: Annotated[str, Key("Column of the labels.")]
    classes: Annotated[
        Sequence[str | int | bool] | Literal["auto"] | None,
        Key("Classes in the order of their labels 0, 1, ...; auto: sorted; null: numbers stay, strings are sorted."),
    ] = None
    normalize: Annotated[
        Literal["standard"] | None,
        Key(
            "standard: a canned regressor trains on standardized labels, and scales its predictions back; "
            "null: labels are unchanged."
        ),
    ] = None

    def __post_init__(self) -> None:
        keep_plain_fields(self)
        if not self.column:
            raise UsageError(("column is '', expected the name of the column of the labels",))
        if faults := tuple(_choice_faults("normalize", self.normalize, ("standard",))):
            raise UsageError(faults)
        if self.normalize is not None and self.classes is not None:
            raise UsageError(("normalize and classes contradict each other: classes have no scale",))
        if self.classes is None or self.classes == "auto":
            return
        if faults := tuple(string_list_faults("classes", self.classes)):
            raise UsageError(faults)

    @property
    def words(self) -> tuple[str, ...] | None:
        """The classes as text, if they are listed."""
        return tuple(map(as_text, self.classes)) if isinstance(self.classes, tuple) else None


def as_text(value: str | float) -> str:
    """Return the text of a value as a column of strings has it.

    Examples
    --------
    >>> as_text("red"), as_text(7), as_text(7.0), as_text(True)
    ('red', '7', '7', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def string_list_faults(name: str, values: object) -> Iterator[str]:
    """Yield the faults of a list of strings."""
    if not isinstance(values, tuple):
        yield f"{name} is {values!r}, expected auto or a list of strings"
        return
    texts = list(map(as_text, values))
    if not texts:
        yield f"{name} is empty: expected at least one string"
    if len(texts) > MAX_VOCABULARY:
        yield f"{name} has {len(texts):,} strings, at most {MAX_VOCABULARY:,} are allowed; set hash_buckets instead"
    elif len(set(texts)) < len(texts):
        seen: set[str] = set()
        twice = next(text for text in texts if text in seen or seen.add(text))  # type: ignore[func-returns-value]
        yield f"{name} has {twice!r} twice"


def _choice_faults(name: str, value: object, choices: tuple[str, ...]) -> Iterator[str]:
    if value is not None and value not in choices:
        yield f"{name} is {value!r}, expected one of {', '.join(choices)}{did_you_mean(str(value), choices)}"


def _edge_faults(edges: Any) -> Iterator[str]:
    if not isinstance(edges, tuple):
        yield f"buckets is {edges!r}, expected a list of numbers, quantiles or {{quantiles: N}}"
    elif not edges:
        yield "buckets is empty: expected at least one edge"
    elif not all(map(_is_finite, edges)):
        yield f"buckets has {next(e for e in edges if not _is_finite(e))!r}, expected finite edges"
    elif late := [(a, b) for a, b in itertools.pairwise(edges) if not float(a) < float(b)]:
        yield f"buckets has {late[0][1]!r} after {late[0][0]!r}: expected ascending edges"


def _is_finite(number: float) -> bool:
    """Return whether a number, which may be an int, is finite as float64."""
    return abs(number) <= sys.float_info.max
