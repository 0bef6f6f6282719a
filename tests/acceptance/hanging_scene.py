"""What runs in the roles of a job that is to hang: a module of its own, so that they import nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from psflow.ps_runtime.cluster.loss_reports import take_loss
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.optimizers import GradientDescent


def endless() -> Dataset:
    """Return records without end."""
    return Dataset({"x": np.zeros(1000, np.float32)}, np.zeros(1000, np.float32)).batch(4).repeat()


class CountingModel:
    """Counts its updates; the chief holds Python's lock in its first step for `busy_secs`."""

    def __init__(self, busy_secs: float = 0.0) -> None:
        self.busy_secs = busy_secs

    def __call__(self, features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        """Make a step."""
        num_updates = get_variable("num_updates", initializer=0.0)
        if config.num_ps_replicas and config.is_chief and self.busy_secs:
            hold_lock(self.busy_secs)
            self.busy_secs = 0.0
        time.sleep(0.01)
        train_op = GradientDescent(1.0).apply_gradients({"num_updates": np.float32(-1)})
        return EstimatorSpec(mode, loss=np.mean(labels**2) + 0 * num_updates, train_op=train_op)


def hold_lock(secs: float) -> None:
    """Compute for about so long in one call that lets no other thread run Python."""
    count = 10**7
    started = time.monotonic()
    sum(range(count))
    sum(range(int(count * secs / (time.monotonic() - started))))


class StopOnFile(SessionRunHook):
    """Ends training once a file is there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look for it."""
        if self._path.exists():
            run_context.request_stop()


class Stuck(tuple[int, int]):
    """A message to ps-0 that it never comes to the end of."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(3600)
        return iter(())


async def stop_serving(topic: str) -> None:
    """Have the thread of ps-0 that serves do nothing more, though its process answers."""
    await take_loss(topic, Stuck())
