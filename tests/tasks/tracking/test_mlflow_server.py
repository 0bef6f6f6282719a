"""The writer against MLflow's own server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, Metrics
from psflow.tasks.tracking.store import VIEW, prepare_store
from psflow.tasks.tracking.tracker import Tracker
from tests.mlflow_server import MlflowServer
from tests.new_databases import copy_store
from tests.tasks.waiting import wait_until

pytestmark = pytest.mark.process(shared=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("served")
    server = MlflowServer(copy_store(folder), folder)
    server.start()
    yield server
    server.stop()


@pytest.mark.cluster(shared=True)
def test_run_of_a_job(server: MlflowServer, exported: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def track(run_id: str | None) -> Tracker:
        tracker = Tracker.open(
            prepare_store(server.url), experiment="e", run_name="r", run_id=run_id, registered_model="psflow-e"
        )
        tracker.handle(Metrics(10, {"loss": 0.5}, role="chief-0", number=1))
        tracker.handle(Checkpoint(10, "/c"))
        tracker.handle(Evaluation(10, {"loss": 0.4}, 1.0))
        tracker.register(Export("best", 10, 1, str(exported), True, {"loss": 0.4}))
        assert tracker.close(timeout_secs=200), tracker.statistics()
        return tracker

    first = track(None)
    again = track(first.run_id)
    client = MlflowClient(server.url, server.url)
    run = client.get_run(first.run_id)
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(first.run_id, "loss")) == 1
    assert len(client.get_metric_history(first.run_id, "eval/loss")) == 1
    assert len(client.search_logged_models([run.info.experiment_id])) == 2
    assert [v.version for v in client.search_model_versions("name = 'psflow-e'")] == ["1"]
    assert again.best == first.best is not None
    assert first.page == f"{server.url}/#/experiments/{run.info.experiment_id}/runs/{first.run_id}?{VIEW}"
    assert first.page in client.get_model_version("psflow-e", "1").description
    assert capfd.readouterr() == ("", "")


def test_what_is_reported_while_the_server_is_away_is_written_when_it_is_back(server: MlflowServer) -> None:
    tracker = Tracker.open(prepare_store(server.url), experiment="e", run_name="stopped")
    tracker.handle(Metrics(0, {"loss": 1.0}))
    wait_until(lambda: tracker.statistics()["pending"] == 0)
    server.stop()
    for step in range(1, 501):
        tracker.handle(Metrics(step, {"loss": 1 / step}))
        tracker.put_tags({"psflow.progress": f"step {step}"})
    tracker.handle(Evaluation(500, {"loss": 0.5}, 1.0))
    assert tracker.statistics()["pending"] > 0  # nobody has waited until it was written
    wait_until(lambda: tracker.statistics()["failures"] > 0)
    server.start()
    assert tracker.close(timeout_secs=200), tracker.statistics()
    client = MlflowClient(server.url, server.url)
    assert [m.step for m in client.get_metric_history(tracker.run_id, "loss")] == list(range(501))
    run = client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["psflow.progress"]) == ("FINISHED", "step 500")
    assert run.data.metrics["eval/loss"] == 0.5
