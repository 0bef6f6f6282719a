"""A training whose values count the updates and the uses of each record: ``python -m tests.hosts.training JSON``."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import autograd.numpy as np
from distributed import Client

from psflow import (
    CoordinatorMode,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    ModeKeys,
    ParameterServerStrategy,
    RunConfig,
    SessionRunHook,
    SparseGradient,
    TrainSpec,
    embedding_lookup,
    get_current_worker_context,
    get_variable,
    initializers,
    run_distribute_coordinator,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.roles.events import Checkpoint, Event, RoleLost, RoleStarted
from tests.chaos.oracles import wrong_counts
from tests.chaos.program import NUM_RECORDS, NUM_ROWS, TABLE, counters, endless, records
from tests.chaos.trials import Fault, Input, Parameters, Phase, Target, Transport, Trial, Update

__all__ = ["END", "PLANTED", "miscounted"]

MAX_STEPS = 2000
END = "end"
SAVE_STEPS = 100
STEP_SECS = 0.01
PLANTED = 41.7135
"""Of all values of a variable: in a row nothing else on a network looks like them."""
NUM_PS = 2
"""At most: a job with one has the same variables."""


def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """Count the updates by a variable for each ps, and the uses of records by the rows of a table."""
    values = [get_variable(name, initializer=0.0) for name in counters(NUM_PS)]
    get_variable("planted", (256,), initializer=initializers.constant(PLANTED))
    ids = np.append(features["record"], [NUM_RECORDS, NUM_RECORDS + 1])
    embedding_lookup(TABLE, ids, NUM_ROWS, 1, initializer="zeros")
    gradients: dict[str, Any] = dict.fromkeys(counters(NUM_PS), np.float32(-1))
    gradients[TABLE] = SparseGradient(ids, np.full((len(ids), 1), -1, np.float32))
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"num_updates": values[0] + 0 * features["record"]})
    if mode == ModeKeys.TRAIN:
        time.sleep(STEP_SECS)
    return EstimatorSpec(mode, loss=np.abs(values[0]) + 1, train_op=GradientDescent(1.0).apply_gradients(gradients))


def miscounted(model_dir: Path | str, max_steps: int | None = MAX_STEPS) -> list[str]:
    """Return what the checkpoints of a finished training have not counted exactly once."""
    trial = Trial(
        Target.CHIEF, Phase.IDLE, Fault.KILL, Update.ASYNC, NUM_PS, Parameters.ROWS, 2, Input.DEALT, Transport.TCP
    )
    store = CheckpointStore(str(model_dir))
    steps = store.steps()
    found = (
        []
        if max_steps in (None, steps[-1])
        else [f"checkpoints of steps {steps}, expected {max_steps} as the last one"]
    )
    for step in steps:
        reader = CheckpointReader(store, step)
        values = read_values(reader)
        rows = values.rows(values.tables[TABLE].spec, np.arange(NUM_ROWS)).ravel()
        found += wrong_counts(trial, step, values.variables, rows, reader.manifest.job["input"]["positions"])
    return found


def _print_event(event: Event) -> None:
    if isinstance(event, RoleStarted):
        print("started", event.role, "on", event.host, flush=True)
    elif isinstance(event, RoleLost):
        print("lost", event.role, "as", event.reason, flush=True)
    elif isinstance(event, Checkpoint):
        print("saved", event.step, flush=True)


class _EndOnFile(SessionRunHook):
    def __init__(self, path: Path) -> None:
        self.path = path

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.path.exists():
            run_context.coordinator.end_training("there is the file")


def _train(model_dir: str, max_steps: int | None, **cluster: Any) -> None:
    config = RunConfig(model_dir, tf_random_seed=1, save_checkpoints_steps=SAVE_STEPS, keep_checkpoint_max=None)
    hooks = [_EndOnFile(Path(model_dir, END))] if max_steps is None else []
    train_spec = TrainSpec(endless, max_steps, hooks)
    eval_spec = EvalSpec(records, None, start_delay_secs=0, throttle_secs=3600)
    train_and_evaluate(Estimator(model_fn, model_dir, config), train_spec, eval_spec, **cluster)


def _train_as_task(model_dir: str, max_steps: int | None) -> None:
    """Train as a task of the distribute coordinator, once all replicas are there."""
    context = get_current_worker_context()
    assert context is not None
    if context.has_barrier:
        context.wait_for_other_workers()
    print(context.task_type, context.task_id, "of", context.num_workers, "workers", flush=True)
    _train(model_dir, max_steps)


def main(
    model_dir: str,
    address: str | None = None,
    max_steps: int | None = MAX_STEPS,
    by_coordinator: bool = False,
    is_over: bool = False,
    **cluster: Any,
) -> None:
    """Train on the Dask cluster at `address`, or as TF_CONFIG says, by the distribute coordinator or without.

    Without `max_steps` the training ends once there is a file `END` in its model_dir. Of a training that `is_over`,
    print what was not counted exactly once.
    """
    if is_over:
        print(json.dumps(miscounted(model_dir, max_steps)))
        return
    logging.basicConfig(level=logging.INFO)
    if by_coordinator:
        strategy, mode = ParameterServerStrategy(), CoordinatorMode.INDEPENDENT_WORKER
        run_distribute_coordinator(lambda _: _train_as_task(model_dir, max_steps), strategy, mode=mode)
    elif address is None:
        _train(model_dir, max_steps)
    else:
        with Client(address) as client:
            _train(model_dir, max_steps, client=client, on_event=_print_event, **cluster)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
