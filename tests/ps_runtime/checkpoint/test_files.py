from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint import files
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import (
    append_line,
    atomic_write_bytes,
    locked,
    make_directory,
    replacing,
    storing,
)
from psflow.ps_runtime.errors import LostDirectoryError, StoppedError, StorageError, WaitTimeoutError
from tests.full_disk import run_on_small_disk

PowerCuts = Callable[[Callable[[], Any]], Iterator[bool]]


def test_a_power_cut_leaves_the_old_content_or_the_new(tmp_path: Any, power_cuts: PowerCuts) -> None:
    store, path = FileStore(str(tmp_path)), tmp_path / "a" / "b" / "file"
    seen = set()
    for _ in power_cuts(lambda: store.put("a/b/file", b"first")):
        seen.add(path.read_text() if path.exists() else None)
    for _ in power_cuts(lambda: store.put("a/b/file", b"second")):
        seen.add(path.read_text())
    assert seen == {None, "first", "second"}


def test_a_file_that_need_not_be_durable_is_atomic_and_costs_no_sync(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store = FileStore(str(tmp_path))
    store.put("file", b"first", is_durable=False)
    with store.replacing("file", is_durable=False) as stream:
        stream.write(b"third")
        assert store.read("file") == b"first"
    assert store.read("file") == b"third"
    assert store.names("") == ["file"]
    assert synced == []
    store.put("file", b"second")
    assert len(synced) == 2  # file and directory


def test_a_directory_is_made_by_create_alone(tmp_path: Any) -> None:
    def refuse() -> None:
        raise StoppedError("ps-0", "it was lost meanwhile")

    root = tmp_path / "above" / "run"
    store, fenced = FileStore(str(root)), FileStore(str(root), refuse)
    writes: list[Callable[[], object]] = [
        lambda: store.put("a/file", b""),
        lambda: store.write("file", [b""]),
        lambda: store.mark("a/file"),
        lambda: store.append("file", b"\n"),
        lambda: store.directory("a"),
        lambda: store.locked(".lock").__enter__(),
        lambda: store.replacing("file").__enter__(),
    ]
    for write in writes:
        with pytest.raises(LostDirectoryError, match=rf"^{root}: .* has no such directory: it was removed or moved"):
            write()
    assert list(tmp_path.iterdir()) == []
    store.create()
    for write in writes:
        write()
    store.remove_tree("a")
    with pytest.raises(StoppedError):
        fenced.put("a/file", b"")
    assert not (root / "a").exists()


def test_private_files_are_private_from_the_start(tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_text("of somebody who had it open to all")
    before = os.umask(0)
    try:
        with replacing(str(path), is_private=True):
            (unfinished,) = tmp_path.glob(".file.*.tmp")
            assert unfinished.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_mode & 0o777 == 0o600
        FileStore(str(tmp_path)).put("other", b"")
        assert (tmp_path / "other").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


def test_a_failure_leaves_no_temporary_file(tmp_path: Any) -> None:
    with pytest.raises(TypeError):
        atomic_write_bytes(str(tmp_path / "file"), "text")  # type: ignore[arg-type]
    store = FileStore(str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        store.write("file", (bytes(1 // n) for n in (1, 0)))
    assert os.listdir(tmp_path) == []


def test_a_power_cut_in_an_append_loses_no_line_before_it(tmp_path: Any, power_cuts: PowerCuts) -> None:
    path = tmp_path / "log"
    append_line(str(path), b"one\n")
    for is_done in power_cuts(lambda: append_line(str(path), b"three\n")):
        whole = path.read_bytes().rpartition(b"\n")[0].split(b"\n")
        assert whole == [b"one", b"three"] if is_done else whole[0] == b"one"
        if not is_done:
            append_line(str(path), b"two\n")
            assert set(path.read_bytes().split()) <= {b"one", b"two", b"three"}
            path.write_bytes(b"one\n")


def test_append_cuts_off_a_torn_line(url: str) -> None:
    files = FileStore(url)
    files.put("log", b'one\n{"tor')
    files.append("log", b"two\n")
    assert files.read("log") == b"one\ntwo\n"


def test_behind_a_fence_that_is_closed_nothing_changes(url: str) -> None:
    files = FileStore(url)
    files.put("log", b"one\n")
    files.write("large", [b"before"])
    names = files.names("")

    def closed() -> None:
        raise ZeroDivisionError

    late = FileStore(url, closed)
    for write in (
        lambda: late.put("log", b"two\n"),
        lambda: late.append("log", b"two\n"),
        lambda: late.write("large", [b"after"]),
        lambda: late.put("new", b"two\n"),
    ):
        with pytest.raises(ZeroDivisionError):
            write()
    assert (files.read("log"), files.read("large"), files.names("")) == (b"one\n", b"before", names)


def test_a_local_fence_is_asked_last_of_all(tmp_path: Any) -> None:
    seen: list[list[bytes]] = []

    def fence() -> None:
        seen.append(sorted(path.read_bytes() for path in tmp_path.iterdir()))

    files = FileStore(str(tmp_path), fence)
    files.write("file", [b"al", b"l"])
    files.put("file", b"new")
    assert seen == [[b"all"], [b"all", b"new"]]
    assert files.read("file") == b"new"


def test_a_store_lists_measures_and_removes(url: str) -> None:
    files = FileStore(url)
    assert files.names("d") == []
    assert files.size("d/b") is None
    files.put("d/b", b"12")
    files.write("d/a", [b"1", memoryview(b"23")])
    files.mark("d/c")
    assert files.names("d") == ["a", "b", "c"]
    assert [files.size(f"d/{n}") for n in "abc"] == [3, 2, 0]
    assert files.size("d") is None
    files.remove("d/a")
    files.remove("d/a")
    assert files.names("d") == ["b", "c"]
    files.remove_tree("d")
    files.remove_tree("d")
    assert files.size("d/b") is None
    with pytest.raises(FileNotFoundError):
        files.read("d/b")


def test_a_local_path_is_a_copy_only_where_it_must_be(url: str) -> None:
    files = FileStore(url)
    files.put("a", b"content")
    with files.local_path("a") as path, open(path, "rb") as stream:
        assert stream.read() == b"content"
    assert os.path.exists(path) == files.is_local


def test_a_lock_that_another_process_does_not_release_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_TIMEOUT_SECS", 0.02)
    path = tmp_path / "log"
    words = rf"^another process, which holds the lock of {path}, did not release it within 0.02 s: end that process if "
    with open(path, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(WaitTimeoutError, match=words), locked(str(path)):
            pass
        with pytest.raises(WaitTimeoutError, match=words):
            append_line(str(path), b"x\n")
    with locked(str(path)):
        pass
    append_line(str(path), b"x\n")


def test_a_lock_is_free_when_its_holder_is_gone(tmp_path: Any) -> None:
    path = str(tmp_path / ".lock")
    with pytest.raises(ZeroDivisionError), locked(path):
        raise ZeroDivisionError
    with locked(path):
        pass


def test_make_directory_is_idempotent(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        make_directory("a/b")
        make_directory(str(tmp_path / "c" / "d"))
    make_directory("")
    assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "c" / "d").is_dir()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (shutil.Error([("a", "b", "[Errno 13] Permission denied: 'b'")]), "Permission denied"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_cannot_be_written_is_told_with_its_place(tmp_path: Any, error: OSError, reason: str) -> None:
    path = str(tmp_path / "not" / "there" / "yet")
    with pytest.raises(StorageError) as told, storing(path):
        raise error
    again = pickle.loads(pickle.dumps(told.value))
    assert (again.path, again.reason) == (path, reason)
    assert again.free_bytes > 0
    assert str(again).startswith(f"{path} could not be written: {reason} (")


def test_a_file_elsewhere_is_not_told_as_one_that_could_not_be_written(tmp_path: Any) -> None:
    path = str(tmp_path / "export" / "1")
    with pytest.raises(FileNotFoundError, match=r"missing\.py"), storing(path):
        (tmp_path / "missing.py").read_bytes()
    with pytest.raises(StorageError, match="export/1 could not be written: No space left on device"), storing(path):
        raise OSError(
            28, "No space left on device", "/elsewhere/a.py", None, str(tmp_path / "export" / ".tmp" / "a.py")
        )


WRITES = """
import sys
from psflow.ps_runtime.checkpoint.files import replacing
from psflow.ps_runtime.errors import StorageError

for name in ("first", "second"):
    try:
        with replacing(f"{sys.argv[1]}/{name}") as stream:
            stream.write(b"1")
    except StorageError as error:
        print(error)
"""


@pytest.mark.process
def test_a_disk_with_room_but_without_inodes_is_named_so(tmp_path: Path) -> None:
    assert run_on_small_disk(WRITES, tmp_path, "1m,nr_inodes=2") == (
        f"{tmp_path}/second could not be written: No space left on device: too many files, no inodes are left "
        f"(1.0 MB are free); free some space, or correct the permissions of {tmp_path}/second, then run the same "
        "command again\n"
    )
