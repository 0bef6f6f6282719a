"""Descriptions of the input of workers that the job needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A feature column that a layer of a model reads."""

    layer: str
    name: str
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"column {self.name!r} of {self.layer}"

    def differences(self, other: ColumnSpec) -> Iterator[str]:
        """Return sentences on the differences of the facts of `other`."""
        mine, theirs = dict(self.facts), dict(other.facts)
        for fact in sorted(mine.keys() | theirs.keys()):
            expected, got = mine.get(fact, "none"), theirs.get(fact, "none")
            if expected != got:
                yield f"{self}: {fact} is {got}, expected {expected}"

    def to_facts(self) -> list[Any]:
        """Return the column as plain data."""
        return [self.layer, self.name, dict(self.facts)]

    @classmethod
    def from_facts(cls, facts: Sequence[Any]) -> Self:
        """Decode the result of `to_facts`; TypeError or ValueError if it is invalid."""
        layer, name, of_column = facts
        if not isinstance(of_column, Mapping):
            raise ValueError(f"expected the facts of column {name!r}, got {of_column!r}")
        return cls(str(layer), str(name), tuple((str(fact), str(value)) for fact, value in of_column.items()))


def column_differences(mine: Iterable[ColumnSpec], theirs: Iterable[ColumnSpec]) -> list[str]:
    """Return sentences on differences between the columns of a model: missing, new or changed ones."""
    ours, others = ({(spec.layer, spec.name): spec for spec in specs} for specs in (mine, theirs))
    lines = [f"{spec} is missing" for place, spec in ours.items() if place not in others]
    lines += [f"{spec} is new" for place, spec in others.items() if place not in ours]
    return lines + [line for place, spec in ours.items() if place in others for line in spec.differences(others[place])]


@dataclass(frozen=True, slots=True)
class TextReading:
    """How delimited text is read; see `psflow.ps_runtime.tabular_files.delimited.DelimitedText`.

    The delimiter is None for the default of the format (comma in CSV, tab in TSV): further files may have either
    format.
    """

    delimiter: str | None
    column_names: tuple[str, ...] | None
    na_values: tuple[str, ...]
    encoding: str


@dataclass(frozen=True, slots=True)
class LibSvmReading:
    """How libsvm text is read; see `psflow.ps_runtime.tabular_files.libsvm.LibSvmText`."""

    zero_based: bool


def text_from(facts: Mapping[str, Any]) -> TextReading | LibSvmReading:
    """Decode the result of `dataclasses.asdict` for either; KeyError, TypeError or ValueError if it is invalid."""
    if "zero_based" in facts:
        return LibSvmReading(bool(facts["zero_based"]))
    names = facts["column_names"]
    return TextReading(
        None if facts["delimiter"] is None else str(facts["delimiter"]),
        None if names is None else tuple(map(str, names)),
        tuple(map(str, facts["na_values"])),
        str(facts["encoding"]),
    )


MAX_EPOCHS = 2**32
"""Upper bound of the epochs of a replica: from here on the orders of epochs are those of the next replica."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The input of the workers."""

    num_records: int | None
    batch_size: int = 1
    num_epochs: int | None = 1
    split_batches: int = 8
    each_worker_reads_all: bool = False
    rows_per_record: int = 1

    @property
    def size(self) -> InputSize:
        """The unit and range of a position in the input: positions in an input of another size are invalid."""
        return InputSize(self.num_records, self.rows_per_record)

    @property
    def is_stream(self) -> bool:
        """Whether the input can only be read from its start, and not be split."""
        return self.num_records is None

    @property
    def has_one_reader(self) -> bool:
        """Whether a single reader with ps-0 distributes the batches: the replicas share a stream."""
        return self.is_stream and not self.each_worker_reads_all


class InputSize(NamedTuple):
    """Number of records per epoch, None for a stream, and of rows per record; see `InputSpec`."""

    num_records: int | None
    rows_per_record: int = 1

    def __str__(self) -> str:
        if self.num_records is None:
            return "a generator"
        number = f"{self.num_records:,}"
        return (
            f"{number} records" if self.rows_per_record == 1 else f"{number} batches of {self.rows_per_record:,} rows"
        )


class RecordRange(NamedTuple):
    """Records ``[start, stop)`` in the order of an epoch."""

    epoch: int
    start: int
    stop: int
