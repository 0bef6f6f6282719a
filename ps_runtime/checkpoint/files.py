"""Atomic and durable writes of local files.

The page cache of a checkpoint is not read again soon. It would cost memory as large as the file, and, for a write, the
allocation of every page during training: several times the cost of the bytes themselves (decision 6). Writes bypass the
cache where the file system supports it; reads drop from it what they have read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import re
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StorageError, UsageError, WaitTimeoutError

LOCK_TIMEOUT_SECS = 600.0
"""Seconds for another process to release a lock, which it may hold while it writes a large export."""
LOCK_POLL_SECS = 0.01

Chunk = bytes | bytearray | memoryview

Fence = Callable[[], None]
"""Called right before a write takes effect; raises if this process may no longer write."""


def open_fence() -> None:
    """Allow every write: the fence of a process that is never replaced."""


def atomic_write_bytes(path: str, data: bytes, *, is_private: bool = False, fence: Fence = open_fence) -> None:
    """Write the file `path`, durably: readers see its old content (or no file) or all of the new content.

    A private file is readable only by its owner, from the first byte on. If `fence` raises, nothing has changed.
    """
    with replacing(path, is_private=is_private, fence=fence) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(
    path: str,
    *,
    is_private: bool = False,
    is_durable: bool = True,
    syncs_directory: bool = True,
    fence: Fence = open_fence,
) -> Iterator[BinaryIO]:
    """Yield an empty file to write to, which becomes the file `path` after the block, durably, or never.

    A file that is not durable may be missing or cut short after a power failure, but not after the end of a process;
    one that does not sync its directory may be missing until another file in it does. A private file is readable only
    by its owner. If several processes write one path at once, the last content stays, unless its `fence` raises. A
    process killed meanwhile leaves a ``.tmp`` file in the directory, which readers ignore.

    Raises StorageError if the file cannot be written, for example because the disk is full.
    """
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{secrets.token_hex(4)}.tmp")
    with storing(path):
        try:
            with open(temporary, "xb", opener=_open_private if is_private else None) as stream:
                yield stream
                stream.flush()
                if is_durable:
                    os.fsync(stream.fileno())
            fence()
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        if is_durable and syncs_directory:
            fsync_directory(directory)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def storing(path: str) -> Iterator[None]:
    """Convert errors of the operating system in the block to a StorageError that names `path`.

    Errors on other files, such as a file to copy, are unchanged.
    """
    try:
        yield
    except OSError as error:
        if _is_elsewhere(error, path):
            raise
        place = path
        while not os.path.exists(place):
            place = os.path.dirname(place) or "."
        room = os.statvfs(place)  # some file systems have no inode table, and report 0 of 0
        needs_inodes = error.errno == errno.ENOSPC and room.f_files > 0 and room.f_favail == 0
        reason = f"{_reason(error)}: too many files, no inodes are left" if needs_inodes else _reason(error)
        raise StorageError(path, reason, room.f_bavail * room.f_frsize) from error


@contextlib.contextmanager
def reading(model_dir: str) -> Iterator[None]:
    """Convert errors of the operating system on reading `model_dir` to a UsageError that names the file."""
    try:
        yield
    except OSError as error:
        what = f"model_dir {model_dir}: {error.filename or 'a file in it'} cannot be read: {_reason(error)}"
        raise UsageError((f"{what}; start all processes as the user that owns it, or choose another",)) from None


def begin_to_store(stream: BinaryIO, start: int, num_bytes: int) -> None:
    """Start writing buffered bytes to the disk without waiting; do nothing if the system cannot."""
    _forget(stream.fileno(), start, num_bytes)


def _forget(descriptor: int, start: int, num_bytes: int) -> None:
    """Drop bytes from the page cache, or begin to write them, if the system can."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, start, num_bytes, os.POSIX_FADV_DONTNEED)


def append_line(path: str, line: bytes, fence: Fence = open_fence) -> None:
    """Append `line`, which ends in a newline, to the file `path`, durably, unless `fence` raises.

    A torn last line of a killed process is removed first. Several processes may append to one file at once.
    StorageError as in `replacing`, WaitTimeoutError as in `locked`.
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
    """Make the directory `path` and its missing parents, durably; only those below `within`."""
    missing = []
    while path not in ("", within) and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process created it just now
            os.mkdir(directory)
        fsync_directory(os.path.dirname(directory))


def look_again(path: str) -> None:
    """Make a network file system refresh its listing of the directories above `path`.

    After a failed lookup a host may cache for a minute that a file does not exist; opening a directory refreshes it
    (NFS).
    """
    for directory in reversed(Path(path).parents):
        with contextlib.suppress(OSError):
            os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def fsync_directory(path: str) -> None:
    """Make the entries of the directory `path` durable."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(path: str) -> None:
    """Make all files and directories under the directory `path` durable."""
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
    """Hold an exclusive lock on the file `path`, created if missing, against every other holder on this host.

    Blocks until the lock is free. The end of its holder always frees it.

    Raises WaitTimeoutError if another process holds it for minutes, for example because it is stopped.
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
    """Return the message of the operating system; of several copied files (shutil.Error), the first one."""
    known = re.search(r"\[Errno (\d+)\]", str(error))
    return error.strerror or (os.strerror(int(known[1])) if known else str(error))


BLOCK_BYTES = 1 << 20
"""Bytes of one transfer: large for a disk, small enough to stay in the processor cache for a checksum."""
CACHED_BYTES = 16 << 20
"""Bytes of a file that is read, after which those read are dropped from the page cache."""
NUM_TRANSFERS = 2
"""Writes at once: a disk is idle between those that come one by one."""

_O_DIRECT = getattr(os, "O_DIRECT", 0)


def write_direct(descriptor: int, chunks: Iterable[Chunk]) -> None:
    """Write `chunks` to an empty file that is open for writing. Blocks; the caller makes the file durable.

    Other threads write blocks while the caller computes and copies the next ones.
    """
    _pass_cache(descriptor)
    buffers = itertools.cycle([_aligned(BLOCK_BYTES) for _ in range(NUM_TRANSFERS + 1)])
    block, filled, position = next(buffers), 0, 0
    with ThreadPoolExecutor(NUM_TRANSFERS, thread_name_prefix="psflow-writer") as behind:
        writing: deque[Future[None]] = deque()
        for chunk in chunks:
            left = np.frombuffer(chunk, np.uint8)
            while left.size:
                taken = min(left.size, BLOCK_BYTES - filled)
                np.copyto(block[filled : filled + taken], left[:taken])
                left = left[taken:]
                filled += taken
                if filled == BLOCK_BYTES:
                    writing.append(behind.submit(_write, descriptor, block, position))
                    if len(writing) > NUM_TRANSFERS:
                        writing.popleft().result()  # the next buffer is free
                    block, filled, position = next(buffers), 0, position + BLOCK_BYTES
        for written in writing:
            written.result()
    _use_cache(descriptor)  # the length of the end is not aligned
    _write(descriptor, block[:filled], position)


class FileReader:
    """A file, open for reading in order; of a large one only some megabytes stay in the page cache.

    Notes
    -----
    The file is closed when this object is deleted. Not thread-safe.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self._buffers = np.empty((2, BLOCK_BYTES), np.uint8)

    def blocks(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the bytes ``[start, stop)`` as (offset, bytes), in order; each block overwrites the last but one.

        Raises OSError if the file ends before `stop`, or reading fails.
        """
        forgotten = start
        for buffer, begin in zip(itertools.cycle(self._buffers), range(start, stop, BLOCK_BYTES), strict=False):
            block = buffer[: stop - begin]
            _read(self._descriptor, block, begin)
            if begin - forgotten >= CACHED_BYTES:
                _forget(self._descriptor, forgotten, begin - forgotten)
                forgotten = begin
            yield begin, block
        if forgotten < stop:  # the length 0 stands for the rest of the file
            _forget(self._descriptor, forgotten, stop - forgotten)


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)


def _write(descriptor: int, block: NDArray[np.uint8], position: int) -> None:
    left = block.data
    while left:
        num_bytes = _cached_if_need_be(descriptor, partial(os.pwrite, descriptor, left, position))
        left, position = left[num_bytes:], position + num_bytes


def _read(descriptor: int, block: NDArray[np.uint8], position: int) -> None:
    left, end = block.data, position + block.size
    while left:
        num_bytes = os.preadv(descriptor, [left], position)
        if not num_bytes:
            raise OSError(errno.EIO, f"the file ends at byte {position}, expected {end} bytes at least")
        left, position = left[num_bytes:], position + num_bytes


def _cached_if_need_be(descriptor: int, call: Callable[[], int]) -> int:
    try:
        return call()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    _use_cache(descriptor)  # also if another thread has done so since
    return call()


def _pass_cache(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | _O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _use_cache(descriptor: int) -> None:
    """Use the page cache from now on."""
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_O_DIRECT)
