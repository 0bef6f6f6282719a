"""A pipeline before it starts; what it does is shown in tests/acceptance."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from psflow.flows import cli
from psflow.flows.parameters.configuration import PipelineParameters, read_settings
from psflow.flows.parameters.parsing import parse_as
from psflow.flows.pipeline import _result, pipeline
from psflow.flows.stopping.interrupts import InterruptedRunError, Interrupts
from psflow.ps_runtime.errors import InputError
from tests.flows.conftest import PIPELINE_CONF


@pytest.fixture
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no server and no store, and no flow that begins: whatever is refused is refused before."""

    def only_prepare(
        flow: object, parameters: PipelineParameters, prepare: Callable[..., AbstractContextManager[object]]
    ) -> None:
        with prepare(parameters):
            pytest.fail("a flow would have begun")

    monkeypatch.setattr("psflow.flows.head_start.head_start", lambda *_: nullcontext())
    monkeypatch.setattr("psflow.flows.pipeline.invoke", only_prepare)
    monkeypatch.setattr("psflow.flows.planning.training_plan.prepare_store", lambda: "nobody asks for it")


@pytest.mark.usefixtures("table", "_nothing_starts")
def test_what_is_predicted_at_the_end_is_held_against_the_training_input() -> None:
    Path("new.csv").write_text("b,z\n1,2\n")
    values = {**read_settings(["t.yaml"]).values, "pipeline": {"predict": {"input": "new.csv"}}}
    parameters = parse_as(PipelineParameters, values, {})
    with pytest.raises(InputError, match=r"new\.csv has no column 'a'; its columns are 'b', 'z'"):
        pipeline(parameters)
    assert not Path("runs").exists()


@pytest.mark.usefixtures("_nothing_starts")
def test_what_a_stage_needs_is_missed_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(PIPELINE_CONF)
    answer = io.StringIO()
    assert cli.run(["pipeline", "small.yaml", "pipeline.predict.input=nope.csv", "--json"], answer) == 2
    error = json.loads(answer.getvalue())["error"]
    assert error["type"] == "InputError"
    assert error["message"].endswith(f"there is no file {tmp_path}/nope.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


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
