"""Temporary directories: each is gone with its process, or with the next one."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from psflow.ps_runtime import scratch
from psflow.ps_runtime.scratch import PREFIX, _tidy, hold_scratch, new_scratch, scratch_directory


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def abandoned(parent: Path) -> Path:
    """Make what a killed process leaves: nobody holds its lock."""
    folder = parent / f"{PREFIX}abandoned"
    (folder / "dask-scratch-space" / "worker-x").mkdir(parents=True)
    (folder / "dask-scratch-space" / "global.lock").touch()
    return folder


def test_a_directory_is_there_for_the_time_of_a_block_and_for_its_owner_alone(tmp_path: Path) -> None:
    with scratch_directory() as path:
        assert [str(found) for found in tmp_path.iterdir()] == [path]
        assert os.stat(path).st_mode & 0o077 == 0
        Path(path, "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    folder = abandoned(tmp_path)
    with scratch_directory():
        assert not folder.exists()


def test_that_of_a_living_process_stays(tmp_path: Path) -> None:
    with scratch_directory() as first:
        with scratch_directory() as second:
            assert {str(found) for found in tmp_path.iterdir()} == {first, second}
        assert [str(found) for found in tmp_path.iterdir()] == [first]


def test_that_of_another_host_stays_whose_locks_are_not_seen_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "PREFIX", scratch._prefix("another host"))  # which makes one on a shared TMPDIR
    folder, descriptor = new_scratch(str(tmp_path))
    os.close(descriptor)
    monkeypatch.undo()
    _tidy(str(tmp_path))
    assert Path(folder).exists()


def test_that_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, own = abandoned(tmp_path), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    _tidy(str(tmp_path))
    assert folder.exists()


def test_what_is_no_directory_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / "psflow-other").mkdir()
    with scratch_directory():
        pass
    left = {"elsewhere", f"{PREFIX}link", f"{PREFIX}file", "psflow-other"}
    assert {found.name for found in tmp_path.iterdir()} == left


def test_a_directory_that_another_process_removes_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, mkdtemp = list[str](), tempfile.mkdtemp

    def raced(prefix: str, dir: str) -> str:
        made.append(mkdtemp(prefix=prefix, dir=dir))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", raced)
    with scratch_directory() as path:
        assert made[1:] == [path]


def test_a_directory_stays_until_the_last_one_that_holds_it_is_gone(tmp_path: Path) -> None:
    path, owner = new_scratch(str(tmp_path))
    helper = hold_scratch(path)
    assert helper is not None
    os.close(owner)
    with scratch_directory():
        assert Path(path).exists()
    os.close(helper)
    with scratch_directory():
        assert not Path(path).exists()
    assert hold_scratch(path) is None


def test_without_locks_of_the_file_system_a_directory_is_used_and_none_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = abandoned(tmp_path)

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with scratch_directory() as path:
        assert Path(path).is_dir()
    assert folder.exists()
    assert not Path(path).exists()
