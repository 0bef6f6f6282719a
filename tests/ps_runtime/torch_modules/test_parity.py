"""A module that psflow trains, beside the same one in a plain loop of torch, on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import psflow  # noqa: E402
from psflow.ps_runtime.torch_modules.random_numbers import step_seed  # noqa: E402
from psflow.torch import TorchEstimator  # noqa: E402

NUM_STEPS, SEED = 200, 11
X = np.random.default_rng(1).normal(size=(NUM_STEPS, 16, 12)).astype(np.float32) + 2
Y = X[:, :, :4].argmax(axis=2)


class Plain(nn.Module):
    def __init__(self, dtype: str = "float32") -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4)).to(getattr(torch, dtype))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Normalized(nn.Module):
    """Batch normalization twice: once with a momentum, once cumulative."""

    def __init__(self, dropout: float = 0.0, dtype: str = "float32") -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(12, 24, bias=False), nn.BatchNorm1d(24)
        self.drop = nn.Dropout(dropout)
        self.second, self.other = nn.Linear(24, 24, bias=False), nn.BatchNorm1d(24, momentum=None)
        self.last = nn.Linear(24, 4)
        self.to(getattr(torch, dtype))

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.other(self.second(self.drop(torch.tanh(self.norm(self.first(x))))))))


class Shared(nn.Module):
    """One normalization layer, used twice in each step."""

    def __init__(self, dtype: str = "float32") -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 12), nn.BatchNorm1d(12), nn.Linear(12, 4)
        self.to(getattr(torch, dtype))

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(torch.relu(self.first(self.norm(x)))))


def batches() -> Iterator[tuple[Any, Any]]:
    yield from zip(X, Y, strict=True)


def trained(module: Callable[..., Any], optimizer: Any, model_dir: Path, **params: Any) -> dict[str, Any]:
    config = psflow.RunConfig(tf_random_seed=SEED)
    estimator = TorchEstimator(module, psflow.MultiClassHead(4), optimizer, model_dir, config, params=params)
    estimator.train(batches)
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def trained_by_torch(module: Any, optimizer: Any) -> dict[str, Any]:
    for step, (x, y) in enumerate(batches()):
        torch.manual_seed(step_seed(SEED, 0, step))
        optimizer.zero_grad()
        dtype = next(module.parameters()).dtype
        F.cross_entropy(module(torch.from_numpy(x).to(dtype)), torch.from_numpy(y)).backward()
        optimizer.step()
    return {name: value.numpy() for name, value in module.state_dict().items()}


def initial(module: Callable[..., Any], **params: Any) -> Any:
    torch.manual_seed(SEED)
    return module(**params)


OPTIMIZERS = {
    "SGD": (lambda: psflow.GradientDescent(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (lambda: psflow.Momentum(0.01, 0.9), lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)),
    "nesterov": (
        lambda: psflow.Momentum(0.01, 0.9, use_nesterov=True, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "Adam": (
        lambda: psflow.Adam(0.003, epsilon_hat=False, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, 0.003, weight_decay=0.01),
    ),
    "amsgrad": (
        lambda: psflow.Adam(0.003, epsilon_hat=False, amsgrad=True),
        lambda p: torch.optim.Adam(p, 0.003, amsgrad=True),
    ),
    "AdamW": (lambda: psflow.AdamW(0.003), lambda p: torch.optim.AdamW(p, 0.003)),
    "NAdam": (lambda: psflow.NAdam(0.003), lambda p: torch.optim.NAdam(p, 0.003)),
    "RMSprop": (
        lambda: psflow.RMSProp(
            0.001, 0.99, 0.5, 1e-8, centered=True, initial_mean_square=0.0, epsilon_in_root=False, weight_decay=0.01
        ),
        lambda p: torch.optim.RMSprop(p, 0.001, momentum=0.5, centered=True, weight_decay=0.01),
    ),
    "Adagrad": (
        lambda: psflow.Adagrad(0.05, 0.0, epsilon=1e-10, weight_decay=0.01),
        lambda p: torch.optim.Adagrad(p, 0.05, weight_decay=0.01),
    ),
}


MODULES = {
    "plain": (Plain, {}),
    "normalized": (Normalized, {}),
    "with dropout": (Normalized, {"dropout": 0.3}),
    "shared": (Shared, {}),
}


LIMIT = 2.0


def trained_with_clips_and_a_schedule(module: Any) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(module.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, NUM_STEPS, cycle_momentum=False)
    num_clipped = 0
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(module(torch.from_numpy(x).double()), torch.from_numpy(y)).backward()
        num_clipped += int(nn.utils.clip_grad_norm_(module.parameters(), LIMIT) > LIMIT)
        optimizer.step()
        schedule.step()
    assert 20 < num_clipped < NUM_STEPS - 20
    return {name: value.numpy() for name, value in module.state_dict().items()}


def test_clipping_and_a_schedule_as_in_torch(tmp_path: Path) -> None:
    rule = psflow.AdamW(psflow.OneCycle(0.01, NUM_STEPS), clip_norm=LIMIT)
    found = trained(Normalized, rule, tmp_path, dtype="float64")
    for name, value in trained_with_clips_and_a_schedule(initial(Normalized, dtype="float64")).items():
        assert np.abs(found[name] - value).max() <= 1e-5 * np.abs(value).max(), name  # torch adds 1e-6 to the norm


def falling(step: int) -> float:
    return 0.001 * 0.1 ** (step // 40)


def test_the_momentum_of_rmsprop_under_a_schedule_is_that_of_torch(tmp_path: Path) -> None:
    plain = initial(Plain, dtype="float64")
    optimizer = torch.optim.RMSprop(plain.parameters(), 1.0, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, falling)
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(plain(torch.from_numpy(x).double()), torch.from_numpy(y)).backward()
        optimizer.step()
        schedule.step()

    def error(*, rate_in_momentum: bool) -> float:
        rule = psflow.RMSProp(
            falling,
            0.99,
            0.9,
            1e-8,
            initial_mean_square=0.0,
            epsilon_in_root=False,
            rate_in_momentum=rate_in_momentum,
        )
        found = trained(Plain, rule, tmp_path / str(rate_in_momentum), dtype="float64")
        return max(np.abs(found[n] - v.numpy()).max() / v.abs().max().item() for n, v in plain.state_dict().items())

    assert error(rate_in_momentum=False) <= 1e-6
    assert error(rate_in_momentum=True) > 1e-4, "TensorFlow's"


CASES = [
    *((optimizer, "with dropout", "float32") for optimizer in OPTIMIZERS),
    *((optimizer, "plain", "float64") for optimizer in OPTIMIZERS),
    *(("SGD", module, "float64") for module in ("normalized", "shared")),
]


@pytest.mark.parametrize(("optimizer", "module", "dtype"), CASES)
def test_one_replica_learns_as_plain_torch(optimizer: str, module: str, dtype: str, tmp_path: Path) -> None:
    ours, theirs = OPTIMIZERS[optimizer]
    kind, params = MODULES[module][0], MODULES[module][1] | {"dtype": dtype}
    found = trained(kind, ours(), tmp_path, **params)
    plain = initial(kind, **params)
    start = {name: value.clone().numpy() for name, value in plain.state_dict().items()}
    expected = trained_by_torch(plain, theirs(plain.parameters()))
    assert found.pop("global_step") == NUM_STEPS
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(value.astype(np.float64) - start[name]).max() > 1e-4, "it moves"
        error = np.abs(found[name] - value).max() / np.abs(value).max()
        assert error <= (1e-5 if dtype == "float32" else 1e-9), name
