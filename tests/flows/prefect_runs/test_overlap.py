"""Runs of one deployment that are due while another one of them runs, in a real Prefect server."""

from __future__ import annotations

import errno
import fcntl
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.prefect_runs import Lease, public_flow
from psflow.ps_runtime.errors import ConfigError

pytestmark = [pytest.mark.cluster(shared=True), pytest.mark.usefixtures("prefect_named")]

ANOTHER = """
import sys
from pathlib import Path
from psflow.flows.prefect_runs import Lease
lease = Lease(sys.argv[1], "5f0c", "train digits to 60")
assert lease.take() is None
print(flush=True)
input()
"""
HELD = r"run 'train digits to 60' \(5f0c\) has been running since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
PARAMETERS: dict[str, Any] = {"parameters": {}}
ran: list[str] = []


class Named(FlowParameters):
    name: str = "one"


@public_flow(name="overlapping", flow_run_name="overlapping")
def overlapping(parameters: Named) -> str:
    ran.append(parameters.name)
    return "trained"


@public_flow(name="failing", flow_run_name="failing")
def failing(parameters: Named) -> str:
    ran.append(parameters.name)
    if len(ran) % 2:
        raise ValueError("the first attempt fails")
    return "trained"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    ran.clear()
    return tmp_path / "home"


@pytest.fixture
def client() -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


@contextmanager
def another(deployment: UUID | None) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process hold the lease of a deployment."""
    command = [sys.executable, "-c", ANOTHER, str(deployment)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        try:
            yield process
        finally:
            process.kill()


def run_of_a_deployment(
    client: SyncPrefectClient, name: str, *tags: str, flow: Flow[Any, Any] = overlapping
) -> FlowRun:
    deployment = client.create_deployment(client.create_flow(flow), name=name, tags=list(tags))
    return client.create_flow_run_from_deployment(deployment, parameters=PARAMETERS, tags=list(tags))


def outcome(run: FlowRun, flow: Flow[Any, Any] = overlapping) -> State[Any]:
    found = run_flow(flow, flow_run=run, return_type="state")
    assert isinstance(found, State)
    return found


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "prefect.flow_runs"]


def kill_once_waited_for(holder: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture) -> None:
    def kill_it() -> None:
        while not any(line.startswith("waiting") for line in logged(caplog)):
            threading.Event().wait(0.01)
        holder.kill()

    threading.Thread(target=kill_it, daemon=True).start()


def test_a_run_that_is_due_while_another_one_runs_is_skipped_and_says_whose_turn_it_is(
    client: SyncPrefectClient, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of_a_deployment(client, "skips", "psflow", "overlap:skip")
    with another(run.deployment_id):
        outcome(run)
    state = client.read_flow_run(run.id).state
    assert state is not None
    assert (state.name, state.type.value, ran) == ("Skipped", "CANCELLED", [])
    assert state.message is not None
    assert re.fullmatch(f"skipped: {HELD}; schedule.overlap is skip", state.message)
    assert state.message in logged(caplog)


def test_a_killed_holder_does_not_count_and_the_next_run_begins(client: SyncPrefectClient) -> None:
    run = run_of_a_deployment(client, "killed", "overlap:skip")
    with another(run.deployment_id) as holder:
        holder.kill()
        holder.wait()
        assert outcome(run).is_completed()
    assert outcome(run_of_a_deployment(client, "killed", "overlap:skip")).is_completed()  # its own lease is free again
    assert ran == ["one", "one"]


def test_a_run_that_queues_begins_when_the_other_one_has_ended(
    client: SyncPrefectClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psflow.flows.prefect_runs.POLL_SECS", 0.01)
    run = run_of_a_deployment(client, "queues", "overlap:queue")
    with another(run.deployment_id) as holder:
        kill_once_waited_for(holder, caplog)
        assert outcome(run).is_completed()
    assert ran == ["one"]
    [line] = [line for line in logged(caplog) if line.startswith("waiting")]
    assert re.fullmatch(f"waiting: {HELD}; schedule.overlap is queue", line)


@pytest.mark.parametrize("retries", [1, 0], ids=["by the flow", "by somebody in the Prefect UI"])
def test_a_run_that_is_tried_again_waits_for_the_one_that_began_between_its_attempts(
    client: SyncPrefectClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setattr("psflow.flows.prefect_runs.POLL_SECS", 0.01)
    flow = failing.with_options(retries=retries)
    run = run_of_a_deployment(client, f"tried again {retries}", "overlap:skip", flow=flow)
    close = Lease.close
    with ExitStack() as stack:

        def begin_another(lease: Lease) -> None:
            close(lease)
            monkeypatch.setattr(Lease, "close", close)
            kill_once_waited_for(stack.enter_context(another(run.deployment_id)), caplog)

        monkeypatch.setattr(Lease, "close", begin_another)
        state = outcome(run, flow)
        if not retries:
            assert state.is_failed()
            client.set_flow_run_state(run.id, Scheduled(name="AwaitingRetry"))
            state = outcome(client.read_flow_run(run.id), flow)
    assert state.is_completed(), state
    assert ran == ["one", "one"]
    [line] = [line for line in logged(caplog) if line.startswith("waiting")]
    assert re.fullmatch(f"waiting: {HELD}; a retried run waits for the lease", line)


def test_a_run_that_finds_no_seat_until_the_other_one_has_ended_is_skipped_all_the_same(
    client: SyncPrefectClient,
) -> None:
    first, late, later = (run_of_a_deployment(client, "no seat", "overlap:skip") for _ in range(3))
    assert outcome(first).is_completed()
    in_time = run_of_a_deployment(client, "no seat", "overlap:skip")
    for run in (late, later):
        outcome(run)
        state = client.read_flow_run(run.id).state
        assert state is not None
        assert (state.name, ran) == ("Skipped", ["one"])
        said = rf"skipped: run '[\w-]+' \({first.id}\) ran from .* UTC until .* UTC, after this one was due; schedule.*"
        assert re.fullmatch(said, str(state.message))
    assert outcome(in_time).is_completed()


def test_of_runs_that_queue_each_has_its_turn_however_late(client: SyncPrefectClient) -> None:
    runs = [run_of_a_deployment(client, "in turn", "overlap:queue") for _ in range(2)]
    assert all(outcome(run).is_completed() for run in runs)


def test_a_signal_ends_the_wait_of_a_run_that_queues(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(sleep=lambda secs: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr("psflow.flows.prefect_runs.time", clock)
    run = run_of_a_deployment(client, "ends", "overlap:queue")
    with another(run.deployment_id):
        outcome(run)
    state = client.read_flow_run(run.id).state
    assert state is not None
    assert (state.name, state.message, ran) == ("Cancelled", "ended by SIGTERM; it had not started", [])


def test_without_a_policy_and_without_a_deployment_no_lease_is_taken(client: SyncPrefectClient, home: Path) -> None:
    assert outcome(run_of_a_deployment(client, "manually", "psflow")).is_completed()
    assert overlapping(Named()) == "trained"
    assert not home.exists()


def test_only_its_owner_reads_a_lease_and_one_that_cannot_be_written_is_reported(home: Path) -> None:
    lease = Lease("d1", "r1", "one")
    assert lease.take() is None
    [file] = (home / "psflow-leases").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
    lease.close()
    file.unlink()
    file.mkdir()
    with pytest.raises(
        ConfigError, match=r"psflow-leases/d1 cannot be locked: .*; set PREFECT_HOME to a writable directory"
    ):
        Lease("d1", "r1", "one")


def test_a_file_system_without_locks_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(descriptor: int, command: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    lease = Lease("d1", "r1", "one")
    monkeypatch.setattr(fcntl, "lockf", lockf)
    with pytest.raises(
        ConfigError, match=r"psflow-leases/d1 cannot be locked: No locks available; set PREFECT_HOME to "
    ):
        lease.take()
    lease.close()
