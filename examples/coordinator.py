"""Train a line with the distribute coordinator: a worker_fn for each task, which reads its task from the context.

``python examples/coordinator.py`` is a standalone client: it starts a process on this machine for each task of its
cluster. With a cluster in TF_CONFIG this process is one of its tasks, so the tasks can also be started manually or
by another program::

    python examples/run_dist.py examples/coordinator.py --independent
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np

from psflow import (
    CoordinatorMode,
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    ModeKeys,
    ParameterServerStrategy,
    RunConfig,
    TrainSpec,
    get_current_worker_context,
    get_variable,
    metrics,
    run_distribute_coordinator,
    train_and_evaluate,
)


def line(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
    """Return ``y = w * x`` and its loss."""
    y = get_variable("w", initializer=0.0) * features
    error = y - labels
    gradient = {"w": 2 * np.mean(error * features)}
    return EstimatorSpec(
        mode,
        predictions={"y": y},
        loss=np.mean(error**2),
        train_op=GradientDescent(0.1).apply_gradients(gradient),
        eval_metric_ops={"mean_y": metrics.mean(y)},
    )


def rows() -> Dataset:
    """Return points of ``y = 3 * x``."""
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    return Dataset(x, 3 * x).batch(10)


def worker_fn(strategy: ParameterServerStrategy) -> None:
    """Train as the task of this process."""
    context = get_current_worker_context()
    assert context is not None, "the coordinator calls this"
    print(
        f"{context.task_type} {context.task_id} of {context.num_workers} workers, is_chief={context.is_chief}\n",
        end="",  # in one write with its line, because all tasks share the output
        flush=True,
    )
    if context.has_barrier:
        context.wait_for_other_workers()
    estimator = Estimator(line, config=RunConfig(tf_random_seed=1))
    train_and_evaluate(estimator, TrainSpec(lambda: rows().repeat(), max_steps=300), EvalSpec(rows, None))
    if context.is_chief and context.distributed_mode:
        print(f"w = {estimator.get_variable_value('w'):.3f}", flush=True)


def reserved_addresses(num: int, reserved: ExitStack) -> list[str]:
    """Return addresses for tasks on this machine; the system gives them to no other process meanwhile."""
    holders = [reserved.enter_context(socket.socket()) for _ in range(num)]
    for holder in holders:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # tasks set it, too, so they may listen
        try:
            holder.bind(("127.0.0.1", 0))
        except OSError as error:
            why = f"expected {num} free ports on this machine, found fewer: {error.strerror}"
            sys.exit(f"coordinator: {why}; end programs that use ports")
    return [f"localhost:{holder.getsockname()[1]}" for holder in holders]


def main() -> None:
    """Run the coordinator."""
    parser = argparse.ArgumentParser(description="Train a line with the distribute coordinator.")
    parser.add_argument("--model-dir", default="runs/coordinator", help="model_dir of all processes")
    parser.add_argument("--independent", action="store_true", help="run as the task that TF_CONFIG names")
    options = parser.parse_args()
    tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    tf_config["model_dir"] = os.path.abspath(options.model_dir)
    with ExitStack() as reserved:
        if not options.independent:
            chief, worker, ps, evaluator = reserved_addresses(4, reserved)
            tf_config["cluster"] = {"chief": [chief], "worker": [worker], "ps": [ps], "evaluator": [evaluator]}
        os.environ["TF_CONFIG"] = json.dumps(tf_config)
        mode = CoordinatorMode.INDEPENDENT_WORKER if options.independent else CoordinatorMode.STANDALONE_CLIENT
        run_distribute_coordinator(worker_fn, ParameterServerStrategy(), mode=mode)


if __name__ == "__main__":
    main()
