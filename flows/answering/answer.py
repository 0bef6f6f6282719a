"""What a command answers, if it is more than facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command."""

    facts: Mapping[str, Any]
    lines: Sequence[str] | None = None
    exit_code: int = 0
    has_password: bool = False
