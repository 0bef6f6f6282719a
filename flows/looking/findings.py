"""What an examination finds: well, worth a warning, or a fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level"]


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `text` says what to do unless all is well."""

    level: Level
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<8} {self.topic:<8} {self.text}"
