"""A pipeline before it starts; what it does is shown in tests/acceptance."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.parsing import parse_as
from psflow.flows.parameters.pipeline import PipelineParameters
from psflow.flows.pipeline import _result, pipeline
from psflow.flows.stopping.interrupts import InterruptedRunError, Interrupts
from psflow.ps_runtime.errors import InputError
from tests.flows.conftest import PIPELINE_CONF, Project


@pytest.mark.usefixtures("table")
def test_what_is_predicted_at_the_end_is_held_against_the_training_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.flows.planning.planned.prepare_store", lambda: "nobody asks for it")
    Path("new.csv").write_text("b,z\n1,2\n")
    values = {**read_settings(["t.yaml"]).values, "pipeline": {"predict": {"input": "new.csv"}}}
    parameters = parse_as(PipelineParameters, values, {})
    with pytest.raises(InputError, match=r"new\.csv has no column 'a'; its columns are 'b', 'z'"):
        pipeline(parameters)
    assert not Path("runs").exists()


@pytest.mark.cluster
def test_what_a_stage_needs_is_missed_before_anything_starts(project: Project) -> None:
    conf = project.write("small.yaml", PIPELINE_CONF)
    answer = project.run("pipeline", conf, "pipeline.predict.input=nope.csv", exit_code=2)
    assert answer["error"]["type"] == "InputError"
    assert answer["error"]["message"].endswith("there is no file " + str(project.path / "nope.csv"))
    assert not (project.path / "runs").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_as_the_last_stage_ends_leaves_nothing_to_do(fails: bool) -> None:
    def stage(parameters: object) -> dict[str, int]:
        signal.raise_signal(signal.SIGTERM)
        if fails:
            raise ValueError("a stage that was ended")
        return {"rows": 3}

    with Interrupts() as interrupts:
        if fails:
            with pytest.raises(InterruptedRunError, match="SIGTERM"):
                _result(stage, None, interrupts)
        else:
            assert _result(stage, None, interrupts) == {"rows": 3}
