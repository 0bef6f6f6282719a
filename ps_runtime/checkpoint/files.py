"""Local files that are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StorageError, UsageError, WaitTimeoutError

__all__ = [
    "Chunk",
    "Fence",
    "append_line",
    "atomic_write_bytes",
    "atomic_write_text",
    "begin_to_store",
    "fsync_directory",
    "fsync_tree",
    "locked",
    "look_again",
    "make_directory",
    "open_fence",
    "reading",
    "replacing",
    "storing",
]

LOCK_TIMEOUT_SECS = 600.0
"""For another process to release a lock, which it may hold while it writes a large export."""
LOCK_POLL_SECS = 0.01

Chunk = bytes | bytearray | memoryview

Fence = Callable[[], None]
"""Called right before what was written counts; raises if this process may not write any more."""


def open_fence() -> None:
    """Let everything through: the fence of a process that nobody replaces."""


def atomic_write_text(path: str, text: str) -> None:
    """Write the file `path` in UTF-8, as `atomic_write_bytes` does."""
    atomic_write_bytes(path, text.encode())


def atomic_write_bytes(path: str, data: bytes, *, is_private: bool = False, fence: Fence = open_fence) -> None:
    """Write the file `path`, durably: readers see its old content (or nothing) or all of the new one.

    What is private nobody but the owner can read, from the first byte on. If `fence` raises nothing has changed.
    """
    with replacing(path, is_private=is_private, fence=fence) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: str, *, is_private: bool = False, fence: Fence = open_fence) -> Iterator[BinaryIO]:
    """Give an empty file to write to, which becomes the file `path` after the block, durably, or never.

    What is private nobody but the owner can read. If several processes write one path at once, the last one's content
    stays, unless its `fence` raises. A process killed meanwhile leaves a ``.tmp`` file beside it, which no reader looks
    at.

    Raises
    ------
    StorageError
        If it cannot be written, because the disk is full, for one.
    """
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{secrets.token_hex(4)}.tmp")
    with storing(path):
        try:
            with open(temporary, "xb", opener=_open_private if is_private else None) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            fence()
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        fsync_directory(directory)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def storing(path: str) -> Iterator[None]:
    """Raise a StorageError that names `path` for whatever the operating system refuses in the block.

    What it says of a file elsewhere, such as one that was to be copied, is left alone.
    """
    try:
        yield
    except OSError as error:
        if _is_elsewhere(error, path):
            raise
        place = path
        while not os.path.exists(place):
            place = os.path.dirname(place) or "."
        room = os.statvfs(place)  # some file systems have no table of inodes, and say 0 of 0
        needs_inodes = error.errno == errno.ENOSPC and room.f_files > 0 and room.f_favail == 0
        reason = f"{_reason(error)}: there are too many files, no inode is left" if needs_inodes else _reason(error)
        raise StorageError(path, reason, room.f_bavail * room.f_frsize) from error


@contextlib.contextmanager
def reading(model_dir: str) -> Iterator[None]:
    """Raise a UsageError that names the file for whatever of `model_dir` the operating system lets nobody read."""
    try:
        yield
    except OSError as error:
        what = f"model_dir {model_dir}: {error.filename or 'a file in it'} cannot be read: {_reason(error)}"
        raise UsageError((f"{what}; start all processes as the user who owns it, or choose another",)) from None


def begin_to_store(stream: BinaryIO, start: int, num_bytes: int) -> None:
    """Have the disk begin with bytes that were written, without waiting for it; where the system cannot, do nothing."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(stream.fileno(), start, num_bytes, os.POSIX_FADV_DONTNEED)


def append_line(path: str, line: bytes, fence: Fence = open_fence) -> None:
    """Append `line`, which ends in a newline, to the file `path`, durably, unless `fence` raises.

    A torn last line, which an appender that was killed has left, is cut off first. Several processes may append
    to one file at once. StorageError as in `replacing`, WaitTimeoutError as in `locked`.
    """
    with storing(path):
        _append_line(path, line, fence)


def _append_line(path: str, line: bytes, fence: Fence) -> None:
    with open(path, "a+b") as stream:
        _lock(stream.fileno(), path)
        stream.seek(0)
        content = stream.read()
        fence()
        stream.truncate(content.rfind(b"\n") + 1)
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())
    fsync_directory(os.path.dirname(path))


def make_directory(path: str, within: str = "") -> None:
    """Make the directory `path` and its parents, as far as they are missing, durably; only those below `within`."""
    missing = []
    while path not in ("", within) and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process has made it just now
            os.mkdir(directory)
        fsync_directory(os.path.dirname(directory))


def look_again(path: str) -> None:
    """Have a network file system ask its server what the directories above `path` hold.

    A host that has looked for a file in vain may believe for a minute that there is none; to open a directory makes it
    ask (NFS).
    """
    for directory in reversed(Path(path).parents):
        with contextlib.suppress(OSError):
            os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def fsync_directory(path: str) -> None:
    """Make durable which names the directory `path` holds."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(path: str) -> None:
    """Make durable all files and directories under the directory `path`."""
    for directory, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        fsync_directory(directory)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, made if missing, against every other holder on this host.

    Blocks until the lock is free. It is free as soon as its holder ends, however that happens.

    Raises
    ------
    WaitTimeoutError
        If another process holds it for minutes: it is stopped, say.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    deadline = Deadline(LOCK_TIMEOUT_SECS)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if deadline.has_passed:
                holder = f"another process, which holds the lock of {path},"
                remedy = "end that process if it hangs, then run the same command again"
                raise WaitTimeoutError(holder, "release it", LOCK_TIMEOUT_SECS, remedy) from None
        time.sleep(LOCK_POLL_SECS)


def _is_elsewhere(error: OSError, path: str) -> bool:
    """Return whether `error` names files, and none of them is a parent of `path`, or in the directory of `path`."""
    directory = os.path.dirname(os.path.abspath(path))
    named = [os.path.abspath(name) for name in (error.filename, error.filename2) if isinstance(name, str)]
    return bool(named) and not any(os.path.commonpath([name, directory]) in (name, directory) for name in named)


def _reason(error: OSError) -> str:
    """Return what the operating system says; of several files that were copied (shutil.Error), of the first."""
    known = re.search(r"\[Errno (\d+)\]", str(error))
    return error.strerror or (os.strerror(int(known[1])) if known else str(error))
