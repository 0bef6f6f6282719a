"""Records of a job in MLflow before training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from psflow.flows.parameters.train import parse_parameters
from psflow.flows.reporting import recording
from psflow.flows.reporting.artifacts import PageLinks
from psflow.ps_runtime.config.files import parse
from psflow.ps_runtime.data.dataset import Dataset

pytestmark = pytest.mark.process


VALUES = {
    "experiment": "t",
    "model": {"name": "DNNClassifier", "params": {"hidden_units": [4], "n_classes": 2}},
    "input": {
        "train": {"format": "csv", "path": "https://key:s3cret@host/t.csv?signature=s3cret", "label": "y"},
        "eval": {"format": "csv", "path": "e.csv", "label": "y"},
    },
    "train": {"max_steps": 2},
}

FORKED_FROM = {"job_id": "j0", "run_id": "r0", "model_dir": "/models/runs/parent", "step": 300}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `open_tracker` and `put_config` tell MLflow of a job in ``runs/t``."""
    files: dict[str, bytes] = {}
    tracker = SimpleNamespace(put_file=files.__setitem__, files=files)
    monkeypatch.setattr(recording.Tracker, "open", lambda uri, **told: SimpleNamespace(**vars(tracker), **told))
    links = PageLinks("f1", "http://host/f1", None, "/models/runs/t", "psflow-t")
    dataset = Dataset({"x": np.zeros((2, 1), np.float32)})
    attempt: Any = SimpleNamespace(
        record=SimpleNamespace(
            job_id="a1b2c3d4", run_id=None, facts={"forked_from": FORKED_FROM, "code_digest": "c0de"}
        ),
        number=1,
        model_dir="/models/runs/t",
        plan=SimpleNamespace(datasets={"train": dataset, "eval": dataset}),
    )
    parameters = parse_parameters(VALUES, {})
    tracker = recording.open_tracker("sqlite:///x", attempt, parameters, links)
    recording.put_config(tracker, parameters)
    return tracker


def test_no_password_is_recorded(told: Any) -> None:
    assert told.params["input.train.path"] == "https://host/t.csv"
    assert [info["source"] for info in told.datasets] == ["https://host/t.csv", str(Path("e.csv").absolute())]
    assert "s3cret" not in str(told)


def test_the_code_is_distinguished_by_its_digest(told: Any) -> None:
    assert told.tags["psflow.code_digest"] == "c0de"


def test_model_dir_is_recorded_as_others_find_it(told: Any) -> None:
    assert told.params["model_dir"] == told.tags["psflow.model_dir"] == "/models/runs/t"


def test_what_is_not_set_is_not_recorded(told: Any) -> None:
    assert told.params["train.max_steps"] == "2"
    assert "seed" not in told.params
    assert "None" not in told.params.values()


def test_the_whole_configuration_is_a_file_of_the_run(told: Any) -> None:
    [(file, content)] = told.files.items()
    assert file == "config.yaml"
    values = parse(content.decode(), file).values
    assert parse_parameters(values, {}).train.max_steps == 2
    assert values["input"]["train"]["path"] == "https://host/t.csv"


def test_run_says_what_it_is_and_where_else_to_look(told: Any) -> None:
    assert told.tags["psflow.kind"] == "train"
    assert told.tags["psflow.prefect_flow_run"] == "f1"
    assert told.tags["mlflow.source.name"]
    assert told.tags["mlflow.note.content"] == (
        "- model_dir: `/models/runs/t`\n- registered model: `psflow-t`\n- Prefect flow run: [f1](http://host/f1)"
    )


def test_a_fork_stands_below_the_run_that_it_began_from(told: Any) -> None:
    assert told.tags["mlflow.parentRunId"] == "r0"
    assert told.tags["psflow.forked_from"] == "/models/runs/parent"
    assert told.tags["psflow.forked_at_step"] == "300"
