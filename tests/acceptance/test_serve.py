"""Raw rows three ways: a file for ``psflow predict``, the evaluator, and HTTP requests to ``mlflow models serve``."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.conftest import wait_for
from tests.flows.conftest import ROOT, Project
from tests.free_ports import free_port
from tests.new_databases import copy_store

pytestmark = [pytest.mark.piece(number=3), pytest.mark.ci, pytest.mark.timeout(900)]

RECORD_FILES = (ROOT / "docs" / "howto" / "tables.md").read_text()
PAGE = (ROOT / "docs" / "howto" / "serve.md").read_text()
BODY = re.compile(r"-d \\\n  '(.*)'")
REFUSED = re.compile(r"^\| `(\{.*\})` \| `(.*)` \|$", re.MULTILINE)
UVICORN = "#!{python}\nimport sys\nfrom uvicorn.main import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, prefect_url: str) -> tuple[Project, dict[str, Any]]:
    """The example of the page on tabular files: its files, and what its training answers."""
    project = Project(tmp_path_factory.mktemp("people"), prefect_url=prefect_url)
    copy_store(project.path)
    (project.path / "prefect").mkdir()
    (project.path / "people.yaml").write_text(re.findall(r"```yaml\n(.*?)```", RECORD_FILES, re.DOTALL)[0])
    program = re.findall(r"```python\n(.*?)```", RECORD_FILES, re.DOTALL)[0]
    subprocess.run([sys.executable, "-c", program], cwd=project.path, check=True)
    return project, project.run("train", "people.yaml")


class Environment:
    """What an export requires, and no psflow: the packages of this environment, without what is installed editable."""

    def __init__(self, path: Path) -> None:
        self.bin = path / "bin"
        self.python = self.bin / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
        lib = path / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (lib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (self.bin / "uvicorn").write_text(UVICORN.format(python=self.python))
        (self.bin / "uvicorn").chmod(0o755)
        found = subprocess.run([self.python, "-c", "import psflow"], cwd=path, capture_output=True, text=True)
        assert "No module named 'psflow'" in found.stderr

    @contextmanager
    def serving(self, model: str, folder: Path) -> Iterator[str]:
        """Serve a model as a person does; give the address for its rows."""
        port = str(free_port())
        log = folder / "serve.log"
        command = [
            self.python,
            "-m",
            "mlflow",
            "models",
            "serve",
            "-m",
            model,
            "--env-manager",
            "local",
            "--port",
            port,
        ]
        path = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
        with log.open("wb") as stream:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=stream)
        try:
            wait_for(lambda: "Application startup complete" in log.read_text(), 120, "mlflow models serve")
            yield f"http://127.0.0.1:{port}/invocations"
        finally:
            server.terminate()
            server.wait(120)


@pytest.fixture(scope="module")
def address(trained: tuple[Project, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = Environment(tmp_path_factory.mktemp("environment"))
    export = str(trained[0].path / trained[1]["best"]["export_path"])
    with environment.serving(export, tmp_path_factory.mktemp("server")) as url:
        yield url


def ask(url: str, body: str) -> tuple[int, Any]:
    """Return status and answer of a request, as curl sends it."""
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def as_json(row: dict[str, str]) -> dict[str, Any]:
    return {"age": float(row["age"]) if row["age"] else None, "job": row["job"], "hours": int(row["hours"])}


def test_a_file_the_evaluator_and_a_server_agree(trained: tuple[Project, dict[str, Any]], address: str) -> None:
    project, answer = trained
    files = ["--input", "held_out.csv", "--output", "out", "output_format=csv"]
    project.run("predict", "--model", answer["best"]["model_uri"], *files)
    parts = sorted((project.path / "out").glob("part-*.csv"))
    predicted = [row for part in parts for row in rows_of(part)]
    rows = rows_of(project.path / "held_out.csv")
    assert [row["id"] for row in predicted] == [row["id"] for row in rows]
    assert any(not row["age"] for row in rows)
    of_file = np.array([[float(row[f"probabilities_{label}"]) for label in (0, 1)] for row in predicted])
    status, served = ask(address, json.dumps({"dataframe_records": list(map(as_json, rows))}))
    assert status == 200
    np.testing.assert_allclose(served["predictions"]["probabilities"], of_file, rtol=1e-6)
    labels = np.array([["<=50K", ">50K"].index(row["income"]) for row in rows])
    metrics = answer["best"]["metrics"]
    right = np.array(served["predictions"]["class_ids"])[:, 0] == labels
    assert right.mean() == pytest.approx(metrics["accuracy"], rel=1e-6)
    loss = -np.log(of_file[np.arange(len(rows)), labels]).mean()
    assert loss == pytest.approx(metrics["average_loss"], rel=1e-6)


def test_the_requests_of_the_page_are_answered(address: str) -> None:
    bodies = BODY.findall(PAGE)
    assert len(bodies) == 2
    first, second = (ask(address, body) for body in bodies)
    assert first == second
    assert first[0] == 200
    binary = {"logits", "logistic", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes"}
    assert set(first[1]["predictions"]) == binary
    assert len(first[1]["predictions"]["class_ids"]) == 2


def test_what_is_refused_is_a_sentence_as_the_page_says(address: str) -> None:
    refused = REFUSED.findall(PAGE)
    assert len(refused) == 4
    for body, reason in refused:
        status, answer = ask(address, body)
        assert status == 400
        assert answer["message"].endswith(reason)
        assert "stack_trace" not in answer
