"""Values of string keys on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psflow.flows.parameters.configuration import is_conf_text, read_conf
from tests.flows.conftest import TABLE_CONF


def read(tmp_path: Path, override: str) -> Any:
    (tmp_path / "t.yaml").write_text(TABLE_CONF)
    conf = read_conf([f"{tmp_path}/t.yaml", override])
    value: Any = {**conf.settings.values, "schedule": conf.sections.schedule, "pipeline": conf.sections.pipeline}
    for name in override.partition("=")[0].split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@pytest.mark.parametrize(
    "override",
    [
        "schedule.cron=*/2 * * * *",
        "schedule.cron=@daily",
        "model_dir={scheduled_time}",
        "model_dir=runs/a: b #1",
        "model_dir=2026",
        "experiment=yes",
        "experiment=1e-3",
        "input.train.path=@data/{a,b}: c.csv",
        "input.eval.path=*.csv",
        "pipeline.predict.input=%new.csv",
        "pipeline.evaluate.checkpoints=100",
        "cluster.address=&host",
    ],
)
def test_a_string_is_taken_as_it_stands(tmp_path: Path, override: str) -> None:
    assert read(tmp_path, override) == override.partition("=")[2]


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.max_steps=12", 12),
        ("cluster.address=null", None),
        ("code_dir=~", None),
        ("input.train.path=[a.csv, 'b: c.csv']", ["a.csv", "b: c.csv"]),
        ("input.train={format: csv, path: a.csv}", {"format": "csv", "path": "a.csv"}),
        ("model.params={units: [3]}", {"units": [3]}),
        ("model.params.name=3", 3),
        ("evals.late.input.path=3", "3"),
        ("unknown=3", 3),
    ],
)
def test_all_else_is_yaml(tmp_path: Path, override: str, value: object) -> None:
    assert read(tmp_path, override) == value


def test_a_key_that_may_be_something_else_than_a_string_is_none() -> None:
    assert not is_conf_text("consistency.name.more", "x")
    assert not is_conf_text("train.optimizer", "x")
