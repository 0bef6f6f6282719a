"""A running ``psflow train`` that is scaled, as Prefect shows it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterName,
)
from prefect.client.schemas.objects import StateType, TaskRun
from prefect.settings import PREFECT_API_URL, temporary_settings

from psflow.ps_runtime.checkpoint.job_file import JobFile
from tests.acceptance.conftest import wait_for
from tests.flows.conftest import DIGITS_CONF, TIMEOUT_SECS, Project


@pytest.mark.cluster(shared=True)
def test_a_worker_that_is_scaled_away_and_comes_back_is_no_failure_that_is_retried(
    served_project: Project, prefect_url: str
) -> None:
    conf = served_project.write("c.yaml", DIGITS_CONF + "cluster: {workers: 1, min_workers: 0}\nmodel_dir: job\n")
    job = JobFile(str(served_project.path / "job"))
    process = served_project.start("train", conf, "train.max_steps=100000000", "train.save_checkpoints_steps=1000")
    with temporary_settings({PREFECT_API_URL: prefect_url}), get_client(sync_client=True) as client:
        running = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING]))
        named = TaskRunFilter(name=TaskRunFilterName(any_=["worker-0"]))

        def worker() -> TaskRun | None:
            assert process.poll() is None, process.communicate()[1]
            runs = client.read_task_runs(flow_run_filter=FlowRunFilter(state=running), task_run_filter=named)
            return runs[0] if runs else None

        def is_shown(name: str) -> Callable[[], bool]:
            return lambda: (run := worker()) is not None and run.state_name == name

        wait_for(is_shown("Running"), TIMEOUT_SECS, "a worker")
        for number, name in ((0, "Retired"), (1, "Running")):
            job.want_workers(number)
            wait_for(is_shown(name), TIMEOUT_SECS, f"a worker that is {name}")
        run = worker()
        assert run is not None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_SECS)
        assert client.read_task_run(run.id).run_count == 1
        states = client.read_task_run_states(run.id)
    seen = [(state.name, state.message or "") for state in sorted(states, key=lambda state: state.timestamp)]
    retired = ("Retired", "the job was scaled to fewer workers")
    assert seen[:-1] == [("Pending", ""), ("Running", ""), retired, ("Running", "")]
    assert seen[-1][0] in ("Completed", "Cancelled")
