"""Modules of the user travel to a cluster of others by value, with the modules beside them; installed ones do not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.errors import ConfigError

MODEL = """
import elsewhere_of_t
import helper_of_t
def model(features):
    return helper_of_t.twice(features)
"""


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
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put three modules in two directories; return the names of the modules that are registered."""
    names: list[str] = []
    monkeypatch.setattr(cloudpickle, "register_pickle_by_value", lambda module: names.append(module.__name__))
    for folder, name, text in (
        ("user", "model_of_t", MODEL),
        ("user", "helper_of_t", "def twice(x):\n    return 2 * x\n"),
        ("user", "unused_of_t", ""),
        ("other", "elsewhere_of_t", ""),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    monkeypatch.chdir(tmp_path)
    return names


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


def test_a_module_travels_with_those_beside_it_that_it_has_imported(registered: list[str]) -> None:
    build_training(parameters("model_of_t:model", "tcp://127.0.0.1:1"))
    assert registered == ["helper_of_t", "model_of_t"]


def test_on_a_cluster_of_our_own_nothing_travels(registered: list[str]) -> None:
    build_training(parameters("model_of_t:model", None))
    assert registered == []


def test_what_is_installed_does_not_travel(
    registered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path / "user")])
    build_training(parameters("model_of_t:model", "tcp://127.0.0.1:1"))
    assert registered == []


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
        ConfigError, match=r"model.name: kinds_of_t:TakesNone takes no warm_start_from; take it, and hand"
    ):
        build_training(parameters("kinds_of_t:TakesNone", None, warm_start={"checkpoint": "runs/old"}))
