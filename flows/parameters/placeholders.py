"""Paths that differ from run to run: ``{scheduled_time}`` in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["check_placeholders", "filled"]

SCHEDULED_TIME = "{scheduled_time}"


def check_placeholders(path: str) -> None:
    """Raise ValueError if `path` has braces that stand for nothing."""
    unknown = re.findall(r"\{[^}]*\}?|\}", path.replace(SCHEDULED_TIME, ""))
    if unknown:
        raise ValueError(f"unknown placeholder {unknown[0]!r}, expected {SCHEDULED_TIME} or none")


def filled(path: str, scheduled_time: datetime) -> str:
    """Return `path` with the time in it, in UTC, to the second.

    Examples
    --------
    >>> filled("runs/digits/{scheduled_time}", datetime(2026, 11, 21, 3, 0, tzinfo=UTC))
    'runs/digits/20261121T030000Z'
    """
    return path.replace(SCHEDULED_TIME, scheduled_time.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"))
