"""Functions that a real Dask cluster calls as tasks of roles: they meet, fail, are lost, and leave nothing behind."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, get_worker

from psflow.ps_runtime.cluster import called_task, role_calls, role_tasks
from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.role_calls import CallRecords, RoleCall, RoleCalls
from psflow.ps_runtime.errors import RoleFailedError, RoleLostError, StoppedError, UsageError, WaitTimeoutError
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.events import FirstStep
from psflow.ps_runtime.specs.roles import RoleId
from tests.leak_guard import no_leaks
from tests.limits import HANG_SECS

pytestmark = pytest.mark.cluster(shared=True)
CHIEF, WORKER, PS = (RoleId.parse(name) for name in ("chief-0", "worker-0", "ps-0"))
HERE = "localhost:2222"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, 3, 300) as client:
        yield client


def call(
    role: RoleId, function: Callable[[Surroundings], object], *, waits: bool = False, serves: bool = False
) -> RoleCall:
    return RoleCall(role, HERE, function, has_barrier=waits, serves=serves)


def run(client: Client, *calls: RoleCall) -> None:
    with RoleCalls(client, calls) as running:
        running.join()


def serve(surroundings: Surroundings) -> None:
    while not threading.Event().wait(0.02):
        surroundings.check()


def events_left(client: Client) -> list[str]:
    def names(dask_scheduler: object) -> list[str]:
        return list(dask_scheduler.extensions["events"]._events)  # type: ignore[attr-defined]

    found: list[str] = client.run_on_scheduler(names)
    return found


def test_tasks_meet_as_often_as_they_like_and_who_serves_ends_with_them(client: Client, tmp_path: Path) -> None:
    def meet(role: RoleId, surroundings: Surroundings) -> None:
        assert surroundings.barrier is not None
        for count in range(4):
            (tmp_path / f"{count} {role} {os.getpid()}").touch()
            surroundings.barrier.wait(HANG_SECS)
            assert len(list(tmp_path.glob(f"{count} *"))) == 2

    def ps(surroundings: Surroundings) -> None:
        assert surroundings.barrier is None
        (tmp_path / f"ps {os.getpid()}").touch()
        serve(surroundings)

    calls = [
        call(role, lambda surroundings, role=role: meet(role, surroundings), waits=True) for role in (CHIEF, WORKER)
    ]
    run(client, call(PS, ps, serves=True), *calls)
    assert len(list(tmp_path.iterdir())) == 9
    assert len({path.name.rpartition(" ")[2] for path in tmp_path.iterdir()}) == 3
    assert events_left(client) == []


def test_the_first_failure_is_raised_with_its_role_and_the_others_end(client: Client) -> None:
    def wait(surroundings: Surroundings) -> None:
        assert surroundings.barrier is not None
        surroundings.barrier.wait(HANG_SECS)

    def fail(surroundings: Surroundings) -> None:
        raise ValueError("no such input")

    words = r"^worker-0 failed: ValueError\('no such input'\) at .*test_role_calls\.py:\d+$"
    with pytest.raises(RoleFailedError, match=words) as caught:
        run(client, call(CHIEF, wait, waits=True), call(WORKER, fail, waits=True), call(PS, serve, serves=True))
    assert isinstance(caught.value.__cause__, ValueError)
    assert events_left(client) == []


@pytest.mark.parametrize("code", [3, "no input"])
def test_who_exits_with_a_code_has_failed_and_with_none_has_returned(client: Client, code: object) -> None:
    run(client, call(CHIEF, lambda _: sys.exit()), call(WORKER, lambda _: sys.exit(0)))
    words = rf"^worker-0 failed: it called sys\.exit\({code!r}\) at .*test_role_calls\.py:\d+$"
    with pytest.raises(RoleFailedError, match=words) as caught:
        run(client, call(CHIEF, serve), call(WORKER, lambda _: sys.exit(code)))
    assert not isinstance(caught.value, RoleLostError)


def test_who_ends_without_the_others_is_named(client: Client) -> None:
    def wait(surroundings: Surroundings) -> None:
        assert surroundings.barrier is not None
        surroundings.barrier.wait(HANG_SECS)

    words = r"^chief-0 failed: chief-0 was stopped: worker-0 ended before the barrier"
    with pytest.raises(RoleFailedError, match=words):
        run(client, call(CHIEF, wait, waits=True), call(WORKER, lambda _: None, waits=True))


def test_a_block_that_is_left_ends_all(client: Client, tmp_path: Path) -> None:
    def begin(surroundings: Surroundings) -> None:
        (tmp_path / str(os.getpid())).touch()
        serve(surroundings)

    def interrupt() -> None:
        with RoleCalls(client, [call(CHIEF, begin), call(PS, begin, serves=True)]):
            while len(list(tmp_path.iterdir())) < 2:
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert events_left(client) == []
    assert not any(client.processing().values())


def test_who_is_interrupted_before_all_are_submitted_leaves_none(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(calls: RoleCalls, call: RoleCall, slot: str) -> None:
        if call.role == WORKER:
            raise KeyboardInterrupt
        submit_one(calls, call, slot)

    submit_one = RoleCalls._submit
    monkeypatch.setattr(RoleCalls, "_submit", submit)
    with pytest.raises(KeyboardInterrupt):
        run(client, call(CHIEF, serve), call(WORKER, pytest.fail))
    with RoleCalls(client, [call(RoleId(PS.role, index), serve) for index in range(3)]):
        pass
    assert events_left(client) == []


def test_who_is_interrupted_while_the_turn_to_start_is_given_back_leaves_none(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def interrupted_lock(*given: Any) -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr(role_calls, "admission_lock", interrupted_lock)
    with pytest.raises(KeyboardInterrupt):
        run(client, call(CHIEF, serve))
    assert events_left(client) == []
    assert not any(client.processing().values())


def test_a_task_that_is_cancelled_before_it_begins_calls_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise StoppedError("chief-0", "its Dask task was cancelled")

    sent: list[str] = []
    worker = SimpleNamespace(log_event=lambda topic, event: sent.append(event[0]))
    monkeypatch.setattr(called_task.Liveness, "of_this_task", lambda role: SimpleNamespace(check=stop))
    monkeypatch.setattr(called_task, "get_worker", lambda: worker)
    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        called_task.call_role(CHIEF, 1, "calls", b"no function", None)
    assert sent == ["RoleStarted", "RoleEnded"]


def test_each_task_needs_a_process_of_its_own_on_its_host(client: Client) -> None:
    roles = [RoleId(WORKER.role, index) for index in range(4)]
    with pytest.raises(UsageError, match=r"^worker-3 is at localhost:2222, and no free Dask worker is on that host: "):
        run(client, *[call(role, pytest.fail) for role in roles])
    words = r"^worker-0 is at 192\.0\.2\.1:1, and no free Dask worker is on that host: .*; all Dask workers are on this"
    with pytest.raises(UsageError, match=words):
        run(client, RoleCall(WORKER, "192.0.2.1:1", pytest.fail))
    with RoleCalls(client, [call(RoleId(PS.role, index), serve) for index in range(2)]):
        with pytest.raises(UsageError) as caught:
            run(client, call(CHIEF, pytest.fail), call(WORKER, pytest.fail))
        assert len(caught.value.faults) == 1


@pytest.mark.parametrize("host", ["127.0.0.2", "0.0.0.0"])
def test_every_address_of_this_machine_is_that_of_its_dask_workers(client: Client, host: str, tmp_path: Path) -> None:
    run(client, RoleCall(WORKER, f"{host}:2222", lambda _: (tmp_path / "called").touch()))
    assert (tmp_path / "called").exists()


def test_a_task_that_does_not_begin_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_tasks, "START_TIMEOUT_SECS", 0.0)
    monkeypatch.setattr(CallRecords, "start", lambda *given: None)
    words = r"^chief-0 did not start within 0 s: check its Dask worker, tls://127\.0\.0\.1:\d+: it may hang, or be busy"
    with pytest.raises(WaitTimeoutError, match=words):
        run(client, call(CHIEF, serve))
    assert events_left(client) == []


def test_an_event_that_no_call_sends_fails_the_calls(client: Client) -> None:
    def send(surroundings: Surroundings) -> None:
        worker = get_worker()
        topic = str(worker.get_current_task()).removesuffix("-chief-0-0")
        worker.log_event(topic, encode_event(FirstStep(role="chief-0", incarnation=1, number=1)))
        serve(surroundings)

    words = r"^chief-0 failed: a called function reports only its start and its end, but sent FirstStep"
    with pytest.raises(RoleFailedError, match=words):
        run(client, call(CHIEF, send))
