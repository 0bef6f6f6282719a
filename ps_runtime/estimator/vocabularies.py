"""Which id of a vocabulary is which of another: for rows that move between models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.estimator.warm_start_settings import VocabInfo
from psflow.ps_runtime.feature_columns.vocabulary_file import read_words

__all__ = ["places_of_words", "read_places"]


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
