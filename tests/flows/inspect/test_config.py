from __future__ import annotations

from pathlib import Path

import pytest

from psflow.flows import cli
from psflow.flows.inspect.config import config
from psflow.flows.parameters.configuration import read_conf
from psflow.flows.parameters.train import parse_parameters
from psflow.ps_runtime.errors import ConfigError

CONF = """
experiment: t
model: {name: DNNClassifier, params: {hidden_units: [4], n_classes: 2}}
input:
  train: {format: csv, path: "s3://key:secret@bucket/t.csv", label: y}
  eval: {format: csv, path: t.csv, label: y}
train:
  consistency: sync
  max_steps: 2
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(CONF)
    Path("more.yaml").write_text("train:\n  max_steps: 20\nschedule:\n  cron: 0 3 * * *\n")


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("experiment", "t.yaml:2"),
        ("model.params.hidden_units", "t.yaml:3"),
        ("input.train.label", "t.yaml:5"),
        ("train.max_steps", "more.yaml:2"),
        ("train.consistency.name", "t.yaml:8"),
        ("cluster.ps", "command line"),
        ("cluster.workers", "default"),
        ("train.keep_checkpoint_max", "default"),
        ("model_dir", "default"),
        ("code_dir", "directory of t.yaml"),
        ("schedule.cron", "more.yaml:4"),
        ("pipeline.evaluate.checkpoints", "default"),
    ],
)
def test_each_value_says_where_it_was_set(key: str, origin: str) -> None:
    answer = config(["t.yaml", "more.yaml", "cluster.ps=2"], with_origins=True)
    assert answer.facts["origins"][key] == origin
    assert answer.lines is not None
    (line,) = (line for line in answer.lines if line.split()[0] == key)
    assert line.endswith(f" {origin}")


def test_it_is_a_configuration_that_means_the_same() -> None:
    arguments = ["t.yaml", "cluster.ps=2", "input.train.path=t.csv", "schedule.cron=0 3 * * *"]
    answer = config(arguments, with_origins=False)
    assert answer.lines is not None
    Path("again.yaml").write_text("\n".join(answer.lines))
    again, before = read_conf(["again.yaml"]), read_conf(arguments)
    assert parse_parameters(again.settings.values, {}) == parse_parameters(before.settings.values, {})
    assert again.sections == before.sections


def test_it_shows_no_credentials() -> None:
    answer = config(["t.yaml"], with_origins=True)
    assert answer.facts["values"]["input"]["train"]["path"] == "s3://bucket/t.csv"
    assert "secret" not in f"{answer.facts}{answer.lines}"


def test_what_is_no_configuration_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"command line: cluster\.pss: unknown key; did you mean 'ps'\?"):
        config(["t.yaml", "cluster.pss=2"], with_origins=False)
    assert cli.run(["config", "t.yaml", "cluster.pss=2"]) == 2
    assert cli.run(["config", "t.yaml", "--origin"]) == 0
    assert (
        "train.max_steps                      2                                    t.yaml:9" in capsys.readouterr().out
    )
