"""The lifetime of the rows of sparse tables: when they are created, and when they expire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

MAX_COUNT = 2**62


@dataclass(frozen=True, slots=True)
class RowLifetime:
    """The lifetime of the rows of the ids of a feature, in each sparse table that it has.

    Examples
    --------
    >>> str(RowLifetime(admit_after=3, expire_after_steps=100_000))
    'admit_after 3, expire_after_steps 100000'
    >>> str(RowLifetime())
    ''
    """

    admit_after: int = 1
    expire_after_steps: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether rows are created later than with their first push, or expire."""
        return self.admit_after > 1 or self.expire_after_steps is not None

    def __str__(self) -> str:
        admission = f"admit_after {self.admit_after}" if self.admit_after > 1 else ""
        expiry = "" if self.expire_after_steps is None else f"expire_after_steps {self.expire_after_steps}"
        return ", ".join(filter(None, (admission, expiry)))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Read the result of `dataclasses.asdict`; KeyError, TypeError or ValueError if it is invalid."""
        expiry = facts["expire_after_steps"]
        made = cls(int(facts["admit_after"]), None if expiry is None else int(expiry))
        if faults := list(lifetime_faults(made.admit_after, made.expire_after_steps)):
            raise ValueError("; ".join(faults))
        return made


UNLIMITED = RowLifetime()
"""Rows exist from the first push on, forever."""


def lifetime_faults(admit_after: object, expire_after_steps: object) -> Iterator[str]:
    """Yield the faults of the two values of a `RowLifetime`."""
    for name, value in (("admit_after", admit_after), ("expire_after_steps", expire_after_steps)):
        is_left_out = name == "expire_after_steps" and value is None
        is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value < MAX_COUNT
        if not is_left_out and not is_count:
            yield f"{name} is {value!r}, expected a whole number >= 1, below 2**62"
