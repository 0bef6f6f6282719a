"""The parameters of a training flow build objects from the user's functions and Estimators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.errors import ConfigError

KINDS = """
import psflow
class Takes(psflow.Estimator):
    def __init__(self, config=None, warm_start_from=None):
        super().__init__(lambda features: None, config=config, warm_start_from=warm_start_from)
class TakesNone(psflow.Estimator):
    def __init__(self, config=None):
        super().__init__(lambda features: None, config=config)
"""


@pytest.fixture(autouse=True)
def user_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "model_of_t.py").write_text("def model(features):\n    return features\n")
    monkeypatch.delitem(sys.modules, "model_of_t", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)


def parameters(model: str, address: str | None, **more: Any) -> TrainParameters:
    values = {
        "experiment": "t",
        "model": {"name": model},
        "input": {"train": {"format": "digits"}, "eval": {"format": "digits"}},
        "train": {"max_steps": 1},
        "cluster": {"address": address},
        **more,
    }
    return parse_parameters(values, {})


@pytest.mark.parametrize("model", ["model_of_t:model", "kinds_of_t:Takes", "LinearClassifier"])
def test_a_warm_start_reaches_any_estimator(model: str, tmp_path: Path) -> None:
    (tmp_path / "user" / "kinds_of_t.py").write_text(KINDS)
    warm_start = {"checkpoint": "runs/old", "variables": "dnn/", "rename": {"a": "b"}}
    settings = build_training(parameters(model, None, warm_start=warm_start)).estimator.warm_start_from
    assert settings is not None
    assert (settings.ckpt_to_initialize_from, settings.patterns) == ("runs/old", ("dnn/",))
    assert settings.previous_names == {"a": "b"}
    assert build_training(parameters(model, None)).estimator.warm_start_from is None


def test_an_estimator_that_cannot_take_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "user" / "kinds_of_t.py").write_text(KINDS)
    with pytest.raises(
        ConfigError, match=r"model.name: kinds_of_t:TakesNone has no parameter warm_start_from; add it, and pass"
    ):
        build_training(parameters("kinds_of_t:TakesNone", None, warm_start={"checkpoint": "runs/old"}))
