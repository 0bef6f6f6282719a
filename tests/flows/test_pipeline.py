"""A pipeline before it starts; what it does is shown in tests/acceptance."""

from __future__ import annotations

import pytest

from tests.flows.conftest import Project

CONF = """
experiment: small
seed: 7
model:
  name: DNNClassifier
  params: {hidden_units: [16], n_classes: 10, optimizer: {name: Adam, learning_rate: 0.003}}
input:
  train: {format: digits, split: train, batch_size: 32, shuffle: true}
  eval: {format: digits, split: test}
train: {max_steps: 60, save_checkpoints_steps: 30}
cluster: {workers: 0}
pipeline: {predict: {input: "digits:test"}}
"""


pytestmark = pytest.mark.cluster


def test_what_a_stage_needs_is_missed_before_anything_starts(project: Project) -> None:
    conf = project.write("small.yaml", CONF)
    answer = project.run("pipeline", conf, "pipeline.predict.input=nope.csv", exit_code=2)
    assert answer["error"]["type"] == "InputError"
    assert answer["error"]["message"].endswith("there is no file " + str(project.path / "nope.csv"))
    assert not (project.path / "runs").exists()
