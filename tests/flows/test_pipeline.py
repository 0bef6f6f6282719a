"""A pipeline before it starts; what it does is shown in tests/acceptance."""

from __future__ import annotations

import pytest

from tests.flows.conftest import PIPELINE_CONF, Project

pytestmark = pytest.mark.cluster


def test_what_a_stage_needs_is_missed_before_anything_starts(project: Project) -> None:
    conf = project.write("small.yaml", PIPELINE_CONF)
    answer = project.run("pipeline", conf, "pipeline.predict.input=nope.csv", exit_code=2)
    assert answer["error"]["type"] == "InputError"
    assert answer["error"]["message"].endswith("there is no file " + str(project.path / "nope.csv"))
    assert not (project.path / "runs").exists()
