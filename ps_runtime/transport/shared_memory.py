"""Shares anonymous memory between processes of one host: known only by descriptors, freed with its last user."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import platform

import numpy as np
from numpy.typing import NDArray

# <linux/fcntl.h>: the numbers, because Python names them only on Linux, and the last one nowhere
_ADD_SEALS, _GET_SEALS = 1033, 1034
_SEALS = 0x1 | 0x2 | 0x4  # no more seals, no shrinking, no growing
_SEAL_FUTURE_WRITE = 0x10
_NOTHING = np.empty(0, np.uint8)


def why_no_shared_memory() -> str:
    """Return why this machine cannot share memory; empty if it can.

    A lock-free reader relies on stores that become visible in order, and on loads in order: x86-64 guarantees both.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"{platform.machine()} does not keep the order of memory accesses that readers rely on"
    if not hasattr(os, "memfd_create"):
        return "this system has no memfd_create"
    try:
        SharedMemory.create(1).close()
    except OSError as error:
        return f"this system gives none ({error.strerror})"
    return ""


class SharedMemory:
    """A mapping of an anonymous file in memory whose size is sealed, so that no access can ever fail.

    It has no name: nothing remains however its users end, and only receivers of the descriptor reach it.

    Notes
    -----
    Untouched pages cost nothing; the first touch of one costs about half a microsecond.
    """

    def __init__(self, fd: int, mapping: mmap.mmap) -> None:
        self.fd = fd
        self.bytes: NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)
        """All bytes; read-only if attached so."""

    @classmethod
    def create(cls, nbytes: int, *, writable_by_others: bool = True) -> SharedMemory:
        """Return new memory full of zeros.

        Raises OSError if the system cannot provide it.
        """
        fd = os.memfd_create("psflow", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            mapping = mmap.mmap(fd, nbytes)
            seals = _SEALS if writable_by_others else _SEALS | _SEAL_FUTURE_WRITE
            fcntl.fcntl(fd, _ADD_SEALS, seals)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, mapping)

    @classmethod
    def attach(cls, fd: int, nbytes: int, *, writable: bool) -> SharedMemory:
        """Map the memory of another process; its descriptor is used up.

        Raises
        ------
        ValueError
            If it has another size, or one that can change.
        OSError
            If it cannot be mapped.
        """
        try:
            if fcntl.fcntl(fd, _GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("its size can change")
            size = os.fstat(fd).st_size
            if size != nbytes:
                raise ValueError(f"it has {size} bytes, expected {nbytes}")
            access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
            return cls(-1, mmap.mmap(fd, nbytes, prot=access))
        finally:
            os.close(fd)

    def close_fd(self) -> None:
        """Close the descriptor: from now on no other process can get this memory. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Close the descriptor and `bytes`; the mapping ends with the last array that views it. Idempotent."""
        self.bytes = _NOTHING
        self.close_fd()

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close_fd()
