from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import UsageError
from psflow.tasks.prediction import output_claim as module
from psflow.tasks.prediction.output_claim import OutputClaim

NOW = 1000.0


def claim(tmp_path: Path, now: float = NOW) -> OutputClaim:
    return OutputClaim(FileStore(str(tmp_path)), clock=lambda: now)


def written(tmp_path: Path, process: ProcessId, lease_expires: float) -> None:
    facts = {"owner": asdict(Owner(process, "other", NOW)), "lease_expires": lease_expires}
    (tmp_path / "_owner.json").write_text(json.dumps(facts))


def test_the_second_of_two_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    with claim(tmp_path):
        words = rf"the output {tmp_path} is being written by {ProcessId.current()} since 1970-01-01 00:16:40 UTC; wait"
        with pytest.raises(UsageError, match=words), claim(tmp_path):
            pass
        with pytest.raises(UsageError, match="choose another folder"):
            claim(tmp_path).check_free()
    with claim(tmp_path):
        pass
    assert not (tmp_path / "_owner.json").exists()


@pytest.mark.process
def test_what_a_killed_process_held_is_free(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    written(tmp_path, ProcessId.of(process.pid), NOW)
    with pytest.raises(UsageError, match=f"process {process.pid} on "):
        claim(tmp_path, NOW + 3600).check_free()  # it lives, however old its lease is
    process.kill()
    process.communicate()
    claim(tmp_path).check_free()


@pytest.mark.parametrize(("seconds_later", "is_free"), [(29.0, False), (31.0, True)])
def test_an_owner_of_another_host_lives_as_long_as_its_lease(
    tmp_path: Path, seconds_later: float, is_free: bool
) -> None:
    written(tmp_path, ProcessId("far", "another boot", 7, 1), NOW + 30)
    if is_free:
        claim(tmp_path, NOW + seconds_later).check_free()
    else:
        with pytest.raises(UsageError, match="process 7 on far"):
            claim(tmp_path, NOW + seconds_later).check_free()


def test_an_output_that_is_lost_is_noticed(tmp_path: Path) -> None:
    mine = claim(tmp_path)
    with mine:
        written(tmp_path, replace(ProcessId.current(), boot="another boot"), NOW + 30)
        with pytest.raises(UsageError, match="is being written by"):
            mine.renew()
    assert (tmp_path / "_owner.json").exists()  # it is the other's


def test_a_damaged_claim_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "_owner.json").write_text("{")
    with pytest.raises(UsageError, match=r"_owner.json is damaged .*; remove it if no process writes there"):
        claim(tmp_path).check_free()


def test_who_does_not_wait_for_a_sign_of_life_releases_the_output(tmp_path: Path) -> None:
    def interrupt(timeout_secs: float | None = None) -> None:
        raise KeyboardInterrupt

    mine: Any = claim(tmp_path)
    with pytest.raises(KeyboardInterrupt), mine:
        renewer, mine._renewer = mine._renewer, SimpleNamespace(join=interrupt)
    renewer.join()
    assert not (tmp_path / "_owner.json").exists()


def test_a_sign_of_life_that_hangs_neither_keeps_the_output_nor_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, goes_on = threading.Event(), threading.Event()
    locked = FileStore.locked

    @contextmanager
    def hanging(lock: AbstractContextManager[None]) -> Iterator[None]:
        if threading.current_thread().name == "psflow-output":
            has_begun.set()
            goes_on.wait()
        with lock:
            yield

    monkeypatch.setattr(module, "RENEW_SECS", 0.001)
    monkeypatch.setattr(module, "JOIN_SECS", 0.01)
    monkeypatch.setattr(FileStore, "locked", lambda files, name: hanging(locked(files, name)))
    mine = claim(tmp_path)
    with mine:
        assert has_begun.wait(200)
    assert not (tmp_path / "_owner.json").exists()
    goes_on.set()
    mine._renewer.join(200)
    assert not (tmp_path / "_owner.json").exists()
