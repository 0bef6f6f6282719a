"""What feature columns mean, as plain data: weights that were learned of them fit no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["ColumnSpec", "column_differences"]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A feature column that a layer of a model reads."""

    layer: str
    name: str
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"column {self.name!r} of {self.layer}"

    def differences(self, other: ColumnSpec) -> Iterator[str]:
        """Say in sentences how the facts of `other` differ."""
        mine, theirs = dict(self.facts), dict(other.facts)
        for fact in sorted(mine.keys() | theirs.keys()):
            expected, got = mine.get(fact, "none"), theirs.get(fact, "none")
            if expected != got:
                yield f"{self}: {fact} is {got}, expected {expected}"

    def to_facts(self) -> list[Any]:
        """Return this as plain data."""
        return [self.layer, self.name, dict(self.facts)]

    @classmethod
    def from_facts(cls, facts: Sequence[Any]) -> Self:
        """Read what `to_facts` returned; TypeError or ValueError where it cannot be."""
        layer, name, of_column = facts
        if not isinstance(of_column, Mapping):
            raise ValueError(f"expected the facts of column {name!r}, got {of_column!r}")
        return cls(str(layer), str(name), tuple((str(fact), str(value)) for fact, value in of_column.items()))


def column_differences(mine: Iterable[ColumnSpec], theirs: Iterable[ColumnSpec]) -> list[str]:
    """Say in sentences how the columns of a model differ: which are missing or new, and which mean something else."""
    ours, others = ({(spec.layer, spec.name): spec for spec in specs} for specs in (mine, theirs))
    lines = [f"{spec} is missing" for place, spec in ours.items() if place not in others]
    lines += [f"{spec} is new" for place, spec in others.items() if place not in ours]
    return lines + [line for place, spec in ours.items() if place in others for line in spec.differences(others[place])]
