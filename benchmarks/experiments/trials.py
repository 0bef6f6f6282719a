"""The trials of the experiment on consistency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.idx_images import Idx
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Consistency, Hogwild, Sync

__all__ = ["EPOCHS", "PROBLEMS", "Problem", "Trial", "consistency_trials", "epoch_trials"]

NUM_REPLICAS = (1, 2, 3)
CONSISTENCIES: tuple[Consistency, ...] = (Async(), BoundedStaleness(max_staleness=1), Sync(), Hogwild())
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


@dataclass(frozen=True, slots=True)
class Problem:
    """A data set, a network, and how long it is trained.

    Parameters
    ----------
    name : str
        Under which its figures are listed.
    train, test : Format
        Where the two sets are read from.
    batch_size, test_batch_size : int
        Examples in a batch of training, and of evaluation.
    hidden_units : int
        Of the one hidden layer.
    network : str
        ``relu``: the canned DNNClassifier; ``sigmoid``: that of the example of old.
    small_rate, large_rate : float
        Learning rates: one at which staleness does not matter, and one that is too large for stale gradients.
    num_gradients : int
        Gradients of a trial; those between two evaluations are a multiple of every number of replicas, so that all
        trials are evaluated after equal numbers.
    gradients_between : int
        Gradients between two evaluations.
    seeds : tuple of int
        Of initial values and orders.
    """

    name: str
    train: Format
    test: Format
    batch_size: int
    test_batch_size: int
    hidden_units: int
    network: str
    small_rate: float
    large_rate: float
    num_gradients: int
    gradients_between: int
    seeds: tuple[int, ...]

    def scaled_rate(self, num_replicas: int) -> float:
        """Return the small rate times the gradients that an update of sync takes."""
        return round(self.small_rate * num_replicas, 9)

    def input_fns(self, seed: int) -> tuple[partial[Any], partial[Any]]:
        """Return how to read what is trained on, shuffled and without end, and what is tested on."""
        return (
            partial(open_dataset, self.train, batch_size=self.batch_size, shuffle=True, seed=seed, epochs=None),
            partial(open_dataset, self.test, batch_size=self.test_batch_size),
        )


def _fashion_mnist(part: str) -> Idx:
    return Idx(
        path=f"{FASHION_MNIST}/{part}-images-idx3-ubyte.gz", labels_path=f"{FASHION_MNIST}/{part}-labels-idx1-ubyte.gz"
    )


DIGITS = Problem(
    name="digits",
    train=Digits(split="train"),
    test=Digits(split="test"),
    batch_size=32,
    test_batch_size=360,
    hidden_units=64,
    network="relu",
    small_rate=0.1,
    large_rate=0.7,
    num_gradients=2400,
    gradients_between=240,
    seeds=(1, 2, 3),
)
CLOTHES = Problem(
    name="fashion_mnist",
    train=_fashion_mnist("train"),
    test=_fashion_mnist("t10k"),
    batch_size=100,
    test_batch_size=1000,
    hidden_units=100,
    network="relu",
    small_rate=0.1,
    large_rate=0.4,
    num_gradients=3000,
    gradients_between=300,
    seeds=(1,),
)
PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (DIGITS, CLOTHES)}

EPOCHS = replace(
    CLOTHES,
    name="epochs",
    network="sigmoid",
    small_rate=0.0005,
    large_rate=0.0005,
    num_gradients=20 * 600,
    gradients_between=1200,
)
"""Twenty epochs of 600 batches."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem, trained in one way.

    Parameters
    ----------
    problem : Problem
        What is trained.
    consistency : Consistency
        How gradients of several replicas become updates.
    num_replicas : int
        Processes that train: the chief is one of them.
    learning_rate : float
        The same for all updates.
    num_gradients : int
        After which it ends.
    seed : int
        Of initial values and orders.
    """

    problem: Problem
    consistency: Consistency
    num_replicas: int
    learning_rate: float
    num_gradients: int
    seed: int

    @property
    def key(self) -> str:
        """A name, such as ``digits/sync/3w/0.1/seed 1``."""
        rate = f"{self.learning_rate:.4g}"
        return f"{self.problem.name}/{self.consistency.name}/{self.num_replicas}w/{rate}/seed {self.seed}"

    @property
    def gradients_per_update(self) -> int:
        """How many gradients an update takes: with sync one of each replica."""
        return self.consistency.gradients_per_update(self.num_replicas)

    def facts(self) -> dict[str, Any]:
        """Return the identity of this trial, as plain data."""
        return {
            "problem": self.problem.name,
            "consistency": self.consistency.name,
            "num_replicas": self.num_replicas,
            "learning_rate": self.learning_rate,
            "num_gradients": self.num_gradients,
            "seed": self.seed,
        }


def consistency_trials(problem: Problem) -> Iterator[Trial]:
    """Yield every consistency with 1, 2 and 3 replicas at both rates; sync at the small rate times replicas, too."""
    for seed in problem.seeds:
        for num_replicas in NUM_REPLICAS:
            for consistency in CONSISTENCIES:
                for rate in (problem.small_rate, problem.large_rate):
                    yield Trial(problem, consistency, num_replicas, rate, problem.num_gradients, seed)
            scaled = problem.scaled_rate(num_replicas)
            if scaled not in (problem.small_rate, problem.large_rate):
                yield Trial(problem, Sync(), num_replicas, scaled, problem.num_gradients, seed)


def epoch_trials() -> Iterator[Trial]:
    """Yield the example of old: as many gradients as n replicas compute that read all the data, twenty times each."""
    for num_replicas in NUM_REPLICAS:
        num_gradients = num_replicas * EPOCHS.num_gradients
        yield Trial(EPOCHS, Async(), num_replicas, EPOCHS.small_rate, num_gradients, EPOCHS.seeds[0])
