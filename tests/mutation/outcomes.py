"""What became of a mutant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Mutant:
    """A change in one place: the line that stood there, and the line that replaces it (empty if none does)."""

    module: str
    was: str
    becomes: str


@dataclass(frozen=True)
class Outcome:
    """A mutant of `room` that was tried: whether a test failed, or the tests did not end in time.

    The latter counts as killed; on a machine that is busy with other work it may be a mistake.
    """

    room: str
    mutant: Mutant
    is_killed: bool
    has_timed_out: bool = False
