"""A version is whole or it is not returned."""

from __future__ import annotations

import itertools
import os
import signal

import numpy as np
import pytest

from ps_runtime.transport import arena as arena_module
from ps_runtime.transport.arena import Arena, ArenaReader
from ps_runtime.transport.shared_memory import SharedMemory

SIZE = 1000


def reader_of(arena: Arena) -> ArenaReader:
    assert arena.memory is not None
    return ArenaReader(SharedMemory.attach(os.dup(arena.memory.fd), arena.memory.bytes.size, writable=False))


@pytest.fixture
def ends():
    arena = Arena.shared(SIZE)
    reader = reader_of(arena)
    yield arena, reader
    reader.close()
    arena.close()


def publish(arena: Arena, value: int) -> None:
    arena.begin()
    arena.bytes[:] = value % 256
    arena.end(value)


def test_a_version_is_copied_whole(ends):
    arena, reader = ends
    into = np.zeros(SIZE, np.uint8)
    for version in (0, 1, 2**40):
        publish(arena, version)
        assert reader.read(into) == version
        assert (into == version % 256).all()


def test_there_is_no_version_before_the_first(ends):
    _, reader = ends
    assert reader.read(np.zeros(SIZE, np.uint8)) is None


def test_a_change_under_way_is_not_read(ends, monkeypatch):
    arena, reader = ends
    publish(arena, 1)
    arena.begin()
    copies = []
    monkeypatch.setattr(arena_module.np, "copyto", lambda *_: copies.append(1))
    assert reader.read(np.zeros(SIZE, np.uint8)) is None
    assert not copies


@pytest.mark.parametrize(("num_changes", "expected"), [(1, 2), (3, 4), (10_000, None)])
def test_a_torn_copy_is_made_again_but_not_for_ever(ends, monkeypatch, num_changes, expected):
    arena, reader = ends
    publish(arena, 1)
    copyto, versions = np.copyto, iter(range(2, 2 + num_changes))

    def copy_and_be_overtaken(into, source):
        copyto(into[: SIZE // 2], source[: SIZE // 2])
        version = next(versions, None)
        if version is not None:
            publish(arena, version)
        copyto(into[SIZE // 2 :], source[SIZE // 2 :])

    monkeypatch.setattr(arena_module.np, "copyto", copy_and_be_overtaken)
    into = np.zeros(SIZE, np.uint8)
    assert reader.read(into) == expected
    assert expected is None or (into == expected).all()


def test_no_torn_version_comes_out_while_another_process_writes(ends):
    arena, reader = ends
    child = os.fork()
    if not child:
        for version in itertools.count(1):
            publish(arena, version)
    into = np.zeros(SIZE, np.uint8)
    versions: list[int] = []
    try:
        while len(versions) < 100:
            version = reader.read(into)
            if version is not None:
                assert (into == version % 256).all()
                versions.append(version)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert versions == sorted(versions)


def test_a_private_arena_has_the_same_calls():
    arena = Arena.private(SIZE)
    assert arena.memory is None
    publish(arena, 5)
    assert (arena.bytes == 5).all()
    arena.close()


@pytest.mark.parametrize("make", [Arena.private, Arena.shared])
def test_an_arena_may_be_empty(make):
    arena = make(0)
    publish(arena, 5)
    assert arena.bytes.size == 0
    arena.close()


def test_views_may_outlive_both_ends():
    arena = Arena.shared(SIZE)
    reader = reader_of(arena)
    mine, theirs = arena.bytes.view(np.float32), reader.bytes
    assert not theirs.flags.writeable
    for end in (arena, reader, arena, reader):
        end.close()
    mine[:] = 1.0
    assert (theirs.view(np.float32) == 1.0).all()
