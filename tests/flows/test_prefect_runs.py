"""Flow runs and their task runs in a real Prefect server."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import State
from prefect.logging.handlers import APILogWorker
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.states import Cancelled
from prefect.utilities.callables import parameter_schema

from psflow.flows.invocation import Invocation
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.prefect_runs import TaskRuns, public_flow
from psflow.flows.reporting import plotting
from psflow.flows.reporting import watch as watching
from psflow.flows.reporting.artifacts import PageLinks
from psflow.flows.reporting.watch import Watch, Watched
from psflow.flows.stopping.interrupts import INTERRUPTIONS, AbortedRunError, Interrupts
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import RoleFailedError, StoppedError
from psflow.ps_runtime.roles.events import Export
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.tasks.orphaned_runs import note_cancelling
from psflow.tasks.role_runs import RoleLogs, run_role
from tests.flows.reporting.test_watch import CONF, EVALUATION, METRICS

pytestmark = pytest.mark.cluster(shared=True)

BEST = Export("best", 300, 1, "e", True, {}, role="evaluator-0")


@pytest.fixture(scope="module")
def server(prefect_url: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: prefect_url}), get_client(sync_client=True) as client:
        yield client


class Addresses(logging.Handler):
    """Notes, for each thread that logs, the Prefect server that its log goes to."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, str | None] = {}
        self.lines: list[str] = []
        self.has_all = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        name = threading.current_thread().name
        self.seen[name] = get_current_settings().api.url
        if name == "psflow-watch":
            self.lines.append(record.getMessage())
        if {"psflow-watch", "psflow-plotter"} <= self.seen.keys():
            self.has_all.set()


@pytest.fixture
def addresses() -> Iterator[Addresses]:
    handler = Addresses()
    loggers = [logging.getLogger(name) for name in ("prefect.flow_runs", plotting.__name__)]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)


def test_all_that_is_logged_of_a_job_goes_to_the_server_of_its_flow_run(
    server: SyncPrefectClient, addresses: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOG_SECS", 0.0)
    monkeypatch.setattr(watching, "SLICE_SECS", 0.01)
    monkeypatch.setattr(plotting, "FIRST_SECS", 0.0)
    monkeypatch.setattr(plotting, "learning_curves", None)  # which fails, and is logged
    job: Any = SimpleNamespace(model_dir=str(tmp_path), attempt=1, train_spec=SimpleNamespace(max_steps=600))
    tracker: Any = SimpleNamespace(run_id="r1", page=None, tags={}, newest_step=-1)
    tracker.handle = tracker.put_tags = tracker.put_file = lambda *given: None

    @flow
    def watched() -> None:
        links = PageLinks("f1", None, None, str(tmp_path), "m")
        with Watch(Watched(job, parse_parameters(CONF, {}), None, links), tracker, get_run_logger()) as watch:
            for event in (METRICS, EVALUATION, BEST):
                watch.handle(event)
            assert addresses.has_all.wait(200)

    state: State[Any] = watched(return_state=True)
    assert state.is_completed()
    assert set(addresses.seen.values()) == {str(server.api_url)[: -len("/")]}
    [worker] = [one for one in APILogWorker._instances.values() if isinstance(one, APILogWorker)]
    worker.drain()
    run_id = state.state_details.flow_run_id
    assert run_id is not None
    logs = server.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id])))
    assert addresses.lines
    assert set(addresses.lines) <= {log.message for log in logs}


class EndedJob:
    """Stands for a job of whose roles each has ended, but for the chief."""

    def wait(self, role: RoleId, timeout_secs: float, num_lost: int = 0) -> dict[str, Any] | None:
        match role.role:
            case Role.PS:
                return {"exit": "finished"}
            case Role.WORKER if role.index == 1:
                return {"exit": "abandoned", "reason": "the job was over before it had restarted"}
            case Role.WORKER:
                raise ValueError("no luck")
            case Role.EVALUATOR:
                raise StoppedError(str(role), "it was cancelled")
        return None

    def absence(self, role: RoleId) -> None:
        """All are there."""

    def root_cause(self) -> RoleFailedError:
        return RoleFailedError("worker-0", "ValueError('no luck')")


def test_a_role_is_reported_as_it_ended_though_no_caller_waits_for_it_any_more(
    server: SyncPrefectClient, tmp_path: Path
) -> None:
    states: dict[str, State[Any]] = {}

    @flow
    def ending() -> None:
        with TaskRuns() as task_runs:
            task_runs.stop.set()
            roles = [RoleId(role, 0) for role in (Role.PS, Role.WORKER, Role.EVALUATOR, Role.CHIEF)]
            for role in (*roles, RoleId(Role.WORKER, 1)):
                task_runs.submit(run_role, role, EndedJob(), task_runs.stop, RoleLogs(tmp_path / "roles.log"))
        states.update({role: future.state for role, future in zip("pweca", task_runs._futures, strict=True)})

    ending()
    said = {role: (state.name, state.message) for role, state in states.items()}
    assert said.pop("w")[0] == "Failed"
    assert said == {
        "p": ("Completed", None),
        "e": ("Cancelled", "evaluator-0 was stopped: it was cancelled"),
        "c": ("Cancelled", "chief-0 did not end in time"),
        "a": ("Completed", "the job was over before it had restarted"),
    }


class HeardInterrupts(Interrupts):
    """Notes when a second signal has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.has_second = threading.Event()

    def _take(self, number: int, frame: FrameType | None) -> None:
        try:
            super()._take(number, frame)
        except AbortedRunError:
            self.has_second.set()
            raise


class LongJob:
    """Stands for a job that goes on; while it is waited for the last time, a second signal comes."""

    def __init__(self, task_runs: TaskRuns, interrupts: HeardInterrupts) -> None:
        self.task_runs = task_runs
        self.interrupts = interrupts
        self.is_watched = threading.Event()

    def wait(self, role: RoleId, timeout_secs: float, num_lost: int = 0) -> None:
        self.is_watched.set()
        if self.task_runs.stop.is_set() and not self.interrupts.has_second.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            assert self.interrupts.has_second.wait(200)

    def absence(self, role: RoleId) -> None:
        """All are there."""


def test_a_flow_makes_the_schema_of_its_parameters_when_somebody_asks_for_it() -> None:
    def train(parameters: TrainParameters) -> None:
        """Train."""

    ours = public_flow(name="train", flow_run_name="train")(train)
    assert "parameters" not in vars(ours)
    assert list(signature(ours.fn).parameters) == list(signature(train).parameters) == ["parameters"]
    assert ours.parameters == parameter_schema(ours) == flow(train, name="train").parameters
    assert "TrainParameters" in ours.parameters.definitions


def test_a_second_signal_cancels_the_flow_run_and_its_task_runs(server: SyncPrefectClient, tmp_path: Path) -> None:
    task_runs = TaskRuns()

    @flow
    def aborted() -> State[Any]:
        with HeardInterrupts() as interrupts:
            job = LongJob(task_runs, interrupts)
            try:
                with task_runs:
                    task_runs.submit(
                        run_role, RoleId(Role.PS, 0), job, task_runs.stop, RoleLogs(tmp_path / "roles.log")
                    )
                    assert job.is_watched.wait(200)
                    os.kill(os.getpid(), signal.SIGINT)
                    while True:
                        interrupts.check()
            except INTERRUPTIONS as interrupted:
                return Invocation(None, 0.0).cancelled(interrupted, "the same command resumes")

    state = aborted(return_state=True)
    assert (state.name, state.message) == ("Cancelled", "aborted by a second SIGINT; the same command resumes")
    assert [future.state.name for future in task_runs._futures] == ["Cancelled"]


@pytest.mark.parametrize(("end", "said"), [("well", "COMPLETED"), ("badly", "FAILED"), ("cancelled", "CANCELLED")])
def test_a_run_that_comes_to_its_end_while_it_is_being_cancelled_says_how(
    server: SyncPrefectClient, end: str, said: str
) -> None:
    ids: list[UUID] = []

    @public_flow(name="train", flow_run_name="train")
    def ending() -> dict[str, int] | State[Any]:
        ids.append(UUID(flow_run.id))
        note_cancelling({ids[0]: ProcessId.current()}, "ended by SIGTERM to psflow serve")
        if end == "badly":
            raise ValueError("no luck")
        return {"step": 3} if end == "well" else Cancelled(message="ended by SIGTERM")

    told: State[Any] = ending(return_state=True)
    state = server.read_flow_run(ids[0]).state
    assert state is not None
    assert (state.type.value, told.type.value) == (said, said)
    if end == "badly":
        assert str(state.message).endswith("ValueError: no luck")
