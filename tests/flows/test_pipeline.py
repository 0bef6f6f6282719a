"""A pipeline before it starts; what it does is shown in tests/acceptance."""

from __future__ import annotations

import signal

import pytest

from psflow.flows.pipeline import _result
from psflow.flows.stopping.interrupts import InterruptedRunError, Interrupts
from tests.flows.conftest import PIPELINE_CONF, Project

pytestmark = pytest.mark.cluster


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
