"""Sparse embeddings, which are tables of the ps, beside those of plain torch."""

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
from psflow.ps_runtime.errors import ModelFnError  # noqa: E402
from psflow.ps_runtime.initializers import table_seed  # noqa: E402
from psflow.ps_runtime.specs.variables import TableSpec  # noqa: E402
from psflow.ps_runtime.tables.initial_rows import initial_rows  # noqa: E402
from psflow.torch import TorchEstimator  # noqa: E402

NUM_USERS, NUM_ITEMS, DIM, SEED = 40, 90, 4, 5
RNG = np.random.default_rng(3)
USERS = RNG.integers(0, NUM_USERS, (60, 16))
ITEMS = RNG.integers(0, NUM_ITEMS, (60, 16, 5))
LIKED = ((USERS * 7 + ITEMS.sum(axis=2)) % 3 == 0).astype(np.int64)


class Recommender(nn.Module):
    """One embedding with a padding index, one bag with offsets and weights, one bag of rows; a table used twice."""

    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        self.user = nn.Embedding(NUM_USERS, DIM, sparse=sparse, padding_idx=3)
        self.items = nn.EmbeddingBag(NUM_ITEMS, DIM, sparse=sparse, mode="sum", padding_idx=7)
        self.means = nn.EmbeddingBag(NUM_ITEMS, DIM, sparse=sparse, mode="mean")
        self.last = nn.Linear(3 * DIM, 1)

    def forward(self, user: Any, items: Any) -> Any:
        offsets = torch.arange(0, items.numel(), items.shape[1])
        weights = torch.linspace(0.5, 1.5, items.numel())
        bag = self.items(items.reshape(-1), offsets, per_sample_weights=weights)
        return self.last(torch.cat([self.user(user) + self.user(user.flip(0)), bag, self.means(items)], 1)).squeeze(1)


def batches() -> Iterator[tuple[Any, Any]]:
    for user, items, liked in zip(USERS, ITEMS, LIKED, strict=True):
        yield {"user": user, "items": items}, liked


def first_rows(name: str, num_rows: int) -> Any:
    spec = TableSpec(name, num_rows, DIM, "float32", None, {"name": "normal", "scale": 1.0}, table_seed(SEED, name))
    return torch.from_numpy(initial_rows(spec, np.arange(num_rows)))


def test_tables_learn_as_the_embeddings_of_torch(tmp_path: Path) -> None:
    config = psflow.RunConfig(tf_random_seed=SEED)
    estimator = TorchEstimator(Recommender, psflow.BinaryClassHead(), psflow.GradientDescent(0.5), tmp_path, config)
    estimator.train(batches)
    torch.manual_seed(SEED)
    plain = Recommender(sparse=False)
    with torch.no_grad():
        for name, layer in (("user", plain.user), ("items", plain.items), ("means", plain.means)):
            layer.weight.copy_(first_rows(f"{name}.weight", len(layer.weight)))
        plain.user.weight[3] = plain.items.weight[7] = 0
    optimizer = torch.optim.SGD(plain.parameters(), 0.5)
    for features, liked in batches():
        optimizer.zero_grad()
        named = {name: torch.from_numpy(values) for name, values in features.items()}
        F.binary_cross_entropy_with_logits(plain(**named), torch.from_numpy(liked).float()).backward()
        optimizer.step()
    for name, value in plain.state_dict().items():
        found = estimator.get_variable_value(name)
        rows = {"user.weight": [3], "items.weight": [7]}.get(name, [])  # padding: not read, so not stored as zeros
        expected = value.numpy()
        error = np.abs(np.delete(found - expected, rows, axis=0)).max() / np.abs(expected).max()
        assert error <= 1e-5, name


class Scaled(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.table = nn.Embedding(5000, 8, sparse=True)
        match how:
            case "uniform":
                nn.init.uniform_(self.table.weight, -0.05, 0.05)
            case "normal":
                nn.init.normal_(self.table.weight, std=0.01)
            case "zeros":
                nn.init.zeros_(self.table.weight)
            case "pretrained":
                self.table.weight.data = torch.arange(5000).float().repeat(8, 1).T.contiguous()
        self.last = nn.Linear(8, 1)

    def forward(self, ids: Any) -> Any:
        return self.last(self.table(ids))


@pytest.mark.parametrize(
    ("how", "largest", "deviation"), [("uniform", 0.05, 0.0289), ("normal", 0.05, 0.01), ("zeros", 0, 0)]
)
def test_first_values_are_drawn_as_the_module_draws_them(
    how: str, largest: float, deviation: float, tmp_path: Path
) -> None:
    estimator = TorchEstimator(
        Scaled, psflow.RegressionHead(), psflow.GradientDescent(0.0), tmp_path, params={"how": how}
    )
    estimator.train(lambda: iter([(np.arange(16), np.zeros(16))]))
    rows = estimator.get_table_rows("table.weight", np.arange(5000))
    assert np.abs(rows).max() <= largest + 1e-9
    assert rows.std() == pytest.approx(deviation, rel=0.03)


def test_given_values_are_refused(tmp_path: Path) -> None:
    estimator = TorchEstimator(Scaled, psflow.RegressionHead(), model_dir=tmp_path, params={"how": "pretrained"})
    with pytest.raises(ModelFnError, match=r"Scaled\.table\.weight: the initial values .* neither uniform nor normal"):
        estimator.train(lambda: iter([(np.arange(16), np.zeros(16))]))
