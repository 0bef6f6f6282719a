"""What changes in a module beside its parameters, and what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import psflow  # noqa: E402
from psflow.ps_runtime.errors import ModelFnError, UsageError  # noqa: E402
from tests.ps_runtime.torch_modules.trainings import X, Y, of, trained  # noqa: E402


class Frozen(nn.Module):
    """A frozen layer, two names of one parameter, a constant, a temporary buffer, and a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.first.requires_grad_(False)
        self.again = self.last
        self.unused = nn.Linear(2, 2)
        self.register_buffer("scale", torch.full((3,), 0.1))
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x: Any) -> Any:
        self.seen.add_(1)
        return self.again(self.last(self.first(x * self.scale))).sum(dim=1)


def test_what_no_gradient_moves_stays(tmp_path: Path) -> None:
    estimator = trained(Frozen, of(X), tmp_path)
    names = set(estimator.get_variable_names()) - {"global_step"}
    assert names == {f"{layer}.{part}" for layer in ("first", "last", "unused") for part in ("weight", "bias")} | {
        "scale"
    }
    torch.manual_seed(1)
    first, after = Frozen().state_dict(), estimator.to_torch().state_dict()
    assert {name for name in first if not torch.equal(first[name], after[name])} == {
        "last.weight", "last.bias", "again.weight", "again.bias",
    }  # fmt: skip


class Writes(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("ema", torch.zeros(3))
        self.register_buffer("spread", torch.ones(3))
        self.what = what

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            if self.what == "ema":
                self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)
            if self.what == "again":
                self.ema = self.ema * 0.9 + x.mean(0) * 0.1
            elif self.what == "weight":
                self.layer.weight.clamp_(-1, 1)
            elif self.what == "data":
                self.layer.weight.data.clamp_(-0.01, 0.01)
            elif self.what == "function":
                F.batch_norm(x, self.ema, self.spread, training=True)
        return self.layer(x).detach() if self.what == "detached" else self.layer(x)


class Tracks(nn.Module):
    """Three buffers of its own: a moving average, a counter and the last value; and spectral normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 1))
        self.register_buffer("ema", torch.zeros(3))
        self.register_buffer("seen", torch.tensor(5))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.ema.mul_(0.75).add_(x.mean(0), alpha=0.25)
            self.seen += len(x)
            self.last = x[-1].clone()
        return self.layer(x - self.ema).squeeze(1)


RULES = {"ema": psflow.MovingAverage(0.25), "se*": psflow.Counter(), "last": psflow.MovingAverage(1.0)}


def test_buffers_with_a_rule_are_those_of_plain_torch(tmp_path: Path) -> None:
    estimator = trained(Tracks, of(X), tmp_path, head=None, loss=F.mse_loss, buffers=RULES)
    torch.manual_seed(1)
    plain = Tracks()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for start in [*range(0, 40, 8)] * 5:
        optimizer.zero_grad()
        batch = slice(start, start + 8)
        F.mse_loss(plain(torch.from_numpy(X[batch])), torch.from_numpy(Y[batch])).backward()
        optimizer.step()
    found, expected = estimator.to_torch().state_dict(), plain.state_dict()
    assert found.keys() == expected.keys()
    assert int(found["seen"]) == 5 + 200
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-6), name


class KeepsNorm(nn.Module):
    """Keeps its normalization in evaluation mode, as fine-tuning does."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(3), nn.Linear(3, 1)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Any) -> Any:
        return self.layer(self.norm(x)).squeeze(1)


def test_the_train_of_a_module_is_called(tmp_path: Path) -> None:
    net = trained(KeepsNorm, of(X), tmp_path).to_torch()
    assert net.norm.running_mean.tolist() == [0.0, 0.0, 0.0]
    assert int(net.norm.num_batches_tracked) == 0


class Instances(nn.Module):
    """Instance normalization, whose batches torch does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.InstanceNorm1d(1, track_running_stats=True)
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Any) -> Any:
        return self.layer(self.first(x.unsqueeze(1)).squeeze(1)).squeeze(1)


def test_instances_are_normalized_as_in_torch(tmp_path: Path) -> None:
    found = trained(Instances, of(X), tmp_path).to_torch().state_dict()
    plain = Instances()
    for start in [*range(0, 40, 8)] * 5:
        plain(torch.from_numpy(X[start : start + 8]))
    for name, value in plain.state_dict().items():
        assert "layer" in name or torch.allclose(found[name], value, rtol=1e-5), name


class Shifted(nn.Module):
    """A constant, and batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.ones(3))
        self.norm, self.layer = nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.norm(x + self.shift)).squeeze(1)


def scripted() -> Any:
    return torch.jit.script(Shifted())


def traced() -> Any:
    return torch.jit.trace(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), torch.zeros(2, 3))


NORM = {"norm.running_*": psflow.MovingAverage(0.1), "norm.num_*": psflow.Counter()}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_modules_learn_as_plain_ones(tmp_path: Path) -> None:
    plain = trained(Shifted, of(X), tmp_path / "plain").to_torch().state_dict()
    found = trained(scripted, of(X), tmp_path / "scripted", buffers=NORM).to_torch().state_dict()
    assert found.keys() == plain.keys()
    assert int(found["norm.num_batches_tracked"]) == 25
    for name, value in plain.items():
        assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-6), name
    with pytest.raises(ModelFnError, match=r"changes its buffer norm\.running_mean .* buffers={'norm\.running_mean'"):
        trained(scripted, of(X), tmp_path / "no")
    assert trained(traced, of(X), tmp_path / "traced").evaluate(of(X))["loss"] < 0.01


class Masked(nn.Module):
    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1), persistent=persistent)

    def forward(self, x: Any) -> Any:
        return self.layer(x @ self.mask.softmax(dim=1))


def test_a_mask_is_no_state(tmp_path: Path) -> None:
    trained(Masked, of(X), tmp_path / "job", params={"persistent": False})
    with pytest.raises(ModelFnError, match=r"Masked\.mask holds NaN or infinite numbers, .* persistent=False"):
        trained(Masked, of(X), tmp_path / "no", params={"persistent": True})


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (Writes, {"params": {"what": "ema"}}, r"Writes changes its buffer ema in training"),
        (Writes, {"params": {"what": "again"}}, r"Writes replaces its buffer ema"),
        (Writes, {"params": {"what": "weight"}}, r"changes its parameter layer\.weight in place"),
        (Writes, {"params": {"what": "data"}}, r"changes its parameter layer\.weight in place"),
        (Writes, {"params": {"what": "function"}}, r"Writes changes its buffer ema in training"),
        (Writes, {"params": {"what": "detached"}}, r"the loss of Writes depends on no parameter"),
        (Tracks, {"buffers": RULES | {"emb": psflow.Counter()}}, r"Tracks has no buffer 'emb'"),
        (Tracks, {"buffers": {"ema": psflow.Adam()}}, r"buffers\['ema'\] is Adam.*, expected MovingAverage"),
    ],
)
def test_writes_without_a_rule_are_refused(module: Any, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        trained(module, of(X), tmp_path, **settings)
