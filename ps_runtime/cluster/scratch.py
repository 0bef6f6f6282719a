"""The directory for Dask's temporary files in a process of a role by hand; one that is killed leaves it to the next."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["PREFIX", "scratch_directory"]

PREFIX = "psflow-role-"


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Give a directory of this process, and remove it; also remove those that killed processes of this user have left.

    Notes
    -----
    A process holds a lock on its directory: the kernel lets go of it however the process ends.
    """
    _remove_abandoned(tempfile.gettempdir())
    path, descriptor = _locked_directory()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _locked_directory() -> tuple[str, int]:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        descriptor = _locked(path)
        if descriptor is not None:
            return path, descriptor  # else another process has taken it for an abandoned one just now


def _remove_abandoned(parent: str) -> None:
    with os.scandir(parent) as entries:
        paths = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in paths:
        descriptor = _locked(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _locked(path: str) -> int | None:
    """Return a descriptor that holds the lock of a directory of this user; None if there is none, or it is taken."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone, a link, no directory, or another user's
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and status.st_nlink > 0:
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None
