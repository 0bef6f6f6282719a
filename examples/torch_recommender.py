"""A recommender of torch with two sparse embeddings: of each batch, only the rows that it reads travel.

Run as ``python examples/torch_recommender.py``: it trains on invented ratings, in one process, in seconds. Needs torch.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from psflow import Adagrad, BinaryClassHead, Dataset, RunConfig
from psflow.torch import TorchEstimator

NUM_USERS, NUM_ITEMS, DIM = 20_000, 100_000, 8


class Recommender(nn.Module):  # type: ignore[misc]  # torch has no types here
    """The affinity of a user and an item: the product of their vectors, and a bias of each."""

    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(NUM_USERS, DIM + 1, sparse=True)
        self.item = nn.Embedding(NUM_ITEMS, DIM + 1, sparse=True)
        for table in (self.user, self.item):
            nn.init.uniform_(table.weight, -0.05, 0.05)

    def forward(self, user: Any, item: Any) -> Any:
        """Return a logit for each pair, ``(batch,)``."""
        u, i = self.user(user), self.item(item)
        return (u[:, :DIM] * i[:, :DIM]).sum(dim=1) + u[:, DIM] + i[:, DIM]


def ratings(seed: int, number: int) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Return ids of users and items, a tenth of them often, and whether the user liked the item."""
    random = np.random.default_rng(seed)
    user, item = random.zipf(1.3, number) % NUM_USERS, random.zipf(1.2, number) % NUM_ITEMS
    tastes = np.random.default_rng(0)
    likes = (tastes.normal(size=(NUM_USERS, 3))[user] * tastes.normal(size=(NUM_ITEMS, 3))[item]).sum(axis=1)
    return {"user": user, "item": item}, (likes > 0).astype(np.int64)


def train_input() -> Dataset:
    """Return shuffled ratings."""
    return Dataset(*ratings(1, 200_000)).shuffle(200_000, seed=3).batch(200)


def test_input() -> Dataset:
    """Return ratings that the training does not have."""
    return Dataset(*ratings(2, 20_000)).batch(1000)


if __name__ == "__main__":
    config = RunConfig(model_dir=tempfile.mkdtemp(), tf_random_seed=7)
    estimator = TorchEstimator(Recommender, BinaryClassHead(), Adagrad(0.1), config=config)
    estimator.train(train_input)
    found = estimator.evaluate(test_input)
    print(f"step {found['global_step']}: AUC {found['auc']:.3f}, accuracy {found['accuracy']:.3f}")
    print(f"the row of user 1: {np.round(estimator.get_table_rows('user.weight', [1])[0], 2)}")
