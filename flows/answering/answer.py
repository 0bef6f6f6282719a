"""What a command answers, if it is more than facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command.

    Parameters
    ----------
    facts : mapping
        Plain data: what is printed with ``--json``.
    lines : sequence of str or None
        What people read; None: a line for each fact.
    exit_code : int
        Other than 0 if the answer is bad news.
    has_password : bool
        Whether a password is what was asked for; else credentials are left out.
    """

    facts: Mapping[str, Any]
    lines: Sequence[str] | None = None
    exit_code: int = 0
    has_password: bool = False
