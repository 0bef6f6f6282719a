"""Settings of a warm start: which variables get initial values from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.feature_columns.vocabulary_file import read_vocabulary
from psflow.ps_runtime.initializers import Initializer
from psflow.ps_runtime.numeric import whole_number

ALL_TRAINABLE = ".*"


@dataclass(frozen=True)
class VocabInfo:
    """Maps the rows, or columns, of a variable to those of the checkpoint by vocabulary entries.

    An entry that both vocabularies have keeps its row. Vocabularies are UTF-8 text files with one entry per line.

    Parameters
    ----------
    new_vocab : str
        Vocabulary of the model: path or URL.
    new_vocab_size : int
        Number of its first entries to use.
    num_oov_buckets : int
        Number of rows after those of the entries, for all other strings.
    old_vocab : str
        Vocabulary of the checkpoint: path or URL.
    old_vocab_size : int
        Number of its first entries that were used; -1: all.
    backup_initializer : callable ``(shape, dtype, rng) -> array``, optional
        Gives the rows of entries that the checkpoint lacks, and those of the OOV buckets; default: zeros.
    axis : int
        0: entries have rows; 1: columns.

    Raises
    ------
    UsageError
        If a number is outside its range, with all faults in one message.
    """

    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int = -1
    backup_initializer: Initializer | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        if faults := tuple(self._faults()):
            raise UsageError(faults)

    def _faults(self) -> Iterator[str]:
        for name in ("new_vocab", "old_vocab"):
            if not isinstance(getattr(self, name), str | os.PathLike) or not str(getattr(self, name)):
                yield f"VocabInfo.{name} should be the path of a text file, got {getattr(self, name)!r}"
        for name, least, also in (("new_vocab_size", 1, ()), ("num_oov_buckets", 0, ()), ("old_vocab_size", 1, (-1,))):
            value = whole_number(getattr(self, name))
            if value is not None:
                object.__setattr__(self, name, value)
            if value is None or (value < least and value not in also):
                or_all = ", or -1 for all" if also else ""
                yield f"VocabInfo.{name} should be an integer of {least} or more{or_all}, got {getattr(self, name)!r}"
        if self.backup_initializer is not None and not callable(self.backup_initializer):
            yield f"VocabInfo.backup_initializer should be an initializer, got {self.backup_initializer!r}"
        if whole_number(self.axis) not in (0, 1):
            yield f"VocabInfo.axis should be 0 or 1, got {self.axis!r}"


@dataclass(frozen=True)
class WarmStartSettings:
    """Chooses the variables that get initial values from a checkpoint.

    Parameters
    ----------
    ckpt_to_initialize_from : str
        A model_dir, for its latest checkpoint, or the directory of a checkpoint; a path or URL.
    vars_to_warm_start : str, sequence of str, or None
        A regular expression chooses the trainable variables, and tables, whose names begin with a match; several choose
        among all variables. None: only those of `var_name_to_vocab_info`.
    var_name_to_vocab_info : mapping of str to VocabInfo, optional
        By the name of a variable, the mapping of its rows or columns.
    var_name_to_prev_var_name : mapping of str to str, optional
        By the name of a variable, its name in the checkpoint, if that differs.

    Raises
    ------
    UsageError
        If no checkpoint is named, or an argument has another type.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: str | Sequence[str] | None = ALL_TRAINABLE
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if faults := tuple(self._faults()):
            raise UsageError(faults)

    @property
    def vocab_infos(self) -> Mapping[str, VocabInfo]:
        """`var_name_to_vocab_info`, or an empty mapping."""
        return self.var_name_to_vocab_info or {}

    @property
    def previous_names(self) -> Mapping[str, str]:
        """`var_name_to_prev_var_name`, or an empty mapping."""
        return self.var_name_to_prev_var_name or {}

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of `vars_to_warm_start`."""
        chosen = self.vars_to_warm_start
        if chosen is None:
            return ()
        return (chosen,) if isinstance(chosen, str) else tuple(chosen)

    @property
    def takes_all_trainable(self) -> bool:
        """Whether all trainable variables are chosen, as by default."""
        return self.vars_to_warm_start == ALL_TRAINABLE

    def _faults(self) -> Iterator[str]:
        path = self.ckpt_to_initialize_from
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            yield (
                "WarmStartSettings.ckpt_to_initialize_from must be set: a model_dir or the directory of a checkpoint, "
                f"got {path!r}"
            )
        chosen = self.vars_to_warm_start
        is_list = isinstance(chosen, list | tuple) and all(isinstance(pattern, str) for pattern in chosen)
        if not (chosen is None or isinstance(chosen, str) or is_list):
            yield (
                "WarmStartSettings.vars_to_warm_start should be a regular expression, a list of them, or None; got "
                f"{chosen!r}"
            )
        for name, kind, noun in (
            ("var_name_to_vocab_info", VocabInfo, "a VocabInfo"),
            ("var_name_to_prev_var_name", str, "a name"),
        ):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Mapping):
                yield f"WarmStartSettings.{name} should be a mapping by variable names, got {given!r}"
            elif given:
                for key, value in given.items():
                    if not isinstance(key, str) or not isinstance(value, kind):
                        yield f"WarmStartSettings.{name}[{key!r}] should be {noun}, got {value!r}"


def warm_start_settings(given: Any) -> WarmStartSettings | None:
    """Return the settings for `warm_start_from` of an Estimator; None if it is None.

    Raises UsageError if it is neither a path nor WarmStartSettings.
    """
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if not isinstance(given, str | os.PathLike):
        raise UsageError((f"warm_start_from should be a path or WarmStartSettings, got {given!r}",))
    return WarmStartSettings(os.fspath(given))


def places_of_entries(new: Sequence[str], old: Sequence[str]) -> NDArray[np.int64]:
    """Return the position of each `new` entry among the `old` ones, ``(len(new),)``; -1 for absent ones."""
    place_of = {entry: place for place, entry in enumerate(old)}
    return np.fromiter((place_of.get(entry, -1) for entry in new), np.int64, len(new))


def read_places(info: VocabInfo) -> NDArray[np.int64]:
    """Return the old id of each new one, those of OOV buckets last; -1 if the old vocabulary lacks it. Blocks.

    Raises
    ------
    UsageError
        If a file cannot be read.
    InputError
        If a vocabulary has fewer entries than its size, or an entry twice; names the line.
    """
    new = read_vocabulary(info.new_vocab, info.new_vocab_size)
    old = read_vocabulary(info.old_vocab, info.old_vocab_size)
    return np.append(places_of_entries(new, old), np.full(info.num_oov_buckets, -1, np.int64))
