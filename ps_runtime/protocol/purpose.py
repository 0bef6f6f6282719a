"""What a connection is for: each says so in its HELLO."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Purpose"]


class Purpose(StrEnum):
    """What a connection is for."""

    TRAIN = "train"
    SAVE = "save"
    WATCH = "watch"
