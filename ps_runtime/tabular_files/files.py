"""Data files: their recorded state, the check that it has not changed, and their bytes."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from psflow.ps_runtime.errors import InputError, StoreError
from psflow.ps_runtime.redaction import shown_path, without_secrets
from psflow.ps_runtime.store_calls import RepeatedReads, protocols_of, read_answer
from psflow.ps_runtime.store_errors import reason_of_store

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
STAMPS = ("ETag", "etag", "LastModified", "last_modified", "updated", "mtime", "modified", "created")
"""Names of the state of a file in fsspec file systems, the most exact first."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with its state when it was found."""

    url: str = field(repr=False)
    size: int
    stamp: str
    folders: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """The path in messages."""
        return shown_path(self.url)


def check_unchanged(file: DataFile) -> None:
    """Raise InputError if a file has changed since it was found: another size or stamp, or gone."""
    with readable(file.url):
        fs, path = url_to_fs(file.url)
        now = look_at(fs, path, file.url)
    if now != file:
        what = f"its size was {file.size}, now {now.size} bytes" if now.size != file.size else "it was rewritten"
        raise InputError((f"{file.shown} has changed since it was scanned: {what}; run the command again",))


@contextmanager
def unchanged(file: DataFile) -> Iterator[None]:
    """Check a file after the block has read it, so that no content of a changed file is used.

    Raises InputError as `check_unchanged`; it replaces an error of the block.
    """
    try:
        yield
    finally:
        check_unchanged(file)


def open_file(file: DataFile) -> BinaryIO:
    """Return a file, open for reading at any position.

    Raises InputError if it cannot be opened.
    """
    with readable(file.url):
        fs, path = url_to_fs(file.url)
        opened: BinaryIO = read_answer(file.url, lambda: fs.open(path, "rb"))
    return cast(BinaryIO, RepeatedReads(file.url, opened)) if "s3" in protocols_of(fs) else opened


def read_bytes(file: DataFile, opened: BinaryIO, start: int, stop: int) -> bytes:
    """Return the bytes ``[start, stop)`` of an open file.

    Raises InputError if it cannot be read, or ends before `stop`.
    """
    with readable(file.url):
        opened.seek(start)
        content = opened.read(stop - start)
    if len(content) != stop - start:
        raise InputError(
            (f"{file.shown} ends at byte {start + len(content)}, expected {stop}: it changed while it was read",)
        )
    return content


@contextmanager
def readable(url: str) -> Iterator[None]:
    """Turn errors of a file system into an InputError."""
    try:
        yield
    except InputError:  # a ValueError, but complete already
        raise
    except FileNotFoundError:
        raise InputError((f"there is no file {shown_path(url)}",)) from None
    except StoreError as error:
        raise InputError((f"cannot read {shown_path(url)}: {error.reason}",)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError((f"cannot read {shown_path(url)}: {reason}",)) from None
    except (ImportError, ValueError) as error:  # fsspec or this environment lacks the protocol
        raise InputError((f"cannot read {shown_path(url)}: {without_secrets(str(error))}",)) from None
    except Exception as error:
        if (why := reason_of_store(error)) is None:
            raise
        raise InputError((f"cannot read {shown_path(url)}: {why}",)) from None


def look_at(fs: Any, path: str, url: str) -> DataFile:
    """Return a file with its current state.

    Raises InputError if it cannot be a data file.
    """
    shown = shown_path(url)
    if isinstance(fs, LocalFileSystem):
        found = os.stat(path)
        if not modes.S_ISREG(found.st_mode):
            raise InputError((f"{shown} is not a file",))
        size, stamp = found.st_size, str(found.st_mtime_ns)
        if not os.access(path, os.R_OK):
            raise PermissionError(13, "Permission denied", path)
    else:

        def asked() -> Any:
            fs.invalidate_cache(fs._parent(path))  # the cache may hold an old state of the file
            return fs.info(path)

        info = read_answer(url, asked)
        if info["size"] is None:
            raise InputError((f"{shown}: the server does not report its size; copy it to a file system that does",))
        size = int(info["size"])
        stamp = next((str(info[name]) for name in STAMPS if info.get(name)), None) or str(fs.ukey(path))
    if not size:
        raise InputError((f"{shown} is empty",))
    if path.endswith(COMPRESSED):
        raise InputError((f"{shown} is compressed: decompress it first, or convert it to Parquet",))
    return DataFile(url, size, stamp)
