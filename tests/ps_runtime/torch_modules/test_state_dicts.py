"""State dictionaries of torch: what a training starts with, and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import psflow  # noqa: E402
from psflow.ps_runtime.checkpoint.reader import CheckpointReader  # noqa: E402
from psflow.ps_runtime.checkpoint.store import CheckpointStore  # noqa: E402
from psflow.ps_runtime.errors import ModelFnError, UsageError  # noqa: E402
from psflow.ps_runtime.model.evaluation import read_values  # noqa: E402
from psflow.torch import TorchEstimator  # noqa: E402
from tests.ps_runtime.torch_modules.trainings import CITIES, REGRESSION, X, linear, of, trained  # noqa: E402


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
