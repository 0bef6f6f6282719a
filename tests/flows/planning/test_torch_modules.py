"""A torch module in a configuration: what builds it, and wrong keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import psflow  # noqa: E402
from psflow.flows.parameters.train import parse_parameters  # noqa: E402
from psflow.flows.planning.building import build_training  # noqa: E402
from psflow.ps_runtime.errors import ConfigError  # noqa: E402
from psflow.torch import TorchEstimator  # noqa: E402

MODULE = """
import torch

class Net(torch.nn.Linear):
    pass

def net(width):
    return torch.nn.Linear(width, 10)

def squares(outputs, labels):
    return (outputs - labels).square().mean()

class Own(__import__("psflow").Estimator):
    pass
"""
HEAD = {"name": "MultiClassHead", "n_classes": 10}
WIDTH = {"width": 64}


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def built(**model: Any) -> Any:
    digits = {"format": "digits", "split": "test", "batch_size": 32}
    given = {"experiment": "e", "train": {"max_steps": 9}, "model": model, "input": {"train": digits, "eval": digits}}
    return build_training(parse_parameters(given, {})).estimator


def test_a_class_or_a_function_with_a_head() -> None:
    for name, params in (("Net", {"in_features": 64, "out_features": 10}), ("net", WIDTH)):
        found = built(name=f"torch_models:{name}", params=params, head=HEAD)
        assert isinstance(found, TorchEstimator)
        assert found.params["head"] == psflow.MultiClassHead(10)
        assert found.params["module"].arguments == params
        assert found.params["optimizer"] == psflow.Adam(0.001)


def test_a_loss_and_an_optimizer() -> None:
    optimizer = {"name": "Momentum", "learning_rate": 0.1}
    found = built(name="torch_models:net", params=WIDTH, loss="torch_models:squares", optimizer=optimizer)
    assert found.params["loss"].loss.__name__ == "squares"
    assert found.params["optimizer"] == psflow.Momentum(0.1)
    by_name = built(name="torch_models:net", params=WIDTH, loss="torch_models:squares", optimizer="AdamW")
    assert by_name.params["optimizer"] == psflow.AdamW(0.001)


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ({"name": "Net"}, r"model\.head, model\.loss: expected for a torch module, a head or a loss"),
        ({"name": "Net", "head": HEAD, "loss": "torch_models:squares"}, r"model\.loss: expected one of the two"),
        ({"name": "Net", "head": HEAD | {"name": "MultiClasHead"}}, r"unknown head 'MultiClasHead'.*did you mean"),
        ({"name": "Net", "head": HEAD | {"n_clases": 3}}, r"model\.head\.n_clases: unknown key"),
        (
            {"name": "net", "params": {"width": 9}, "loss": "torch_models:cubes"},
            r"model\.loss: 'torch_models' has no 'cubes'",
        ),
        (
            {"name": "net", "head": HEAD, "params": {"with": 9}},
            r"model\.params: net takes no 'with'; did you mean 'width'",
        ),
        (
            {"name": "Net", "head": HEAD},
            r"model\.params: Net needs 'in_features', which is not given; it takes in_feat",
        ),
        ({"name": "Own", "head": HEAD}, r"model\.head: only for a torch module, but torch_models:Own is none"),
        ({"name": "net", "optimizer": {"name": "Adam"}}, r"model\.optimizer: only for a torch module"),
    ],
)
def test_wrong_keys_are_named(model: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        built(**model | {"name": f"torch_models:{model['name']}"})
