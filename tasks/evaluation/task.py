"""The evaluation of some checkpoints as a Prefect task run of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Failed

from psflow.tasks.evaluation.replay import Replay

__all__ = ["evaluate_steps", "in_task_runs"]

SLICE_SECS = 0.5
MAX_TASK_RUNS = 50
"""Beyond so many checkpoints a task run stands for several of them."""


def in_task_runs(steps: Sequence[int]) -> list[list[int]]:
    """Return `steps` in as many groups as there will be task runs.

    Examples
    --------
    >>> in_task_runs([300, 600])
    [[300], [600]]
    >>> [len(group) for group in in_task_runs(range(101))][:2]
    [3, 3]
    """
    size = -(-len(steps) // MAX_TASK_RUNS)
    return [list(steps[start : start + size]) for start in range(0, len(steps), size)] if steps else []


@task(name="evaluate", task_run_name="evaluate {label}", cache_policy=NO_CACHE, persist_result=False)
def evaluate_steps(label: str, steps: Sequence[int], replay: Replay, stop: threading.Event) -> int | State[int]:
    """Wait in slices until the checkpoints of `steps` are evaluated; return how many they are."""
    while (failures := replay.wait(steps, 0.0 if stop.is_set() else SLICE_SECS)) is None:
        if stop.is_set():
            return Cancelled(message="it was interrupted; run the same command again to do the rest")
    if failures:
        return Failed(message="; ".join(f"step {f.global_step}: {f.reason}" for f in failures))
    return len(steps)
