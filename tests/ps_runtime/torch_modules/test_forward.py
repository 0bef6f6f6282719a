"""What forward takes and returns."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import psflow  # noqa: E402
from psflow.ps_runtime.errors import InputError, ModelFnError  # noqa: E402
from tests.ps_runtime.torch_modules.trainings import CITIES, X, Y, linear, of, trained  # noqa: E402


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

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.last(inputs)


class Batch(TypedDict):
    x: torch.Tensor
    other: torch.Tensor


class OfAnyOf(OfMapping):
    def forward(self, batch: Mapping[str, torch.Tensor] | None) -> Any:  # type: ignore[override]
        assert batch is not None
        return self.last(batch["x"])


class OfTypedDict(OfMapping):
    def forward(self, batch: Batch) -> Any:  # type: ignore[override]
        return self.last(batch["x"])


class Unannotated(OfMapping):
    def forward(self, batch) -> Any:  # type: ignore[no-untyped-def]
        return self.last(batch["x"])


@pytest.mark.parametrize(
    ("module", "features"),
    [
        (linear, X),
        (linear, X.astype(np.float64)),
        (linear, X[::-1]),
        (linear, {"x": X}),
        (ByName, {"x": X, "city": CITIES, "other": CITIES}),
        (OfMapping, {"x": X, "other": CITIES}),
        (OfTypedDict, {"x": X, "other": CITIES}),
        (OfAnyOf, {"x": X, "other": CITIES}),
        (linear, {"b": X[:, 0], "a": X[:, 1:]}),
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


@pytest.mark.parametrize(
    ("module", "features", "message"),
    [
        (
            ByName,
            {"x": X, "town": CITIES},
            r"takes 'city', but the input has no such feature; its features are 'x', 't",
        ),
        (ByName, {"x": X, "cities": CITIES}, r"ByName takes 'city', .* no such feature; did you mean 'cities'\?"),
        (ByName, {"y": X, "town": CITIES}, r"takes 'x', but the input has no such feature.*\n.* takes 'city'"),
        (
            Unannotated,
            {"x": X, "y": X},
            r"takes 'batch', but the features are 'x', 'y': .* batch: dict .* batch: torch",
        ),
        (linear, np.array([["a", "b", "c"]] * 40), r"the features: expected numbers for a torch module"),
    ],
)
def test_features_that_forward_cannot_take(module: Any, features: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        trained(module, of(features), tmp_path)


def test_a_spare_feature_is_ignored_unless_it_is_misspelt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(ByName, of({"x": X, "city": CITIES, "weather": X}), tmp_path / "spare")
    assert sum("'weather', which training does not read: ignored" in line for line in caplog.messages) == 1
    with pytest.raises(InputError, match=r"takes no 'scales': rename the .*, or leave it out; did you mean 'scale'\?"):
        trained(ByName, of({"x": X, "city": CITIES, "scales": X}), tmp_path / "misspelt")


class Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.last(x)


def within_torch() -> Any:
    return nn.Sequential(nn.Identity(), Narrow())


def bad_loss(outputs: Any, labels: Any) -> Any:
    return F.mse_loss(outputs, labels @ labels.T.missing)


LINE = r"\S*test_forward\.py:{}: "
LINE_OF_FORWARD = LINE.format(Narrow.forward.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (Narrow, {}, r"test_forward:Narrow\.forward raised RuntimeError in train mode for x float32\[8, 3\] at "
         + LINE_OF_FORWARD + "mat1 and mat2"),
        (within_torch, {}, r"Sequential\.forward raised RuntimeError in train mode for input float32\[8, 3\] at "
         + LINE_OF_FORWARD),
        (linear, {"head": None, "loss": bad_loss}, r"bad_loss raised AttributeError in train mode for outputs "
         r"float32\[8, 1\], labels float32\[8, 1\] at " + LINE.format(bad_loss.__code__.co_firstlineno + 1)),
        (linear, {"head": None, "loss": nn.NLLLoss()}, r"NLLLoss\.forward raised .* input float32.*, target float"),
    ],
)  # fmt: skip
def test_errors_name_the_line_and_the_shapes(
    module: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFnError, match=message):
        trained(module, of(X, Y[:, np.newaxis]), tmp_path, **settings)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_the_only_feature_is_a_tensor_and_an_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFnError, match=r"for batch float32\[8, 3\] .*; batch is the only .* annotate batch: dict"):
        trained(Unannotated, of({"x": X}), tmp_path)


def test_a_plain_error_with_the_only_feature_has_no_such_hint(tmp_path: Path) -> None:
    with pytest.raises(ModelFnError, match=r"Narrow\.forward raised .* \(8x3 and 4x1\)$"):
        trained(Narrow, of({"x": X}), tmp_path)


def test_labels_among_the_features_are_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"OfMapping needs labels in train mode.*batches\(\.\.\., label='labels'\)"):
        trained(OfMapping, lambda: iter([({"x": X, "labels": Y}, None)]), tmp_path)
    with pytest.raises(InputError, match=r"return \(features, labels\) from the input_fn$"):
        trained(OfMapping, lambda: iter([({"x": X}, None)]), tmp_path)


def test_a_flat_output_is_one_logit(tmp_path: Path) -> None:
    class Flat(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x).squeeze(1)

    flat, column = (trained(kind, of(X), tmp_path / str(i), params={"in_features": 3, "out_features": 1})
                    for i, kind in enumerate((Flat, nn.Linear)))  # fmt: skip
    assert np.array_equal(flat.get_variable_value("weight"), column.get_variable_value("weight"))


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


def columns(outputs: Any, labels: Any) -> Any:
    return F.mse_loss(outputs, labels)


def each(outputs: Any, labels: Any) -> Any:
    return (outputs.mean, labels)[0]


@pytest.mark.parametrize(
    ("module", "labels", "settings", "message"),
    [
        (linear, X[:, :2], {"head": psflow.RegressionHead(2)}, r"shape \[8, 1\], expected \[batch, 2\]"),
        (Several, Y, {}, r"forward of Several returned a Outputs, but a head takes one tensor"),
        (linear, Y, {"head": None, "loss": columns}, r"returned \[8, 1\] for labels of shape \[8\]"),
        (Several, Y, {"head": None, "loss": each}, r"must be a tensor with one number, got \[8\]"),
    ],
)
def test_outputs_that_do_not_fit(
    module: Any, labels: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFnError, match=message):
        trained(module, of(X, labels), tmp_path, **settings)
