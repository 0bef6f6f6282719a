"""Flows that Prefect starts: on a schedule, manually, twice, cancelled, killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import yaml
from prefect.client.schemas.objects import FlowRun, State

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.conftest import Served, wait_for
from tests.flows.conftest import DIGITS_CONF

pytestmark = [pytest.mark.piece(number=3), pytest.mark.timeout(1200)]

SCHEDULE = """
model_dir: runs/every_minute/{scheduled_time}
schedule: {flow: train, cron: "* * * * *"}
"""
START_SECS = 500.0
"""For a whole run beside others: on a slow, busy machine one took more than 200 s."""
END_SECS = 120.0
"""For what hangs at its end: all roles end within 10 s of a cancellation, as test_stop.py measures."""


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    files = tmp_path_factory.mktemp("conf")
    for experiment, more in (("by_hand", ""), ("every_minute", SCHEDULE)):
        (files / f"{experiment}.yaml").write_text(DIGITS_CONF.replace("small", experiment) + more)
    served = serve(f"{files}/by_hand.yaml", f"{files}/every_minute.yaml")
    wait_for(lambda: "train/every_minute, on" in log_of(served), START_SECS, "psflow serve")
    return served


@pytest.fixture(autouse=True)
def _two_trainings_of_the_schedule(served: Served) -> Iterator[None]:
    """Pause the schedule once two of its trainings have begun: more of them would load the machine for nothing."""
    yield
    if len(scheduled(served, is_begun)) >= 2:
        served.client.pause_deployment(served.client.read_deployment_by_name("train/every_minute").id)


def scheduled(served: Served, is_so: Callable[[State[Any]], bool]) -> list[FlowRun]:
    """Return the runs of the schedule whose state `is_so`."""
    return [run for run in served.flow_runs("train every_minute") if run.state is not None and is_so(run.state)]


def is_begun(state: State[Any]) -> bool:
    return state.is_running() or state.is_completed()


def log_of(served: Served) -> str:
    return (served.project.path / "serve.log").read_text()


def owner(model_dir: Path) -> psutil.Process | None:
    """Return the process that trains in `model_dir`."""
    try:
        found = json.loads((model_dir / "job.json").read_text())["owner"]
    except FileNotFoundError:
        return None
    return None if found is None else psutil.Process(found["process"]["pid"])


def started(served: Served, name: str, **parameters: Any) -> tuple[UUID, psutil.Process, list[psutil.Process]]:
    """Start a long training; return its id, its process, and the processes of its cluster, once checkpoints exist."""
    model_dir = served.project.path / "runs" / name
    train = {"max_steps": 10_000_000, "save_checkpoints_steps": 500}
    run_id = served.start("train/by_hand", model_dir=str(model_dir), train=train, **parameters)
    wait_for(lambda: list(model_dir.glob("checkpoints/*/manifest.json")), START_SECS, f"a checkpoint of {name}")
    process = owner(model_dir)
    assert process is not None
    return run_id, process, process.children(recursive=True)


@pytest.mark.ci
def test_the_same_idempotency_key_trains_once(served: Served) -> None:
    model_dir = str(served.project.path / "runs" / "once")
    ids = [served.start("train/by_hand", "once", model_dir=model_dir) for _ in range(2)]
    assert ids[0] == ids[1]
    wait_for(lambda: served.state(ids[0]) == "COMPLETED", START_SECS, "the training")
    runs = [run for run in served.mlflow_runs("by_hand") if run.data.tags["psflow.model_dir"] == model_dir]
    assert [(run.info.status, run.data.tags["psflow.attempts"]) for run in runs] == [("FINISHED", "1")]


def test_a_form_trains_what_the_command_trains_and_with_one_number_changed_that(served: Served) -> None:
    """What a form sends if nobody changes anything, and if somebody changes a number, is in tests/browser."""
    runs = served.project.path / "runs"

    def config(name: str) -> dict[str, Any]:
        return yaml.safe_load((runs / name / "config.yaml").read_text()) | {"model_dir": None}

    shown = served.client.read_deployment_by_name("train/by_hand").parameters["parameters"]
    served.project.run("train", f"{shown['code_dir']}/by_hand.yaml", "model_dir=runs/commanded")
    expected = config("commanded")
    for max_steps in (shown["train"]["max_steps"], 90):
        run_id = served.start("train/by_hand", train=shown["train"] | {"max_steps": max_steps})
        wait_for(lambda run_id=run_id: served.state(run_id) == "COMPLETED", START_SECS, "the training")  # type: ignore[misc]
        expected["train"]["max_steps"] = max_steps
        assert config("by_hand") == expected
        assert CheckpointStore(str(runs / "by_hand")).steps()[-1] == max_steps


def test_two_runs_never_train_in_one_model_dir_at_a_time(served: Served) -> None:
    first, process, _ = started(served, "twice")
    second = served.start("train/by_hand", model_dir=str(served.project.path / "runs" / "twice"))
    wait_for(lambda: served.state(second) == "FAILED", START_SECS, "the second run")
    message = str(served.client.read_flow_run(second).state.message)  # type: ignore[union-attr]
    assert f"runs/twice is in use by process {process.pid} on " in message
    assert process.is_running()
    served.client.set_flow_run_state(first, cancelling())
    wait_for(lambda: served.state(first) == "CANCELLED", START_SECS, "the first run")


def cancelling() -> Any:
    from prefect.states import Cancelling

    return Cancelling()


@pytest.mark.ci
def test_a_cancellation_ends_every_role_and_is_told_to_all(served: Served) -> None:
    run_id, process, roles = started(served, "cancelled")
    assert len(roles) > 3
    began = time.monotonic()
    served.client.set_flow_run_state(run_id, cancelling())
    _, alive = psutil.wait_procs([process, *roles], timeout=END_SECS)
    assert not alive, f"{time.monotonic() - began:.1f} s"
    assert owner(served.project.path / "runs" / "cancelled") is None
    wait_for(lambda: served.state(run_id) == "CANCELLED", END_SECS, "the flow run")
    [run] = [r for r in served.mlflow_runs("by_hand") if r.data.tags["psflow.model_dir"].endswith("/cancelled")]
    assert run.info.status == "KILLED"


@pytest.mark.ci
def test_a_cancellation_reaches_a_run_that_prefect_has_not_started(served: Served) -> None:
    conf = served.project.write("here.yaml", DIGITS_CONF.replace("small", "here"))
    process = served.project.start("train", conf, "train.max_steps=10000000", "train.save_checkpoints_steps=500")
    model_dir = served.project.path / "runs" / "here"
    wait_for(lambda: list(model_dir.glob("checkpoints/*/manifest.json")), START_SECS, "a checkpoint")
    [run] = served.flow_runs("train here")
    served.client.set_flow_run_state(run.id, cancelling())
    _, err = process.communicate(timeout=END_SECS)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert served.state(run.id) == "CANCELLED"
    assert [r.info.status for r in served.mlflow_runs("here")] == ["KILLED"]


@pytest.mark.ci
def test_a_killed_run_is_closed_and_its_retry_resumes_the_same_mlflow_run(served: Served) -> None:
    run_id, process, roles = started(served, "killed")
    os.kill(process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(roles, timeout=END_SECS)
    assert not alive
    wait_for(lambda: served.state(run_id) == "CRASHED", END_SECS, "the flow run")

    def runs() -> list[Any]:
        return [r for r in served.mlflow_runs("by_hand") if r.data.tags["psflow.model_dir"].endswith("/killed")]

    wait_for(lambda: runs()[0].info.status == "KILLED", END_SECS, "the MLflow run")
    steps = [
        int(path.parent.name[5:]) for path in (served.project.path / "runs/killed").glob("checkpoints/*/manifest.json")
    ]
    again = served.start(
        "train/by_hand", model_dir=str(served.project.path / "runs" / "killed"), train={"max_steps": max(steps) + 5}
    )
    wait_for(lambda: served.state(again) == "COMPLETED", START_SECS, "the second run")
    [run] = runs()
    assert (run.info.status, run.data.tags["psflow.attempts"]) == ("FINISHED", "2")
    assert run.data.tags["psflow.prefect_flow_runs"] == f"{run_id}, {again}"
    assert f"earlier attempts: [{run_id}](http" in run.data.tags["mlflow.note.content"]


def test_a_schedule_of_every_minute_trains_twice_each_its_own_run(served: Served) -> None:
    def two_finished() -> list[FlowRun]:
        found = scheduled(served, State.is_completed)
        return found if len(found) >= 2 else []

    finished = wait_for(two_finished, 400.0, "two trainings")
    runs = served.mlflow_runs("every_minute")
    ended = [run for run in runs if run.info.status == "FINISHED"]
    assert len(ended) >= 2
    assert len({run.data.tags["psflow.model_dir"] for run in runs}) == len(runs)
    assert {run.data.tags["psflow.prefect_flow_run"] for run in ended} >= {str(run.id) for run in finished}
    for run in finished:
        time_of = run.expected_start_time.strftime("%Y%m%dT%H%M%SZ")
        assert (served.project.path / "runs" / "every_minute" / time_of / "checkpoints" / "step_00000060").is_dir()
        assert {"psflow", "every_minute"} <= set(run.tags)
