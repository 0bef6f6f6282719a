"""A training that mostly moves bytes, and prints when it makes its steps: ``python -m tests.hosts.dense JSON``."""

from __future__ import annotations

import json
import sys
from typing import Any

from distributed import Client

from benchmarks.models.dense import input_fn, model_fn
from psflow import Async, Estimator, EvalSpec, RunConfig, Sync, TrainSpec, WireFormat, train_and_evaluate
from psflow.ps_runtime.roles.events import Event, Metrics

NUM_REPORTS = 24


def _print_step(event: Event) -> None:
    if isinstance(event, Metrics) and event.role == "chief-0":
        print("step", event.step, "at", event.time, flush=True)


def main(
    model_dir: str,
    address: str,
    num_parameters: int,
    max_steps: int,
    is_sync: bool,
    wire: dict[str, str],
    pipeline_depth: int,
    **cluster: Any,
) -> None:
    """Train on the Dask cluster at `address`."""
    config = RunConfig(
        model_dir,
        tf_random_seed=1,
        save_checkpoints_steps=max_steps,
        log_step_count_steps=max(1, max_steps // NUM_REPORTS),
        consistency=Sync() if is_sync else Async(),
        wire=WireFormat(**wire),
        pipeline_depth=pipeline_depth,
    )
    params = {"num_parameters": num_parameters}
    estimator = Estimator(model_fn, model_dir, config, params)
    train_spec = TrainSpec(lambda: input_fn(params), max_steps)
    eval_spec = EvalSpec(lambda: input_fn(params), 1)
    with Client(address) as client:
        train_and_evaluate(
            estimator, train_spec, eval_spec, client=client, on_event=_print_step, transport="tcp", **cluster
        )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
