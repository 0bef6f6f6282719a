"""Makes directories for temporary files, and removes those that killed processes have left."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@functools.cache
def boot_id() -> str:
    """Return the id that the kernel drew when it started, the same for all processes under it; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _prefix(host: str) -> str:
    return f"psflow-scratch-{hashlib.blake2b(host.encode(), digest_size=4).hexdigest()}-"


PREFIX = _prefix(boot_id() or socket.gethostname())
"""Prefix of names, different for each host: a lock holds only for processes of one host, but several may share a
folder.
"""
SEMAPHORES = Path("/dev/shm")
"""Where Linux keeps named semaphores, with ``sem.`` before the name."""


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Make a directory of this process, and remove it; also remove those that killed processes of this user have left.

    Notes
    -----
    A process holds a lock on its directory: the kernel releases it however the process ends.
    """
    path, descriptor = new_scratch()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def new_scratch(parent: str | None = None) -> tuple[str, int]:
    """Make a directory that a later call removes, if it still exists and no process holds its lock."""
    parent = parent or tempfile.gettempdir()
    _tidy(parent)
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        descriptor = hold_scratch(path)
        if descriptor is not None:
            return path, descriptor  # otherwise another process has just removed it as abandoned


def hold_scratch(path: str) -> int | None:
    """Hold the lock of a directory of this user, shared with its other users; return None if it is being removed."""
    return _locked(path, fcntl.LOCK_SH)


def _tidy(parent: str) -> None:
    """Remove abandoned directories of this host, and semaphores that are named after them."""
    try:
        with os.scandir(parent) as entries:
            paths = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:  # a directory in which this user may create files, but list none
        return
    for path in paths:
        descriptor = _locked(path, fcntl.LOCK_EX)
        if descriptor is not None:
            remove_abandoned(path)
            os.close(descriptor)


def semaphores_of(path: str) -> list[Path]:
    """Return the semaphores of multiprocessing that are named after a directory."""
    return list(SEMAPHORES.glob(f"sem.{os.path.basename(path)}-*"))


def remove_abandoned(path: str) -> None:
    """Remove a directory whose owner is gone, and its semaphores."""
    for semaphore in semaphores_of(path):
        with suppress(OSError):
            semaphore.unlink()
    shutil.rmtree(path, ignore_errors=True)


def _locked(path: str, kind: int) -> int | None:
    """Return a descriptor that holds the lock of a directory of this user; None if there is none, or it is taken."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone, a link, not a directory, or another user's
        return None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and status.st_nlink > 0:
            return descriptor
    except BlockingIOError:
        pass
    except OSError:  # a file system without locks: no process removes directories of others then
        if kind == fcntl.LOCK_SH:
            return descriptor
    os.close(descriptor)
    return None
