from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint import files
from psflow.ps_runtime.checkpoint.files import BLOCK_BYTES, FileReader, write_direct

CONTENT = np.random.default_rng(0).integers(0, 256, 5 * BLOCK_BYTES + 12_345, dtype=np.uint8).tobytes()


def write(path: Any, *chunks: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        write_direct(descriptor, chunks)
    finally:
        os.close(descriptor)


def read(path: Any, start: int, stop: int) -> bytes:
    parts = []
    for position, block in FileReader(str(path)).blocks(start, stop):
        assert position == start + sum(map(len, parts))
        parts.append(block.tobytes())
    return b"".join(parts)


def always(_: int) -> None:
    """The file system goes past the cache."""


def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl

    def refusing(descriptor: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refusing)


def taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept the flag, refuse each access: some file systems want more alignment than others."""

    def with_cache(call: Callable[..., int]) -> Callable[..., int]:
        def called(descriptor: int, *args: Any) -> int:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(errno.EINVAL, "Invalid argument")
            return call(descriptor, *args)

        return called

    monkeypatch.setattr(os, "pwrite", with_cache(os.pwrite))


def in_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do a part of each request only."""
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, data[:100_001], at))
    monkeypatch.setattr(os, "preadv", lambda descriptor, into, at: preadv(descriptor, [into[0][:100_001]], at))


@pytest.fixture(params=[always, refused, taken_back, in_bits])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        request.param(patch)
        yield


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("num_bytes", [0, 1, 4096, BLOCK_BYTES, BLOCK_BYTES + 1, len(CONTENT)])
def test_what_was_written_is_read(tmp_path: Any, num_bytes: int) -> None:
    path, content = tmp_path / "file", CONTENT[:num_bytes]
    write(path, content[:7], b"", memoryview(content)[7:5000], content[5000:])
    assert path.read_bytes() == content
    assert read(path, 0, num_bytes) == content


@pytest.mark.usefixtures("file_system")
def test_any_range_is_read(tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    for start in (0, 1, 4095, 4096, BLOCK_BYTES - 1, BLOCK_BYTES + 1, len(CONTENT) - 1):
        for stop in (start, start + 1, start + 5000, start + BLOCK_BYTES, len(CONTENT)):
            assert read(path, start, min(stop, len(CONTENT))) == CONTENT[start:stop]


def test_what_goes_past_the_cache_is_aligned_as_any_device_asks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each write is refused and goes through the cache, which holds a whole checkpoint then."""
    numbers: list[int] = []
    pwrite = os.pwrite

    def writing(descriptor: int, data: memoryview, at: int) -> int:
        numbers.extend([at, len(data), np.frombuffer(data, np.uint8).ctypes.data])
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", writing)
    write(tmp_path / "file", CONTENT)
    assert numbers[-2] == 12_345, "the end goes through the cache, however long it is"
    assert [number for number in numbers[:-2] if number % 4096] == []


def test_what_was_read_leaves_the_cache_soon_and_what_comes_next_stays(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    monkeypatch.setattr(files, "CACHED_BYTES", 2 * BLOCK_BYTES)
    start = dropped = 5000
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("this system has no posix_fadvise")

    def forget(descriptor: int, offset: int, num_bytes: int, advice: int) -> None:
        nonlocal dropped
        assert (offset, advice) == (dropped, os.POSIX_FADV_DONTNEED)
        dropped += num_bytes

    monkeypatch.setattr(os, "posix_fadvise", forget)
    for position, block in FileReader(str(tmp_path / "file")).blocks(start, len(CONTENT)):
        assert position - 2 * BLOCK_BYTES < dropped <= position
        assert block.tobytes() == CONTENT[position : position + block.size]
    assert dropped == len(CONTENT)


def test_a_file_that_ends_too_early(tmp_path: Any) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:5000])
    with pytest.raises(OSError, match="the file ends at byte 5000, expected 5001 bytes at least"):
        read(tmp_path / "file", 0, 5001)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_another_failure_is_told_also_if_it_comes_once(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failures, real = [OSError(number, "the disk says no")], os.pwrite

    def fail_once(*args: Any) -> int:
        if failures:
            raise failures.pop()
        return real(*args)

    monkeypatch.setattr(os, "pwrite", fail_once)
    with pytest.raises(OSError, match="the disk says no"):
        write(tmp_path / "file", CONTENT)


def test_a_system_without_direct_access(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_O_DIRECT", 0)
    write(tmp_path / "file", CONTENT)
    assert read(tmp_path / "file", 3, len(CONTENT)) == CONTENT[3:]
