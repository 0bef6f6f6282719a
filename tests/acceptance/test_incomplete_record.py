"""MLflow away as a training ends: nothing is lost, nothing is there twice, and the command says what to do."""

from __future__ import annotations

import http.client
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from psflow.tasks.tracking.store import prepare_store
from tests.acceptance.conftest import wait_for
from tests.flows.conftest import DIGITS_CONF, Project
from tests.mlflow_server import MlflowServer

READY_SECS = 120.0
FAULTY_SECS = 20.0
PLOTS = [f"plots/{name}.png" for name in ("confusion_matrix", "learning_curves", "precision_recall", "roc")]
LAST_WORDS = "psflow: done, but the MLflow run is incomplete; run the same command again to complete it"

pytestmark = [pytest.mark.piece(number=8), pytest.mark.timeout(900)]


def record(client: MlflowClient) -> dict[str, Any]:
    """Return what a training leaves in its run, the only one."""
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    run_id = run.info.run_id
    models = client.search_logged_models([experiment.experiment_id])
    assert {model.status for model in models} == {"READY"}
    assert sorted(output.model_id for output in run.outputs.model_outputs) == sorted(m.model_id for m in models)
    assert len(client.search_model_versions("name = 'psflow-small'")) == 1
    return {
        "status": run.info.status,
        "stop_reason": run.data.tags.get("psflow.stop_reason"),
        "loss": [point.step for point in client.get_metric_history(run_id, "loss")],
        "accuracy": [point.step for point in client.get_metric_history(run_id, "eval/accuracy")],
        "checkpoints": sorted(m.name for m in models if m.model_type == "checkpoint"),
        "exports": sorted(m.name for m in models if m.model_type == "export"),
        "best": client.get_model_version_by_alias("psflow-small", "best").tags["psflow.step"],
        "plots": sorted(file.path for file in client.list_artifacts(run_id, "plots")),
    }


@pytest.fixture
def expected(project: Project, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the record of an undisturbed training has."""
    project.write("c.yaml", DIGITS_CONF)
    store = f"sqlite:///{project.path}/whole.db"
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", store)
        project.run("train", "c.yaml", "cluster.workers=0", "model_dir=whole")
    found = record(MlflowClient(store, store))
    assert found["plots"] == PLOTS
    return found


def trained(project: Project, model_dir: Path) -> subprocess.Popen[str]:
    """Start a training, and return it once it has a checkpoint."""
    process = project.start("train", "c.yaml", "cluster.workers=0", f"model_dir={model_dir.name}")
    wait_for(lambda: [*model_dir.glob("checkpoints/*/manifest.json")] or process.poll() is not None, READY_SECS, "it")
    return process


def test_what_a_locked_store_lacks_is_completed_by_the_same_command(project: Project, expected: dict[str, Any]) -> None:
    process = trained(project, project.path / "m")
    with closing(sqlite3.connect(project.path / "mlflow.db", isolation_level=None, timeout=60)) as lock:
        lock.execute("begin exclusive")
        _, said = process.communicate(timeout=READY_SECS + 60)
        lock.execute("rollback")
    assert process.returncode == 3, said
    assert said.splitlines()[-1] == LAST_WORDS, said
    assert "retrying for up to" in said
    assert (project.path / "m" / "waiting_notes.json").exists()

    answer = project.run("train", "c.yaml", "cluster.workers=0", "model_dir=m")

    assert answer["mlflow"] == {"complete": True, "lost": 0}
    assert not [*(project.path / "m").glob("waiting_*")]
    store = f"sqlite:///{project.path}/mlflow.db"
    found = record(MlflowClient(store, store))
    assert found == expected
    assert len(found["exports"]) > 1, "one of them was followed by a better one while MLflow was away"


class Faulty(BaseHTTPRequestHandler):
    """Hands each request on; while `is_faulty` every answer to a write is 500, though it was carried out."""

    protocol_version = "HTTP/1.1"
    port = 0
    is_faulty = False
    num_faults = 0

    def _serve(self) -> None:
        content = b"".join(self._content())
        headers = {name: value for name, value in self.headers.items() if name != "Transfer-Encoding"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as there:
            there.request(self.command, self.path, content, headers | {"Host": f"127.0.0.1:{self.port}"})
            answer = there.getresponse()
            status, body, kind = answer.status, answer.read(), answer.headers.get("Content-Type", "text/plain")
        if type(self).is_faulty and self.command != "GET" and not self.path.endswith("/search"):
            type(self).num_faults += 1
            status, body, kind = 500, b"internal error", "text/plain"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _content(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") != "chunked":  # as an empty file comes
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while (size := int(self.rfile.readline(), 16)) or self.rfile.readline() != b"\r\n":
            yield self.rfile.read(size)
            self.rfile.readline()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def faulty(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MlflowServer]:
    """A server of MLflow behind `Faulty`, whose address the commands get."""
    server = MlflowServer(prepare_store(f"sqlite:///{tmp_path}/served.db"), tmp_path)
    server.start()
    Faulty.port = int(server.url.rpartition(":")[2])
    with ThreadingHTTPServer(("127.0.0.1", 0), Faulty) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{proxy.server_address[1]}")
        yield server
        proxy.shutdown()
    server.stop()


def test_what_was_carried_out_and_answered_with_500_is_there_once(
    project: Project, expected: dict[str, Any], faulty: MlflowServer
) -> None:
    process = trained(project, project.path / "m")
    Faulty.is_faulty = True
    threading.Timer(FAULTY_SECS, setattr, (Faulty, "is_faulty", False)).start()
    _, said = process.communicate(timeout=READY_SECS + 60)
    assert process.returncode == 0, said
    assert Faulty.num_faults
    assert record(MlflowClient(faulty.url, faulty.url)) == expected
