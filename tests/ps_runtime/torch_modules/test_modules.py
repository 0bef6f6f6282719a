"""Modules as people write them: what forward takes and returns, what is refused, and what stays as it is."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import psflow  # noqa: E402
from psflow.ps_runtime.checkpoint.reader import CheckpointReader  # noqa: E402
from psflow.ps_runtime.checkpoint.store import CheckpointStore  # noqa: E402
from psflow.ps_runtime.errors import InputError, ModelFnError, ModelFnTypeError, PsflowError, UsageError  # noqa: E402
from psflow.ps_runtime.model.evaluation import read_values  # noqa: E402
from psflow.torch import TorchEstimator, TorchModule, spec  # noqa: E402

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = (X @ np.float32([1.0, -2.0, 0.5])).astype(np.float32)
REGRESSION = psflow.RegressionHead()
SGD = psflow.GradientDescent(0.1)


def linear(**params: Any) -> Any:
    return nn.Linear(3, 1, **params)


def of(features: Any, labels: Any = Y) -> Callable[[], Any]:
    return lambda: psflow.Dataset.from_tensor_slices((features, labels)).repeat(5).batch(8)


def trained(module: Any, input_fn: Any, model_dir: Path, *, head: Any = REGRESSION, **settings: Any) -> TorchEstimator:
    estimator = TorchEstimator(module, head, SGD, model_dir, psflow.RunConfig(tf_random_seed=1), **settings)
    estimator.train(input_fn)
    return estimator


class ByName(nn.Module):
    """Takes two features by name, one of them of integers, and leaves a third one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.last = nn.Embedding(5, 2), nn.Linear(5, 1)

    def forward(self, x: Any, city: Any, scale: Any = None) -> Any:
        assert scale is None
        assert city.dtype == torch.int64
        return self.last(torch.cat([x, self.place(city)], dim=1))


class OfMapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)

    def forward(self, batch: dict[str, Any]) -> Any:
        return self.last(batch["x"])


class SideBySide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 1)

    def forward(self, inputs: Any) -> Any:
        return self.last(inputs)


CITIES = np.arange(40) % 5


@pytest.mark.parametrize(
    ("module", "features"),
    [
        (linear, X),
        (linear, X.astype(np.float64)),
        (linear, X[::-1]),
        (linear, {"x": X}),
        (ByName, {"x": X, "city": CITIES, "other": CITIES}),
        (OfMapping, {"x": X, "other": CITIES}),
        (SideBySide, {"b": X[:, 0], "a": X[:, 1:2]}),
    ],
)
def test_forward_takes_features_of_any_form(module: Any, features: Any, tmp_path: Path) -> None:
    estimator = trained(module, of(features), tmp_path)
    found = list(estimator.predict(of(features)))
    assert len(found) == 5 * len(Y)
    net = estimator.to_torch()
    if isinstance(features, np.ndarray):
        expected = net(torch.from_numpy(features.astype(np.float32))).detach().numpy()
        assert np.allclose([one["predictions"] for one in found[:40]], expected, rtol=1e-6)


def test_a_flat_output_is_one_logit(tmp_path: Path) -> None:
    class Flat(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x).squeeze(1)

    flat, column = (trained(kind, of(X), tmp_path / str(i), params={"in_features": 3, "out_features": 1})
                    for i, kind in enumerate((Flat, nn.Linear)))  # fmt: skip
    assert np.array_equal(flat.get_variable_value("weight"), column.get_variable_value("weight"))


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


Outputs = namedtuple("Outputs", "mean spread")


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return Outputs(*self.layer(x).unbind(1))


def distance(outputs: Any, labels: Any) -> Any:
    return F.mse_loss(outputs.mean, labels)


def measured(labels: Any, predictions: Any) -> Any:
    return {"bias": psflow.metrics.mean(predictions["mean"] - labels)}


def test_a_loss_of_several_outputs(tmp_path: Path) -> None:
    estimator = trained(Several, of(X), tmp_path, head=None, loss=distance, metrics=measured)
    found = estimator.evaluate(of(X))
    assert found["loss"] < 0.05
    assert abs(found["bias"]) < 0.2
    assert [set(one) for one, _ in zip(estimator.predict(of(X)), range(1), strict=False)] == [{"mean", "spread"}]


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


class Recurrent(nn.Module):
    """Returns its state, too, as language models do; and normalizes a weight in the older way."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(1, 4, batch_first=True), nn.utils.weight_norm(nn.Linear(4, 1))

    def forward(self, x: Any) -> Any:
        found, (h, c) = self.lstm(x.unsqueeze(2))
        return self.last(found[:, -1]).squeeze(1), (h, c), None


def of_first(outputs: Any, labels: Any) -> Any:
    return F.mse_loss(outputs[0], labels)


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_states_beside_the_outputs_are_no_predictions(tmp_path: Path) -> None:
    estimator = trained(Recurrent, of(X), tmp_path, head=None, loss=of_first)
    assert estimator.evaluate(of(X))["loss"] > 0
    assert {tuple(one) for one in estimator.predict(of(X))} == {("output_0",)}


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_extra_state_is_left_out(tmp_path: Path) -> None:
    path, size = tmp_path / "net.pt", {"in_features": 3, "out_features": 1}
    torch.save(Extra(**size).state_dict(), path)
    estimator = trained(Extra, of(X), tmp_path / "job", params=size, warm_start_from=str(path))
    store = CheckpointStore(estimator.model_dir)
    values = read_values(CheckpointReader(store, store.latest()))
    assert set(estimator.params["module"].state_dict_of(values)) == {"weight", "bias"}


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.last = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.backbone(x)).squeeze(1)


def test_a_part_of_a_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.save(
        {"backbone.weight": torch.ones(4, 3), "backbone.bias": torch.ones(4), "head.weight": torch.ones(9)}, path
    )
    settings = psflow.WarmStartSettings(str(path), ["backbone"])
    estimator = TorchEstimator(Two, REGRESSION, psflow.GradientDescent(0.0), tmp_path / "job", warm_start_from=settings)
    estimator.train(of(X))
    assert estimator.get_variable_value("backbone.weight").tolist() == [[1.0] * 3] * 4
    with pytest.raises(UsageError, match=r"matches no name of the module"):
        trained(Two, of(X), tmp_path / "no", warm_start_from=psflow.WarmStartSettings(str(path), ["tail"]))


class Sparse(nn.Module):
    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how, self.table, self.out = how, nn.Embedding(5, 4, sparse=True), nn.Linear(4, 5, bias=False)
        if how == "tied":
            self.out.weight = self.table.weight

    def forward(self, city: Any) -> Any:
        found = self.out(self.table(city))[:, 0]
        return found + self.table.weight.sum() if self.how == "read" else found


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


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.projection = nn.Linear(3, 1), torch.randn(3, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x @ self.projection)


def half() -> Any:
    return nn.Linear(3, 1).to(torch.bfloat16)


def columns(outputs: Any, labels: Any) -> Any:
    return F.mse_loss(outputs, labels)


def each(outputs: Any, labels: Any) -> Any:
    return (outputs.mean, labels)[0]


def no_module() -> Any:
    return 3


@pytest.mark.parametrize(
    ("module", "settings", "error", "message"),
    [
        (Writes, {"params": {"what": "ema"}}, ModelFnError, r"Writes changes its buffer ema in training"),
        (Writes, {"params": {"what": "again"}}, ModelFnError, r"Writes replaces its buffer ema"),
        (Writes, {"params": {"what": "weight"}}, ModelFnError, r"changes its parameter layer\.weight in place"),
        (Writes, {"params": {"what": "data"}}, ModelFnError, r"changes its parameter layer\.weight in place"),
        (Writes, {"params": {"what": "function"}}, ModelFnError, r"Writes changes its buffer ema in training"),
        (Writes, {"params": {"what": "detached"}}, ModelFnError, r"the loss of Writes depends on no parameter"),
        (Unregistered, {}, ModelFnError, r"Unregistered\.projection is random, .* register_buffer\('projection'"),
        (half, {}, ModelFnError, r"half\.weight is a bfloat16 tensor"),
        (nn.LazyLinear, {"params": {"out_features": 1}}, ModelFnError, r"LazyLinear\.weight has no shape before"),
        (Tracks, {"buffers": RULES | {"emb": psflow.Counter()}}, ModelFnError, r"Tracks has no buffer 'emb'"),
        (
            Tracks,
            {"buffers": {"ema": psflow.Adam()}},
            UsageError,
            r"buffers\['ema'\] is Adam.*, expected MovingAverage",
        ),
        (no_module, {}, ModelFnError, r"no_module returned a int, expected a torch\.nn\.Module"),
        (linear, {"params": {"size": 3}}, ModelFnError, r"unexpected keyword argument 'size'"),
        (
            linear,
            {"head": psflow.RegressionHead(2), "labels": X[:, :2]},
            ModelFnError,
            r"shape \[8, 1\], expected \[batch, 2\]",
        ),
        (Several, {}, ModelFnError, r"forward of Several returned a Outputs, but a head takes one tensor"),
        (linear, {"head": None, "loss": columns}, ModelFnError, r"returned \[8, 1\] for labels of shape \[8\]"),
        (Several, {"head": None, "loss": each}, ModelFnError, r"must be a tensor with one number, got \[8\]"),
    ],
)
def test_what_would_go_wrong_is_refused(
    module: Any, settings: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    input_fn = of(X, settings.pop("labels", Y))
    with pytest.raises(error, match=message):
        trained(module, input_fn, tmp_path, **settings)


@pytest.mark.parametrize(
    ("module", "features", "message"),
    [
        (ByName, {"x": X, "town": CITIES}, r"forward of ByName takes 'city', which is no feature of the input"),
        (ByName, {"y": X, "town": CITIES}, r"forward of ByName takes x, city, but the features are 'y', 'town'"),
        (linear, np.array([["a", "b", "c"]] * 40), r"the features: expected numbers for a torch module"),
    ],
)
def test_features_that_forward_cannot_take(module: Any, features: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        trained(module, of(features), tmp_path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("tied", r"table\.weight and out\.weight are one weight, which cannot be a table and a parameter"),
        ("read", r"Sparse\.table\.weight is a sparse table, of which only the rows of a batch are here"),
    ],
)
def test_a_table_is_no_weight(how: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFnError, match=message):
        trained(Sparse, of({"city": CITIES}), tmp_path, params={"how": how})


def test_a_table_takes_no_values_from_a_state_dict(tmp_path: Path) -> None:
    torch.save(Sparse().state_dict(), tmp_path / "net.pt")
    with pytest.raises(UsageError, match=r"'table\.weight' is a sparse embedding, which takes no values"):
        trained(Sparse, of({"city": CITIES}), tmp_path / "job", warm_start_from=str(tmp_path / "net.pt"))


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
    ],
)
def test_wrong_arguments(arguments: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        TorchEstimator(*arguments, model_dir=tmp_path)


def test_an_estimator_of_a_module_names_the_right_one(tmp_path: Path) -> None:
    for module in (nn.Linear, linear()):
        with pytest.raises(ModelFnTypeError, match=r"is a torch module: train it with psflow\.torch\.TorchEstimator"):
            psflow.Estimator(module, tmp_path)
    with pytest.raises(ModelFnTypeError, match=r"loss is a tensor of torch: return psflow\.torch\.spec"):
        psflow.Adam().minimize(torch.zeros(()))


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_a_training_starts_with_a_state_dict(ending: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    state = {"weight": torch.tensor([[3.0, 4.0, 5.0]]), "bias": torch.tensor([6.0])}
    path = tmp_path / f"net.{ending}"
    torch.save({"state_dict": state, "epoch": 3}, path) if ending == "pt" else save_file(state, path)
    estimator = TorchEstimator(
        linear, REGRESSION, psflow.GradientDescent(0.0), tmp_path / "job", warm_start_from=str(path)
    )
    estimator.train(of(X))
    assert estimator.get_variable_value("weight").tolist() == [[3.0, 4.0, 5.0]]


class Code:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('ran')",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot read a state_dict from .*No such file"),
        (Code(), r"cannot read a state_dict from .*Weights only load failed"),
        ([1, 2], r"holds a list, expected a state_dict"),
        ({"weights": torch.ones(1, 3), "bias": torch.ones(1)}, r"'weight' is missing; did you mean 'weights'"),
        ({"weight": torch.ones(1, 4), "bias": torch.ones(1)}, r"'weight' is \[1, 4\], expected \[1, 3\]"),
    ],
)
def test_files_without_a_fitting_state_dict(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    if content is not None:
        torch.save(content, path)
    with pytest.raises(UsageError, match=message):
        trained(linear, of(X), tmp_path / "job", warm_start_from=str(path))


def rows(number: int) -> Iterator[Any]:
    yield from ((X[:8], Y[:8]) for _ in range(number))


def test_errors_are_psflows(tmp_path: Path) -> None:
    assert issubclass(ModelFnError, PsflowError)
    with pytest.raises(ModelFnError, match=r"linear"):
        trained(linear, lambda: rows(2), tmp_path, params={"bias": 1, "device": "meta"})
