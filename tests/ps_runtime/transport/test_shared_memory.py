"""Memory without a name: sealed, freed with its last user."""

from __future__ import annotations

import mmap
import os
import signal

import numpy as np
import pytest

from psflow.ps_runtime.transport import shared_memory
from psflow.ps_runtime.transport.shared_memory import SharedMemory, why_no_shared_memory

PAGE = 4096


@pytest.fixture
def memory():
    memory = SharedMemory.create(3 * PAGE)
    yield memory
    memory.close()


def attach(memory: SharedMemory, nbytes: int = 3 * PAGE, writable: bool = True) -> SharedMemory:
    return SharedMemory.attach(os.dup(memory.fd), nbytes, writable=writable)


def mapped() -> int:
    with open("/proc/self/maps") as maps:
        return sum("/memfd:psflow" in line for line in maps)


def test_it_starts_as_zeros_and_both_see_one_memory(memory):
    assert memory.bytes.size == 3 * PAGE
    assert not memory.bytes.any()
    other = attach(memory)
    memory.bytes[5] = 7
    other.bytes[6] = 8
    assert other.bytes[5:7].tolist() == memory.bytes[5:7].tolist() == [7, 8]
    other.close()


def test_pages_that_nobody_touched_cost_nothing():
    memory = SharedMemory.create(1 << 40)
    memory.bytes[1 << 39] = 1
    assert os.fstat(memory.fd).st_blocks * 512 <= 2 * 1024 * 1024
    memory.close()


def test_its_size_can_never_change(memory):
    for size in (0, PAGE, 4 * PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.fd, size)


def test_a_reader_cannot_write(memory):
    reader = attach(memory, writable=False)
    assert not reader.bytes.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        reader.bytes[0] = 1
    reader.close()


def test_memory_that_others_only_read_is_closed_to_them_whatever_they_try():
    memory = SharedMemory.create(PAGE, writable_by_others=False)
    memory.bytes[0] = 3
    with pytest.raises(PermissionError):
        attach(memory, PAGE)
    again = os.open(f"/proc/self/fd/{memory.fd}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.write(again, b"x")
        with pytest.raises(PermissionError):
            mmap.mmap(again, PAGE)
    finally:
        os.close(again)
    reader = attach(memory, PAGE, writable=False)
    memory.bytes[0] = 4
    assert reader.bytes[0] == 4
    reader.close()
    memory.close()


def test_only_what_cannot_shrink_is_attached(memory):
    with pytest.raises(ValueError, match=r"it has 12288 bytes, expected 4096"):
        attach(memory, PAGE)
    fd = os.memfd_create("loose", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE)
    with pytest.raises(ValueError, match="its size can change"):
        SharedMemory.attach(fd, PAGE, writable=True)
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Invalid argument"):
        SharedMemory.attach(reading, PAGE, writable=True)
    os.close(writing)


def test_views_outlive_close_and_the_mapping_ends_with_them(memory):
    before = mapped()
    other = attach(memory)
    view = other.bytes[PAGE:].view(np.float32)
    other.close()
    other.close()
    view[:] = 2.5
    assert memory.bytes[PAGE:].view(np.float32)[0] == 2.5
    assert mapped() == before + 1
    del view
    assert mapped() == before


def test_one_that_is_dropped_is_closed():
    before = mapped(), len(os.listdir("/proc/self/fd"))
    SharedMemory.create(PAGE)
    assert (mapped(), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.process
def test_a_user_that_is_killed_leaves_nothing(memory):
    child = os.fork()
    if not child:
        attach(memory).bytes[:] = 9
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (memory.bytes == 9).all()
    assert not any(name.startswith("psflow") for name in os.listdir("/dev/shm"))


def test_where_it_cannot_be_had_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(shared_memory.platform, "machine", lambda: "aarch64")
    assert why_no_shared_memory() == "aarch64 does not keep the order of memory accesses that readers rely on"
    monkeypatch.setattr(shared_memory.platform, "machine", lambda: "x86_64")
    assert why_no_shared_memory() == ""
    monkeypatch.delattr(shared_memory.os, "memfd_create")
    assert why_no_shared_memory() == "this system has no memfd_create"
