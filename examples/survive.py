"""Train digits while the processes of random roles are killed, and reach the accuracy of an undisturbed training.

Run as ``python examples/survive.py [--secs 120] [--every 10] [--seed 1] [--picture survive.png]``. It starts five Dask
workers, one for each role, kills one of them at intervals, and prints the reactions. Then it trains the same number of
steps without a kill, and prints both accuracies. The picture shows the rate, the restarts and each kill over time.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import random
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

from psflow import (
    Adam,
    Dataset,
    DNNClassifier,
    EvalSpec,
    Event,
    FirstStep,
    Metrics,
    Restored,
    RoleLost,
    RunConfig,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    TrainSpec,
    train_and_evaluate,
)

NUM_TRAINED_ON = 1437
"""Training images of 1,797; the others are for evaluation."""
NUM_ROLES = 5
"""A ps, the chief, two workers, the evaluator."""
STEP_SECS = 0.01
"""Minimum duration of a step of a replica."""
ROLE_TASK = re.compile(r"psflow-[0-9a-f]+-\d+-(.+)-\d+")
"""The names of psflow's Dask tasks of roles."""


class Pace(SessionRunHook):
    """Delays each step, and ends training once a file exists."""

    def __init__(self, end_file: Path) -> None:
        self.end_file = end_file

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Sleep, and check for the file."""
        time.sleep(STEP_SECS)
        if self.end_file.exists():
            run_context.request_stop()


@dataclass
class Record:
    """The events of a job, in seconds since the first step."""

    started_at: float = math.inf
    has_started: threading.Event = field(default_factory=threading.Event)
    steps: list[tuple[float, int]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Record an event of the job, and print losses and restores."""
        if isinstance(event, FirstStep) and not self.has_started.is_set():
            self.started_at = event.time
            self.has_started.set()
        at = event.time - self.started_at
        match event:
            case Metrics() if "steps_per_sec" in event.values:
                self.steps.append((at, event.step))
            case RoleLost():
                self.losses.append(at)
                print(f"{at:6.1f} s: {event.role} is lost{', and all training rolls back' if event.rolls_back else ''}")
            case Restored() if self.has_started.is_set():
                print(f"{at:6.1f} s: training continues from step {event.step}")
            case _:
                pass


def images(start: int, stop: int | None) -> Dataset:
    """Return images as pixels in [0, 1], with their digits."""
    from sklearn.datasets import load_digits  # a slow import, and a new process should start soon

    digits = load_digits()
    pixels = (digits.data[start:stop] / 16).astype(np.float32)
    return Dataset({"pixels": pixels}, digits.target[start:stop].astype(np.int64))


def train_input_fn() -> Dataset:
    """Read each image once an epoch, over all replicas."""
    return images(0, NUM_TRAINED_ON).shuffle(NUM_TRAINED_ON, seed=1).batch(32).repeat()


def eval_input_fn() -> Dataset:
    """Read the other images once."""
    return images(NUM_TRAINED_ON, None).batch(128)


def train(client: Client, directory: Path, max_steps: int | None, take: Callable[[Event], None]) -> tuple[int, float]:
    """Train until ``directory/end`` is there, or up to `max_steps`; return the last step, and the accuracy there."""
    config = RunConfig(tf_random_seed=7, save_checkpoints_steps=200, log_step_count_steps=20)
    estimator = DNNClassifier(
        [64], n_classes=10, optimizer=Adam(learning_rate=0.001), model_dir=str(directory / "model"), config=config
    )
    reports = train_and_evaluate(
        estimator,
        TrainSpec(train_input_fn, max_steps, hooks=[Pace(directory / "end")]),
        EvalSpec(eval_input_fn, None, start_delay_secs=0, throttle_secs=0),
        client=client,
        num_workers=2,
        max_restarts=1000,
        on_event=take,
    )
    step = reports["chief-0"]["statistics"]["job"]["global_step"]
    return step, estimator.evaluate(eval_input_fn)["accuracy"]


def roles_by_worker(client: Client) -> dict[str, str]:
    """Return the address of the Dask worker of each running role."""
    running = [(str(key), address) for address, keys in client.processing().items() for key in keys]
    return {found[1]: address for key, address in running if (found := ROLE_TASK.fullmatch(key))}


def kill_now_and_then(client: Client, record: Record, secs: float, every: float, seed: int, end: Path) -> None:
    """Kill the process of a random role every `every` seconds; end training after `secs`."""
    draw, never = random.Random(seed), threading.Event()
    record.has_started.wait()
    while (elapsed := time.time() - record.started_at) < secs:
        never.wait(min(every, secs - elapsed))
        found = roles_by_worker(client)
        if found and time.time() - record.started_at < secs:
            role = draw.choice(sorted(found))
            pids = client.run(os.getpid, workers=[found[role]], on_error="ignore")
            for pid in pids.values():
                record.kills.append((time.time() - record.started_at, role))
                os.kill(pid, signal.SIGKILL)
    end.touch()


def draw(record: Record, picture: str) -> None:
    """Draw the steps of each second, the number of restarts, and each kill."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, restarts) = pyplot.subplots(2, sharex=True, figsize=(9, 5), height_ratios=[2, 1])
    times, steps = np.array(sorted(record.steps)).T
    seconds = np.arange(math.ceil(times[-1]) + 1)
    made, _ = np.histogram(times[1:], seconds, weights=np.maximum(np.diff(steps), 0))  # none while training rolls back
    rates.stairs(made, seconds, color="black")
    rates.set_ylabel("steps/s")
    for at, role in record.kills:
        rates.axvline(at, color="tab:red", linewidth=0.8, alpha=0.6)
        rates.text(at, rates.get_ylim()[1], f" {role}", rotation=90, va="top", ha="right", fontsize=8, color="tab:red")
    losses = sorted(record.losses)
    restarts.step([0.0, *losses, times[-1]], [*range(len(losses) + 1), len(losses)], where="post", color="tab:red")
    restarts.set_ylabel("restarts")
    restarts.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


@contextmanager
def new_cluster() -> Iterator[Client]:
    """Open a Dask cluster with a process for each role, for a block."""
    with (
        LocalCluster(n_workers=NUM_ROLES, threads_per_worker=1, dashboard_address=None, security=True) as cluster,
        Client(cluster) as client,
    ):
        yield client


def main() -> None:
    """Train with kills, then the same number of steps without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secs", type=float, default=120.0, help="duration of the training with kills")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1, help="decides which role is killed")
    parser.add_argument("--picture", help="file for the plot of the steps over time")
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # it logs each killed process at length
    with tempfile.TemporaryDirectory() as name:
        directory, record = Path(name), Record()
        with new_cluster() as client:
            kills = (client, record, options.secs, options.every, options.seed, directory / "end")
            killer = threading.Thread(target=kill_now_and_then, args=kills, daemon=True)
            killer.start()
            step, accuracy = train(client, directory, None, record.take)
            killer.join()
        undisturbed = directory / "undisturbed"
        undisturbed.mkdir()
        with new_cluster() as client:  # the first cluster may lack processes that Dask has not yet replaced
            _, expected = train(client, undisturbed, step, lambda event: None)
    print(f"{len(record.kills)} kills, {step} steps: accuracy {accuracy:.4f}, and without a kill {expected:.4f}")
    if options.picture:
        draw(record, options.picture)


if __name__ == "__main__":
    main()
