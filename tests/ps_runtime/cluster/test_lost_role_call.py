"""A process that is killed while a cluster calls a function in it, or once that has returned."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.cluster import connecting, membership
from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.role_calls import CallRecords, RoleCall, RoleCalls
from psflow.ps_runtime.errors import RoleLostError
from psflow.ps_runtime.specs.roles import RoleId
from tests.failing_slots import hang, lose_slots

CHIEF, WORKER = (RoleId.parse(name) for name in ("chief-0", "worker-0"))
GONE = "tls://127.0.0.1:2"
LIMIT_BYTES = 512 * 2**20


@pytest.fixture
def records() -> CallRecords:
    """Two calls that run."""
    records = CallRecords([CHIEF, WORKER], first_incarnation=1)
    for role, slot in ((CHIEF, "tls://127.0.0.1:1"), (WORKER, GONE)):
        records.start(role, records.place(role, slot))
    return records


def test_a_function_that_has_returned_is_done_whatever_becomes_of_its_process(records: CallRecords) -> None:
    records.finish(WORKER, 1, None)
    lose_slots(records, [GONE])
    records.fail(WORKER, 1, RuntimeError("no valid worker"))
    assert (records.errors(), records.has_ended(WORKER), records.all_ended()) == ([], True, False)


def test_the_others_do_not_go_on_without_a_function_that_hangs(records: CallRecords) -> None:
    assert not any(map(records.can_do_without, (CHIEF, WORKER)))


@pytest.mark.parametrize("in_order", [False, True])
def test_a_function_that_has_not_returned_is_lost_with_its_process(records: CallRecords, in_order: bool) -> None:
    lose_slots(records, [GONE], in_order=in_order)
    [(role, error)] = records.errors()
    words = f"its Dask worker {GONE} was {'closed' if in_order else 'lost'}; check its log, then start again"
    assert (role, str(error)) == (WORKER, f"worker-0 failed: {words}")
    assert [member.role for member in records.running()] == [CHIEF]


def test_a_function_that_hangs_is_lost_for_that_and_one_that_dask_starts_again_too(records: CallRecords) -> None:
    hang(records, WORKER, 1, "it did not answer for 30 s")
    assert records.errors() == []
    lose_slots(records, [GONE])
    records.start(CHIEF, 1)
    again = "it was lost, and Dask started it again; check its log, then start again"
    assert [str(error) for _, error in records.errors()] == [
        f"chief-0 failed: {again}",
        "worker-0 failed: it did not answer for 30 s; check its log, then start again",
    ]


@pytest.mark.cluster
def test_a_process_may_be_killed_once_its_function_has_returned(tmp_path: Path) -> None:
    def write_pid(surroundings: Surroundings) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))

    def outlast(surroundings: Surroundings) -> None:
        while not (tmp_path / "over").exists():
            surroundings.check()
            time.sleep(0.02)

    def await_returned() -> None:
        while not running._records.has_ended(WORKER):
            time.sleep(0.02)

    calls = [RoleCall(CHIEF, "localhost:1", outlast), RoleCall(WORKER, "localhost:2", write_pid)]
    with open_cluster(None, 2, 300) as client, RoleCalls(client, calls) as running:
        await_returned()
        killed = {
            address for address, pid in client.run(os.getpid).items() if str(pid) == (tmp_path / "pid").read_text()
        }
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        while killed & client.scheduler_info(n_workers=-1)["workers"].keys():
            time.sleep(0.02)
        (tmp_path / "over").touch()
        running.join()


@pytest.mark.cluster
def test_the_role_of_a_process_that_is_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership, "POLL_SECS", 0.1)
    chief = RoleCall(RoleId.parse("chief-0"), "localhost:1", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    words = r"^chief-0 failed: its Dask worker tls://127\.0\.0\.1:\d+ was lost; check its log, then start again$"
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

    monkeypatch.setattr(membership, "POLL_SECS", 0.1)
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
