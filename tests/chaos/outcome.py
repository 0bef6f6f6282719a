"""What came of a trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.trials import Trial

LIMIT_SECS = 600.0
"""For a job, or for a part of it; one takes 2 s where the machine has nothing else to do."""


@dataclass
class Outcome:
    """What came of a trial."""

    trial: Trial
    has_hit: bool = False
    """Whether the fault hit its phase."""
    num_kills: int = 0
    recovery_secs: list[float] = field(default_factory=list)
    """From the kill until a new life worked."""
    num_lost_steps: int = 0
    """That were made, and made once more from a checkpoint."""
    violations: list[str] = field(default_factory=list)


class LateError(Exception):
    """A job does not come to its end."""


def limited(look: Callable[[], None]) -> Callable[[], None]:
    """Return what calls `look`, and raises a LateError once a job has taken too long."""
    deadline = time.monotonic() + LIMIT_SECS

    def check() -> None:
        if time.monotonic() >= deadline:
            raise LateError(f"the job did not end within {LIMIT_SECS:g} s")
        look()

    return check
