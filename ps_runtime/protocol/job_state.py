"""Where a job stands, as a new life of the chief learns it from ps-0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from psflow.ps_runtime.protocol.cut import Cut

__all__ = ["JobState"]


@dataclass(frozen=True, slots=True)
class JobState:
    """What the chief must know to go on with a job."""

    is_open: bool
    is_finished: bool
    uncommitted: Cut | None = None

    def to_facts(self) -> dict[str, Any]:
        """Return the state as plain data."""
        cut = None if self.uncommitted is None else self.uncommitted.to_facts()
        return {"is_open": self.is_open, "is_finished": self.is_finished, "uncommitted": cut}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_facts` wrote; ValueError where it cannot be."""
        try:
            is_open, is_finished, cut = facts["is_open"], facts["is_finished"], facts["uncommitted"]
        except KeyError as error:
            raise ValueError(f"not the state of a job: it has no {error}") from error
        if type(is_open) is not bool or type(is_finished) is not bool:
            raise ValueError(f"not the state of a job: expected true or false, got {is_open!r} and {is_finished!r}")
        return cls(is_open, is_finished, None if cut is None else Cut.from_facts(cut))
