"""Which id of a vocabulary is which of another: for rows that move between models."""

from __future__ import annotations

from collections.abc import Sequence

import fsspec
import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.estimator.warm_start_settings import VocabInfo

__all__ = ["places_of_words", "read_places", "read_words"]


def places_of_words(new: Sequence[str], old: Sequence[str]) -> NDArray[np.int64]:
    """Return for each of the `new` words where it stands among the `old` ones, ``(len(new),)``; -1: nowhere."""
    place_of = {word: place for place, word in enumerate(old)}
    return np.fromiter((place_of.get(word, -1) for word in new), np.int64, len(new))


def read_places(info: VocabInfo) -> NDArray[np.int64]:
    """Return for each id of the new vocabulary, those of unknown words last, the old one; -1 if it has none. Blocks.

    Raises
    ------
    UsageError
        If a file cannot be read.
    InputError
        If a vocabulary has fewer words than asked for, or the same word twice; says in which line.
    """
    new = read_words(info.new_vocab, info.new_vocab_size)
    old = read_words(info.old_vocab, info.old_vocab_size)
    return np.append(places_of_words(new, old), np.full(info.num_oov_buckets, -1, np.int64))


def read_words(path: str, size: int) -> list[str]:
    """Return the first `size` lines of a text file, -1: all. Blocks.

    Raises
    ------
    UsageError, InputError
        As `read_places`.
    """
    try:
        with fsspec.open(path, "rt", encoding="utf-8") as file:
            words = [line.rstrip("\r\n") for line in file]
    except OSError as error:
        raise UsageError((f"vocabulary {path}: cannot be read: {error.strerror or error}",)) from None
    except UnicodeDecodeError as error:
        raise InputError((f"vocabulary {path}: byte {error.start} is no UTF-8; save it as UTF-8 text",)) from None
    if len(words) < size:
        raise InputError((f"vocabulary {path}: expected {size} words or more, a word in each line, got {len(words)}",))
    words = words if size == -1 else words[:size]
    first_line: dict[str, int] = {}
    for line, word in enumerate(words, start=1):
        if first_line.setdefault(word, line) != line:
            raise InputError((f"vocabulary {path}: line {line} repeats {word!r} of line {first_line[word]}",))
    return words
