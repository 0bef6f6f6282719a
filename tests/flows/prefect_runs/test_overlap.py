"""Runs of one deployment that are due while another one of them runs, in a real Prefect server."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_engine import run_flow

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.prefect_runs.overlap import Lease
from psflow.flows.prefect_runs.public_flow import public_flow
from psflow.ps_runtime.errors import ConfigError

pytestmark = [pytest.mark.cluster(shared=True), pytest.mark.usefixtures("prefect_named")]

ANOTHER = """
import sys
from pathlib import Path
from psflow.flows.prefect_runs.overlap import Lease
lease = Lease(sys.argv[1], "5f0c", "train digits to 60")
assert lease.take()
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


def run_of_a_deployment(client: SyncPrefectClient, name: str, *tags: str) -> FlowRun:
    deployment = client.create_deployment(client.create_flow(overlapping), name=name, tags=list(tags))
    return client.create_flow_run_from_deployment(deployment, parameters=PARAMETERS, tags=list(tags))


def outcome(run: FlowRun) -> State[Any]:
    found = run_flow(overlapping, flow_run=run, return_type="state")
    assert isinstance(found, State)
    return found


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "prefect.flow_runs"]


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


def test_a_killed_holder_is_nobody_and_the_next_run_begins(client: SyncPrefectClient) -> None:
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
    monkeypatch.setattr("psflow.flows.prefect_runs.overlap.POLL_SECS", 0.01)
    run = run_of_a_deployment(client, "queues", "overlap:queue")
    with another(run.deployment_id) as holder:

        def end_it() -> None:
            while not any(line.startswith("waiting") for line in logged(caplog)):
                threading.Event().wait(0.01)
            holder.kill()

        threading.Thread(target=end_it, daemon=True).start()
        assert outcome(run).is_completed()
    assert ran == ["one"]
    [line] = [line for line in logged(caplog) if line.startswith("waiting")]
    assert re.fullmatch(f"waiting: {HELD}; schedule.overlap is queue", line)


def test_a_signal_ends_the_wait_of_a_run_that_queues(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(sleep=lambda secs: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr("psflow.flows.prefect_runs.overlap.time", clock)
    run = run_of_a_deployment(client, "ends", "overlap:queue")
    with another(run.deployment_id):
        outcome(run)
    state = client.read_flow_run(run.id).state
    assert state is not None
    assert (state.name, state.message, ran) == ("Cancelled", "ended by SIGTERM; it had not begun", [])


def test_without_a_policy_and_without_a_deployment_no_lease_is_taken(client: SyncPrefectClient, home: Path) -> None:
    assert outcome(run_of_a_deployment(client, "by hand", "psflow")).is_completed()
    assert overlapping(Named()) == "trained"
    assert not home.exists()


def test_nobody_else_reads_a_lease_and_one_that_cannot_be_written_is_told(home: Path) -> None:
    lease = Lease("d1", "r1", "one")
    assert lease.take()
    [file] = (home / "psflow-leases").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
    lease.close()
    assert file.read_text() == ""
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match=r"psflow-leases/d1 cannot be locked: .*; set PREFECT_HOME to a directory"):
        Lease("d1", "r1", "one")
