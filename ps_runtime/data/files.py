"""Reads whole input files, with a size limit, from any location that fsspec supports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import fsspec
from fsspec.core import has_magic

from psflow.ps_runtime.data.arrays import Columns
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.non_finite import RecordSource
from psflow.ps_runtime.errors import InputError, StoreError
from psflow.ps_runtime.redaction import shown_path, without_secrets
from psflow.ps_runtime.specs.schema_enforcement import listed_names, missing_faults
from psflow.ps_runtime.store_calls import read_answer
from psflow.ps_runtime.store_errors import reason_of_store

MAX_FILE_BYTES = 4 * 1024**3
"""A data set is in memory; a larger file needs a generator."""
ONE_FILE = "expected one file; formats of tabular files, such as parquet, take folders and globs"


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file.

    Raises InputError if it cannot be read, is empty, or is larger than `MAX_FILE_BYTES`.
    """
    content = _head(path, MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InputError(
            (
                f"{shown_path(path)} is larger than {MAX_FILE_BYTES} bytes, the most that is read into memory; "
                "read it batch by batch, with a generator as input_fn",
            )
        )
    if not content:
        raise InputError((f"{shown_path(path)} is empty",))
    return content


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise InputError if a file cannot be read, without reading all of it."""
    _head(path, 1)


def _head(path: str | os.PathLike[str], num_bytes: int) -> bytes:
    def read() -> bytes:
        with fsspec.open(os.fspath(path), "rb") as file:
            content: bytes = file.read(num_bytes)
        return content

    try:
        head = read_answer(os.fspath(path), read)
    except FileNotFoundError:
        hint = f": {ONE_FILE}" if has_magic(os.fspath(path)) else ""
        raise InputError((f"there is no file {shown_path(path)}{hint}",)) from None
    except IsADirectoryError:
        raise InputError((f"{shown_path(path)} is a folder: {ONE_FILE}",)) from None
    except StoreError as error:
        raise InputError((f"cannot read {shown_path(path)}: {error.reason}",)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError((f"cannot read {shown_path(path)}: {reason}",)) from None
    except (ImportError, ValueError) as error:  # fsspec or this environment lacks the protocol
        raise InputError((f"cannot read {shown_path(path)}: {without_secrets(str(error))}",)) from None
    except Exception as error:
        if (why := reason_of_store(error)) is None:
            raise
        raise InputError((f"cannot read {shown_path(path)}: {why}",)) from None
    return head


def chosen_names(
    path: str | os.PathLike[str], noun: str, known: Sequence[str], label: str | None, features: Iterable[str] | None
) -> tuple[str, ...]:
    """Return the names of the features in a file: the requested ones, else all but the label.

    Raises InputError if a name is not among `known`, occurs twice or in two requests, or nothing is left; `noun` is
    what a name refers to.
    """
    if isinstance(features, str):  # a str is an iterable of str, too
        features = [features]
    names = [n for n in known if n != label] if features is None else list(features)
    asked = names if label is None else [*names, label]
    faults = missing_faults(shown_path(path), noun, asked, known)
    twice = sorted({n for n in asked if asked.count(n) > 1})
    faults += [f"{shown_path(path)}: {noun} {n!r} is requested twice, among features and label" for n in twice]
    if not names:
        faults.append(f"{shown_path(path)} leaves no {noun} for the features{listed_names(noun, known)}")
    if faults:
        raise InputError(tuple(faults))
    return tuple(names)


def left_over(known: Iterable[str], features: Iterable[str], label: str | None) -> tuple[str, ...]:
    """Return the names in a file that are neither features nor label."""
    used = {*features, label}
    return tuple(name for name in known if name not in used)


def one_batch(source: RecordSource, features: Columns, labels: Columns | None, **facts: Any) -> Dataset:
    """Return a data set of one batch, with `facts` such as its columns; its faults name the source.

    Raises InputError as `Dataset` does.
    """
    try:
        dataset = Dataset(features, labels, source=source, **facts)
    except InputError as error:
        raise InputError(tuple(f"{source.name}: {fault}" for fault in error.faults)) from None
    return dataset.batch(dataset.num_records)
