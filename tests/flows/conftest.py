"""A private directory in which ``psflow`` runs as for a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.new_databases import copy_prefect_database, copy_store

ROOT = Path(__file__).parents[2]
PSFLOW = Path(sys.executable).with_name("psflow")
TIMEOUT_SECS = 280

TABLE_CONF = """
experiment: t
model: {name: DNNClassifier, params: {hidden_units: [4], n_classes: 2}}
input:
  train: {format: csv, path: t.csv, label: y, groups: {features: numeric}, batch_size: 2}
  eval: {format: csv, path: t.csv, label: y}
train: {max_steps: 2}
"""
"""Of the table that `table` writes; two steps are an epoch."""

DIGITS_CONF = """
experiment: small
seed: 7
model:
  name: DNNClassifier
  params: {hidden_units: [16], n_classes: 10, optimizer: {name: Adam, learning_rate: 0.003}}
input:
  train: {format: digits, split: train, batch_size: 32, shuffle: true}
  eval: {format: digits, split: test}
train: {max_steps: 60, save_checkpoints_steps: 30}
"""
"""What trains in a second, and for real."""

PIPELINE_CONF = (
    DIGITS_CONF
    + """
cluster: {workers: 0}
pipeline: {predict: {input: "digits:test"}}
"""
)


FILES_OF_A_USER = ("tasks.py", "ps_runtime.py", "flows/__init__.py", "tests/__init__.py", "benchmarks/__init__.py")
"""What a user may well have beside a configuration; psflow imports none of it."""


@dataclass(frozen=True)
class Project:
    """A working directory with its own MLflow store and Prefect home, and files named as some of psflow's own."""

    path: Path
    timeout_secs: float = TIMEOUT_SECS
    prefect_url: str | None = None
    """Of a server that is up; without one, each command starts its own."""

    def __post_init__(self) -> None:
        for name in FILES_OF_A_USER:
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(f"raise SystemExit('{name} of the user was imported')")

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
        named = {} if self.prefect_url is None else {"PREFECT_API_URL": self.prefect_url}
        return {**os.environ, "PREFECT_HOME": str(self.path / "prefect"), "PYTHONPATH": path, **named}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``psflow``; its answer comes on stdout, what it says to people on stderr."""
        return subprocess.Popen(
            [PSFLOW, *arguments, "--json"],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a test may signal the whole group, as a terminal does
        )

    def run(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run ``psflow`` and return its answer."""
        return self.heard(*arguments, exit_code=exit_code)[0]

    def heard(self, *arguments: str, exit_code: int = 0) -> tuple[dict[str, Any], str]:
        """Run ``psflow``; return its answer, and what it says to people."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=self.timeout_secs)
        except subprocess.TimeoutExpired:
            process.terminate()
            pytest.fail(f"psflow {' '.join(arguments)} took too long:\n{process.communicate()[1]}")
        assert process.returncode == exit_code, err
        return json.loads(out.splitlines()[-1]), err

    def write(self, name: str, text: str) -> str:
        """Write a file; return its path, as given to ``psflow``."""
        (self.path / name).write_text(text)
        return name


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose MLflow store and Prefect database are there, and empty."""
    copy_store(tmp_path)
    copy_prefect_database(tmp_path / "prefect")
    return Project(tmp_path)


@pytest.fixture
def served_project(tmp_path: Path, prefect_url: str) -> Project:
    """A project whose MLflow store is there, and empty; its commands use the Prefect server that all tests share."""
    copy_store(tmp_path)
    (tmp_path / "prefect").mkdir()
    return Project(tmp_path, prefect_url=prefect_url)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with ``t.csv`` and ``t.yaml``, its configuration."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n5,6,0\n")
    Path("t.yaml").write_text(TABLE_CONF)
    return tmp_path


@pytest.fixture(scope="session")
def digits() -> str:
    return str(ROOT / "conf" / "digits.yaml")
