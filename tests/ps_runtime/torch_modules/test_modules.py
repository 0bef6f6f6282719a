"""Modules as people build them, and what TorchEstimator refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import psflow  # noqa: E402
from psflow.ps_runtime.errors import ModelFnError, ModelFnTypeError, PsflowError, UsageError  # noqa: E402
from psflow.torch import TorchEstimator, TorchModule, spec  # noqa: E402
from tests.ps_runtime.torch_modules.trainings import REGRESSION, SGD, X, Y, linear, of, trained  # noqa: E402

torch = pytest.importorskip("torch")


NET = TorchModule(nn.Linear, {"in_features": 3, "out_features": 1}, name="net")


def own_model_fn(features: Any, labels: Any, mode: Any, config: Any) -> Any:
    net = NET.bound(mode, config)
    outputs = net(torch.from_numpy(features)).squeeze(1)
    if mode == psflow.ModeKeys.PREDICT:
        return spec(mode, net, predictions=outputs)
    return spec(mode, net, loss=F.mse_loss(outputs, torch.from_numpy(labels)), optimizer=SGD)


def test_a_model_fn_with_a_module(tmp_path: Path) -> None:
    estimator = psflow.Estimator(own_model_fn, tmp_path, psflow.RunConfig(tf_random_seed=1))
    estimator.train(of(X))
    assert estimator.get_variable_names() == ["global_step", "net.bias", "net.weight"]
    assert estimator.evaluate(of(X))["loss"] < 0.01


def test_replicas_and_steps_draw_different_numbers(tmp_path: Path) -> None:
    seen = []

    class Random(nn.Linear):
        def forward(self, x: Any) -> Any:
            seen.append(float(torch.rand(())))
            return super().forward(x)

    before = torch.get_rng_state()
    trained(Random, of(X), tmp_path, params={"in_features": 3, "out_features": 1})
    assert len(set(seen[-25:])) == 25
    again = list(seen[-25:])
    seen.clear()
    trained(Random, of(X), tmp_path / "again", params={"in_features": 3, "out_features": 1})
    assert seen[-25:] == again
    torch.set_rng_state(before)


class Weighted(nn.Linear):
    def __init__(self, weights: Any) -> None:
        super().__init__(3, 1)
        self.scale = float(weights.sum())

    def forward(self, x: Any) -> Any:
        return super().forward(x * self.scale)


def test_arrays_among_the_arguments_tell_modules_apart(tmp_path: Path) -> None:
    for number in (1.0, 2.0):
        weights = np.full(3, number / 3)
        estimator = trained(Weighted, of(X), tmp_path / str(number), params={"weights": weights})
        assert estimator.to_torch().scale == pytest.approx(number)
        assert estimator.evaluate(of(X))["loss"] < 0.1


class Fails(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        raise ValueError(f"size is {size}")


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.projection = nn.Linear(3, 1), torch.randn(3, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x @ self.projection)


def half() -> Any:
    return nn.Linear(3, 1).to(torch.bfloat16)


def no_module() -> Any:
    return 3


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (Unregistered, {}, r"Unregistered\.projection is random, .* register_buffer\('projection'"),
        (half, {}, r"half\.weight is a bfloat16 tensor"),
        (nn.LazyLinear, {"params": {"out_features": 1}}, r"LazyLinear\.weight has no shape before"),
        (no_module, {}, r"no_module returned a int, expected a torch\.nn\.Module"),
        (Fails, {"params": {"size": 3}}, r"Fails raised ValueError with the arguments size at .*: size is 3"),
        (linear, {"params": {"size": 3}}, r"linear raised TypeError with the arguments size at .*'size'"),
    ],
)
def test_modules_that_cannot_be_built(module: Any, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFnError, match=message):
        trained(module, of(X), tmp_path, **settings)


class LossWithWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.MSELoss, r"loss is .*: give an instance, such as MSELoss\(\)"),
        (LossWithWeight(), r"loss LossWithWeight has parameters"),
    ],
)
def test_a_wrong_loss(loss: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        TorchEstimator(linear, None, model_dir=tmp_path, loss=loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((linear(), REGRESSION), r"module is an instance of Linear: give its class with params"),
        ((linear, None), r"neither head nor loss is given: give one of them"),
        ((linear, "mse"), r"head is 'mse', expected a Head"),
        ((linear, REGRESSION, torch.optim.SGD), r"optimizer is .*, expected an Optimizer"),
        ((linear, REGRESSION, "SGD"), r"optimizer: unknown optimizer 'SGD'.*did you mean 'GradientDescent'"),
        ((linear, REGRESSION, "Momentum"), r"optimizer: 'Momentum' has no default learning rate: give Momentum\("),
    ],
)
def test_wrong_arguments(arguments: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        TorchEstimator(*arguments, model_dir=tmp_path)


@pytest.mark.parametrize(
    ("module", "params", "message"),
    [
        (Fails, {"sizes": 3, "size": 3}, r"params: Fails takes no 'sizes'; it takes size$"),
        (
            Fails,
            {"sizes": 3},
            r"Fails takes no 'sizes'; did you mean 'size'\?\n.*params: Fails needs 'size', .* size$",
        ),
        (
            nn.Linear,
            None,
            r"params: Linear needs 'in_features', .*\n.* needs 'out_features'.* it takes in_features, out_",
        ),
        (no_module, {"size": 3}, r"params: no_module takes no 'size'; it takes none"),
        (nn.Linear, [3, 1], r"params is \[3, 1\], expected the arguments of module by name"),
    ],
)
def test_params_that_a_module_does_not_take(module: Any, params: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        TorchEstimator(module, REGRESSION, model_dir=tmp_path, params=params)
    if not isinstance(params, list):
        with pytest.raises(UsageError, match=message.replace("params", "arguments")):
            TorchModule(module, params or {})


def test_an_optimizer_by_name(tmp_path: Path) -> None:
    assert TorchEstimator(linear, REGRESSION, "NAdam", tmp_path).params["optimizer"] == psflow.NAdam(0.001)


def test_an_estimator_of_a_module_names_the_right_one(tmp_path: Path) -> None:
    for module in (nn.Linear, linear()):
        with pytest.raises(ModelFnTypeError, match=r"is a torch module: train it with psflow\.torch\.TorchEstimator"):
            psflow.Estimator(module, tmp_path)
    with pytest.raises(ModelFnTypeError, match=r"loss is a tensor of torch: return psflow\.torch\.spec"):
        psflow.Adam().minimize(torch.zeros(()))


def rows(number: int) -> Iterator[Any]:
    yield from ((X[:8], Y[:8]) for _ in range(number))


def test_errors_are_psflows(tmp_path: Path) -> None:
    assert issubclass(ModelFnError, PsflowError)
    with pytest.raises(ModelFnError, match=r"linear"):
        trained(linear, lambda: rows(2), tmp_path, params={"bias": 1, "device": "meta"})
