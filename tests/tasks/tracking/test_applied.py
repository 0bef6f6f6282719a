"""Requests that MLflow has applied, though it answered with an error: a retry makes nothing twice and drops nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST

from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, Metrics
from psflow.tasks.tracking import store as store_module
from psflow.tasks.tracking import tracker as tracker_module
from psflow.tasks.tracking.child_run import open_child_run
from psflow.tasks.tracking.store import retried
from psflow.tasks.tracking.tracker import Tracker

WRITES = (
    "create_experiment",
    "create_run",
    "set_tag",
    "log_batch",
    "log_inputs",
    "update_run",
    "create_logged_model",
    "log_model_artifacts",
    "log_outputs",
    "finalize_logged_model",
    "create_registered_model",
    "create_model_version",
    "set_registered_model_alias",
    "log_artifact",
    "set_terminated",
)
"""All methods by which a tracker changes something, in the order of a job."""
GROUPS = 4
"""So that none of them fails so often at one event that it is given up."""


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "WRITE_EVERY_SECS", 0.01)
    monkeypatch.setattr(tracker_module, "MAX_BACKOFF_SECS", 0.02)


def applied_and_failed(method: Callable[..., Any], num_failures: list[int]) -> Callable[..., Any]:
    """Return `method` as one that does its work, and answers once with an error all the same."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if not num_failures[0]:
            num_failures[0] += 1
            raise MlflowException("API request failed with error code 500: internal error")
        return result

    return call


def train(open_tracker: Callable[..., Tracker], exported: Path) -> Tracker:
    tracker = open_tracker(
        tags={"psflow.job_id": "a1"},
        params={"steps": 2},
        datasets=[{"name": "digits", "context": "train", "digest": "d", "schema": {}, "source": "digits"}],
    )
    for event in (
        Metrics(1, {"loss": 0.5}, time=1.0),
        Checkpoint(1, "/model/checkpoints/step_00000001"),
        Evaluation(1, {"loss": 0.4, "global_step": 1}, 1.0, time=2.0),
        Export("best", 1, 1, str(exported), True, {"loss": 0.4}),
    ):
        tracker.handle(event)
    tracker.register(event)
    tracker.put_tags({"psflow.stop_reason": "done"})
    tracker.put_file("plots/roc.png", b"png")
    assert tracker.close("FINISHED", timeout_secs=200), tracker.statistics()
    assert tracker.statistics()["dropped"] == 0
    return tracker


@pytest.mark.parametrize("names", [WRITES[group::GROUPS] for group in range(GROUPS)])
def test_what_was_applied_is_there_once(
    store: str,
    open_tracker: Callable[..., Tracker],
    exported: Path,
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_failures = {name: [0] for name in names}
    for name, failures in num_failures.items():
        monkeypatch.setattr(MlflowClient, name, applied_and_failed(getattr(MlflowClient, name), failures))
    for _ in range(2):  # the second time a run is resumed
        tracker = train(open_tracker, exported)
    assert num_failures == {name: [1] for name in names}

    client = MlflowClient(store, store)
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (tracker.run_id, "FINISHED")
    assert run.data.params == {"steps": "2"}
    assert run.data.tags["psflow.stop_reason"] == "done"
    assert len(run.inputs.dataset_inputs) == 1
    for key in ("loss", "eval/loss"):
        assert [point.step for point in client.get_metric_history(tracker.run_id, key)] == [1], key
    models = client.search_logged_models([experiment.experiment_id])
    assert sorted((model.name, model.status) for model in models) == [("best-1", "READY"), ("checkpoint-1", "READY")]
    assert sorted(output.model_id for output in run.outputs.model_outputs) == sorted(m.model_id for m in models)
    [version] = client.search_model_versions("name = 'psflow-digits'")
    assert client.get_model_version_by_alias("psflow-digits", "best").version == version.version
    assert [file.path for file in client.list_artifacts(tracker.run_id, "plots")] == ["plots/roc.png"]


def test_a_run_below_another_is_made_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    num_failures = [0]
    monkeypatch.setattr(MlflowClient, "create_run", applied_and_failed(MlflowClient.create_run, num_failures))
    tracker = open_child_run(
        store, kind="evaluate", experiment="e", model_dir="m", parent=None, run_name="r", tags={}, is_new=True
    )
    assert tracker.close(timeout_secs=200)
    client = MlflowClient(store, store)
    [experiment] = client.search_experiments(filter_string="name = 'e'")
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, num_failures) == (tracker.run_id, [1])


def test_what_is_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(error: Exception) -> None:
        asked.append(error)
        raise error

    for error, num_times in (
        (MlflowException("no such run", RESOURCE_DOES_NOT_EXIST), 1),
        (MlflowException("internal error"), store_module.MAX_TRIES),
        (ConnectionRefusedError("nobody is there"), store_module.MAX_TRIES),
    ):
        asked.clear()
        with pytest.raises(type(error)):
            retried(partial(ask, error))
        assert len(asked) == num_times
