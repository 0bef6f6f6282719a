"""Faults of the stages of a pipeline are reported before the first one begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psflow.flows.parameters.configuration import PipelineParameters
from psflow.flows.planning.training_plan import plan_attempt
from psflow.flows.replay.export_plan import check_after_training, check_without_training
from psflow.ps_runtime.errors import UsageError
from tests.flows.replay.conftest import CONFIG


def pipeline(model_dir: Path, **stages: Any) -> PipelineParameters:
    return PipelineParameters.model_validate({**CONFIG, "model_dir": str(model_dir), "pipeline": stages})


def check(parameters: PipelineParameters) -> None:
    training = parameters.training()
    check_after_training(parameters, training, plan_attempt(training).plan.model)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        (
            {"export": {"metric": "los", "mode": "min"}},
            r"^pipeline\.export\.metric: the evaluation has loss, but no metric 'los'; did you mean 'loss'\?$",
        ),
        (
            {"evaluate": {"overrides": ["eval.stepz=3"]}},
            r"^pipeline\.evaluate\.overrides: eval\.stepz: unknown key; did",
        ),
        ({"evaluate": {"overrides": ["eval.steps"]}}, r"^pipeline\.evaluate\.overrides: expected key=value with a"),
        (
            {"evaluate": {"overrides": ["input.eval={format: csv, path: nope.csv, label: y}"]}},
            r"there is no file .*/nope\.csv$",
        ),
        (
            {"evaluate": {"overrides": ["model.name=tests.flows.user_models:other_line"]}},
            r"other_line creates variable 'slope' in eval but not in the checkpoint",
        ),
    ],
)
def test_after_a_training(tmp_path: Path, stages: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check(pipeline(tmp_path / "line", **stages))
    check(pipeline(tmp_path / "line", stages=["train"], **stages))  # which is not asked of these
    assert not (tmp_path / "line").exists()


def test_what_is_right_after_a_training(tmp_path: Path) -> None:
    stages = {"evaluate": {"overrides": ["eval.steps=3"]}, "export": {"metric": "loss", "mode": "max"}}
    check(pipeline(tmp_path / "line", **stages))


@pytest.mark.parametrize("stage", ["evaluate", "export"])
def test_without_a_training_there_must_be_one(tmp_path: Path, stage: str) -> None:
    words = r"/line has no config\.yaml: expected a model_dir that psflow has trained in"
    with pytest.raises(UsageError, match=words):
        check_without_training(pipeline(tmp_path / "line", stages=[stage]))
