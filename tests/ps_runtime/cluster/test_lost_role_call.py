"""A process that is killed while a cluster calls a function in it, or once that has returned."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.cluster import connecting, presence, role_calls
from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.role_calls import RoleCall, RoleCalls
from psflow.ps_runtime.errors import RoleFailedError, RoleLostError
from psflow.ps_runtime.specs.roles import RoleId

CHIEF, WORKER, PS = (RoleId.parse(name) for name in ("chief-0", "worker-0", "ps-0"))
GONE = "tls://127.0.0.1:2"
LIMIT_BYTES = 512 * 2**20


class FutureStub:
    """A future of which Dask says `status`, and `error` if that is to be an error."""

    def __init__(self, status: str, error: Exception | None = None) -> None:
        self.status = status
        self.error = error

    def done(self) -> bool:
        return self.status in ("finished", "error", "cancelled")

    def exception(self, timeout: float) -> Exception | None:
        return self.error


def joined(
    monkeypatch: pytest.MonkeyPatch, later: dict[RoleId, FutureStub], said: tuple[str, ...] = (), **now: FutureStub
) -> None:
    """Join roles whose futures are as they are `now`, then as they are `later`, where the worker's process is gone."""
    client: Any = SimpleNamespace()
    calls = [RoleCall(role, "localhost:1", lambda _: None, serves=role == PS) for role in (CHIEF, WORKER, PS)]
    running = RoleCalls(client, calls)
    futures: Any = {CHIEF: FutureStub("pending"), WORKER: now["worker"], PS: FutureStub("pending")}
    running._futures = futures
    running._slots = {CHIEF: "tls://127.0.0.1:1", WORKER: GONE, PS: "tls://127.0.0.1:3"}
    monkeypatch.setattr(running._presence, "missing", lambda addresses: {GONE})
    monkeypatch.setattr(running, "_event", lambda name: SimpleNamespace(is_set=lambda: name in said))
    monkeypatch.setattr(role_calls, "wait", lambda futures, **options: running._futures.update(later))  # type: ignore[arg-type]
    running.join()


@pytest.mark.parametrize(
    "later",
    [FutureStub("finished"), FutureStub("lost"), FutureStub("error", RuntimeError("no valid worker"))],
    ids=lambda future: future.status,
)
def test_a_task_that_has_returned_is_done_whatever_dask_says_of_it_later(
    monkeypatch: pytest.MonkeyPatch, later: FutureStub
) -> None:
    for status in ("finished", "lost"):
        joined(monkeypatch, {CHIEF: FutureStub("finished"), WORKER: later}, worker=FutureStub(status))


def test_a_task_that_has_returned_before_dask_could_say_so_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ("worker-0-started", "worker-0-returned")
    joined(monkeypatch, {CHIEF: FutureStub("finished")}, said, worker=FutureStub("pending"))


def test_a_failure_beside_a_task_that_has_returned_is_the_one_that_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = FutureStub("error", ValueError("no such input"))
    with pytest.raises(RoleFailedError, match=r"^chief-0 failed: ValueError\('no such input'\)$"):
        joined(monkeypatch, {CHIEF: failed, WORKER: FutureStub("lost")}, worker=FutureStub("finished"))


def test_a_task_that_has_not_returned_is_lost_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RoleLostError, match=rf"^worker-0 failed: its Dask worker {GONE} is gone; check its log, then"):
        joined(monkeypatch, {}, ("worker-0-started",), worker=FutureStub("pending"))


@pytest.mark.cluster
def test_a_process_may_be_killed_once_its_function_has_returned(tmp_path: Path) -> None:
    def write_pid(surroundings: Surroundings) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))

    def outlast(surroundings: Surroundings) -> None:
        while not (tmp_path / "over").exists():
            surroundings.check()
            time.sleep(0.02)

    def await_status(status: str) -> None:
        while running._futures[WORKER].status != status:
            time.sleep(0.02)

    calls = [RoleCall(CHIEF, "localhost:1", outlast), RoleCall(WORKER, "localhost:2", write_pid)]
    with open_cluster(None, 2, 300) as client, RoleCalls(client, calls) as running:
        await_status("finished")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        await_status("lost")
        (tmp_path / "over").touch()
        running.join()


@pytest.mark.cluster
def test_the_role_of_a_process_that_is_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECS", 0.1)
    chief = RoleCall(RoleId.parse("chief-0"), "localhost:1", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    words = r"^chief-0 failed: its Dask worker tls://127\.0\.0\.1:\d+ is gone; check its log, then start again$"
    with (
        caplog.at_level(logging.WARNING, "psflow"),
        open_cluster(None, 1, 300) as client,
        pytest.raises(RoleLostError, match=words),
        RoleCalls(client, [chief]) as running,
    ):
        running.join()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psflow")] == []


@pytest.mark.cluster
def test_a_process_that_takes_too_much_memory_is_gone_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_all(surroundings: Surroundings) -> None:
        held = np.ones(LIMIT_BYTES, np.uint8)
        while held.any():
            surroundings.check()

    monkeypatch.setattr(presence, "LOOK_SECS", 0.1)
    monkeypatch.setattr(connecting, "parse_memory_limit", lambda *given, **options: LIMIT_BYTES)
    words = (
        r"^chief-0 failed: the nanny of its Dask worker tls://127\.0\.0\.1:\d+ killed it at \S+ MiB of its limit of "
        r"512\.00 MiB; the processes share the memory of this machine equally: start fewer workers, or make "
    )
    with (
        open_cluster(None, 1, 300) as client,
        pytest.raises(RoleLostError, match=words),
        RoleCalls(client, [RoleCall(CHIEF, "localhost:1", take_all)]) as running,
    ):
        running.join()
