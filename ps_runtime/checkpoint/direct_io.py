"""Large files past the page cache, through an aligned buffer that is used again and again.

What the page cache would keep of a checkpoint nobody reads soon. To keep it costs memory as large as the file, and the
allocation of every page, beside training: several times what the bytes themselves cost (decision 14). Where a file
system cannot do without the cache, these go through it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.files import Chunk

__all__ = ["BLOCK_BYTES", "DirectReader", "write_direct"]

BLOCK_BYTES = 1 << 20
"""What moves in one go: large for a disk, small enough to stay in the processor's cache for a checksum."""
ALIGNMENT_BYTES = 4096
"""Of memory, offsets and lengths: the most that devices ask for."""

_O_DIRECT = getattr(os, "O_DIRECT", 0)


def write_direct(descriptor: int, chunks: Iterable[Chunk]) -> None:
    """Write `chunks` to a file that is open for writing and empty. Blocks; the caller makes the file durable."""
    _pass_cache(descriptor)
    block = _aligned(BLOCK_BYTES)
    filled = 0
    for chunk in chunks:
        left = np.frombuffer(chunk, np.uint8)
        while left.size:
            taken = min(left.size, BLOCK_BYTES - filled)
            np.copyto(block[filled : filled + taken], left[:taken])
            left = left[taken:]
            filled += taken
            if filled == BLOCK_BYTES:
                _write(descriptor, block)
                filled = 0
    _use_cache(descriptor)  # the end has no aligned length
    _write(descriptor, block[:filled])


class DirectReader:
    """A file, open for reading.

    Notes
    -----
    The file is closed when this object goes. Not thread-safe.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        _pass_cache(self._descriptor)
        self._buffers = _aligned(BLOCK_BYTES), _aligned(BLOCK_BYTES)

    def blocks(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the bytes ``[start, stop)`` as (offset, bytes), in order; each block overwrites the one before.

        The next block is read by another thread while the caller looks at the present one.

        Raises
        ------
        OSError
            If the file ends before `stop`, or cannot be read.
        """
        begins = range(start - start % ALIGNMENT_BYTES, stop, BLOCK_BYTES)

        def read(index: int) -> NDArray[np.uint8]:
            begin, buffer = begins[index], self._buffers[index % 2]
            end = min(stop, begin + BLOCK_BYTES)
            _read(self._descriptor, buffer, begin, end - begin)
            return buffer[max(start - begin, 0) : end - begin]

        if len(begins) <= 1:  # not worth a thread
            yield from ((start, read(index)) for index in range(len(begins)))
            return
        with ThreadPoolExecutor(1, thread_name_prefix="psflow-reader") as ahead:
            coming = ahead.submit(read, 0)
            for index, begin in enumerate(begins):
                block = coming.result()
                if index + 1 < len(begins):
                    coming = ahead.submit(read, index + 1)
                yield max(start, begin), block


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)


def _write(descriptor: int, block: NDArray[np.uint8]) -> None:
    left = block.data
    while left:
        left = left[_cached_if_need_be(descriptor, partial(os.write, descriptor, left)) :]


def _read(descriptor: int, buffer: NDArray[np.uint8], position: int, nbytes: int) -> None:
    filled, end = 0, -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    while filled < nbytes:
        at = position + filled
        num_bytes = _cached_if_need_be(descriptor, partial(os.preadv, descriptor, [buffer.data[filled:end]], at))
        if not num_bytes:
            raise OSError(errno.EIO, f"the file ends at byte {at}, expected {position + nbytes} bytes at least")
        filled += num_bytes


def _cached_if_need_be(descriptor: int, call: Callable[[], int]) -> int:
    try:
        return call()
    except OSError as error:
        if error.errno != errno.EINVAL or not _use_cache(descriptor):
            raise
    return call()


def _pass_cache(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | _O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _use_cache(descriptor: int) -> bool:
    """Go through the page cache from now on; return whether it was otherwise."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
    return bool(flags & _O_DIRECT)
