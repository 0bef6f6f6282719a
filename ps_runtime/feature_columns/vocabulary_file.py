"""Reads vocabularies from text files with one string per line."""

from __future__ import annotations

import fsspec

from psflow.ps_runtime.errors import InputError, UsageError


def read_vocabulary(path: str, size: int) -> list[str]:
    """Return the first `size` lines of a text file, -1: all. Blocks.

    Raises
    ------
    UsageError
        If it cannot be read.
    InputError
        If it has fewer lines, or repeats a string; names the line.
    """
    try:
        with fsspec.open(path, "rt", encoding="utf-8-sig") as file:
            vocabulary = [line.rstrip("\r\n") for line in file]
    except OSError as error:
        raise UsageError((f"vocabulary {path}: cannot be read: {error.strerror or error}",)) from None
    except UnicodeDecodeError as error:
        raise InputError((f"vocabulary {path}: byte {error.start} is not UTF-8; save it as UTF-8 text",)) from None
    if len(vocabulary) < size:
        raise InputError((f"vocabulary {path}: expected {size} lines or more, got {len(vocabulary)}",))
    vocabulary = vocabulary if size == -1 else vocabulary[:size]
    first_line: dict[str, int] = {}
    for line, string in enumerate(vocabulary, start=1):
        if first_line.setdefault(string, line) != line:
            raise InputError((f"vocabulary {path}: line {line} repeats {string!r} of line {first_line[string]}",))
    return vocabulary
