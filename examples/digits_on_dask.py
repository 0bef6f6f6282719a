"""Train a classifier of handwritten digits on a Dask cluster, from Python: no flow, no Prefect, no MLflow.

Run as ``python examples/digits_on_dask.py``: it starts four Dask workers, one for each role (ps, chief,
worker, evaluator), trains, and prints the accuracy of each checkpoint.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from sklearn.datasets import load_digits

from psflow import (
    Adam,
    Dataset,
    DNNClassifier,
    EvalSpec,
    Evaluation,
    Event,
    RunConfig,
    TrainSpec,
    train_and_evaluate,
)

NUM_TRAINED_ON = 1437
"""Training images of 1,797; the others are for evaluation."""


def images(start: int, stop: int | None) -> Dataset:
    """Return images as pixels in [0, 1], with their digits."""
    digits = load_digits()
    pixels = (digits.data[start:stop] / 16).astype(np.float32)
    return Dataset({"pixels": pixels}, digits.target[start:stop].astype(np.int64))


def train_input_fn() -> Dataset:
    """Read each image once an epoch, over all replicas; each epoch has a different order."""
    return images(0, NUM_TRAINED_ON).shuffle(NUM_TRAINED_ON, seed=1).batch(32).repeat()


def eval_input_fn() -> Dataset:
    """Read the other images once."""
    return images(NUM_TRAINED_ON, None).batch(128)


def show(event: Event) -> None:
    """Print the accuracy of each evaluation."""
    if isinstance(event, Evaluation):
        print(f"step {event.step}: accuracy {event.metrics['accuracy']:.4f}")


def train(client: Client, model_dir: str) -> dict[str, dict[str, Any]]:
    """Train to step 600 with one ps, the chief, one worker and the evaluator; return the report of each role."""
    config = RunConfig(tf_random_seed=7, save_checkpoints_steps=200)
    optimizer = Adam(learning_rate=0.003)
    estimator = DNNClassifier([64], n_classes=10, optimizer=optimizer, model_dir=model_dir, config=config)
    train_spec = TrainSpec(train_input_fn, max_steps=600)
    eval_spec = EvalSpec(eval_input_fn, steps=None, start_delay_secs=0, throttle_secs=0)
    return train_and_evaluate(estimator, train_spec, eval_spec, client=client, num_workers=1, on_event=show)


def main() -> None:
    """Start a cluster, train on it, and print the end of each role."""
    with (
        tempfile.TemporaryDirectory() as model_dir,
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, security=True) as cluster,
        Client(cluster) as client,
    ):
        for role, report in train(client, model_dir).items():
            print(f"{role}: {report['exit']}, at most {report['rss_mb']:.0f} MB")


if __name__ == "__main__":
    main()
