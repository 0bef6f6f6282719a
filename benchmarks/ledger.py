"""The cost of a step over time: ``python -m benchmarks.ledger`` compares it with the entries of earlier commits.

A figure is the CPU time of a gradient, of all roles together, divided by that of the bare gradient, which is measured
in turn with it. Both are the least of several spans of steps, because other work on the machine only adds to them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.cases import Case
from benchmarks.machine import machine_facts
from benchmarks.mlp import WORKLOAD
from benchmarks.rounds import SETTLE_SECS, at_work
from benchmarks.systems.base import System
from benchmarks.systems.product import CHIEF, ProductSystem
from benchmarks.systems.program import Command, ProgramSystem
from psflow import Estimator, RunConfig, SessionRunContext, SessionRunHook, SessionRunValues
from psflow.ps_runtime.cluster.fork_server import ENVIRONMENT
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError

__all__ = ["LEDGER", "main", "measured", "slower", "train_alone"]

LEDGER = Path("docs", "benchmarks", "ledger.csv")
CASES = (Case("async", "shm"), Case("sync", "shm"), Case("async", "tcp"))
ALONE = "one process"
NUM_ROUNDS, NUM_SPANS, SPAN_REPORTS = 2, 4, 4
NUM_GRADIENTS = 200
NUM_ENTRIES = 10
"""The latest ones of the same processor, with whose median a measurement is compared."""
TOLERANCE = 1.05
LOOK_SECS = 0.02
TIMEOUT_SECS = 120.0


class StepReports(SessionRunHook):
    """Prints the number of steps of its process, and when they were done."""

    def __init__(self) -> None:
        self._num_steps = 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Print, if it is time to."""
        self._num_steps += 1
        if self._num_steps % WORKLOAD.report_steps == 0:
            print(json.dumps({"step": self._num_steps, "time": time.monotonic()}), flush=True)


def train_alone(model_dir: str) -> None:
    """Train in this process, without a cluster, until it is killed."""
    config = RunConfig(tf_random_seed=1, save_summary_steps=WORKLOAD.report_steps)
    estimator = Estimator(WORKLOAD.module.model_fn, model_dir, config)
    estimator.train(partial(WORKLOAD.module.input_fn, {}), [StepReports()])


def measured() -> dict[str, float]:
    """Return the cost of a gradient in each case, in bare gradients."""
    program = "import sys; from benchmarks.ledger import train_alone; train_alone(sys.argv[1])"
    alone = ProgramSystem(
        ALONE,
        lambda folder: {CHIEF: Command([sys.executable, "-c", program, str(folder / "model")], ENVIRONMENT)},
        counting=[CHIEF],
    )
    costs = {case.key: _cost(ProductSystem(WORKLOAD, case)) / case.gradients_per_update for case in CASES}
    return {name: round(cost, 3) for name, cost in {**costs, ALONE: _cost(alone)}.items()}


def _cost(system: System) -> float:
    """Return the CPU seconds of a step over those of a bare gradient; the system is held while that is measured."""
    bare_step = WORKLOAD.bare_step()
    steps: list[float] = []
    gradients: list[float] = []
    with closing(system), threadpool_limits(limits=1):
        system.start()
        for _ in range(NUM_ROUNDS):
            gradients += [_secs_of(bare_step) for _ in range(NUM_SPANS)]
            steps += _step_secs(system)
    return min(steps) / min(gradients)


def _secs_of(bare_step: Callable[[], object]) -> float:
    started = time.thread_time()
    for _ in range(NUM_GRADIENTS):
        bare_step()
    return (time.thread_time() - started) / NUM_GRADIENTS


def _step_secs(system: System) -> list[float]:
    """Return the CPU seconds of a step in each of some spans of steps."""
    clocks: list[tuple[float, float]] = []
    deadline = Deadline(TIMEOUT_SECS)
    with at_work(system):
        time.sleep(SETTLE_SECS)
        known = len(_reports(system))
        while len(reports := _reports(system)[known:]) <= NUM_SPANS * SPAN_REPORTS + 2:
            system.check()
            if deadline.has_passed:
                raise WaitTimeoutError(system.name, "make the measured steps", TIMEOUT_SECS)
            clocks.append((time.monotonic(), system.cpu_secs()))
            time.sleep(LOOK_SECS)
    times, used = zip(*clocks, strict=True)
    ends = [(step, float(np.interp(at, times, used))) for step, at in reports if times[0] <= at <= times[-1]]
    return [(last[1] - first[1]) / (last[0] - first[0]) for first, last in pairwise(ends[::SPAN_REPORTS])]


def _reports(system: System) -> list[tuple[int, float]]:
    return system.progress.reports(CHIEF)


def slower(entry: Mapping[str, float | str], entries: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each figure of `entry` that is 5 % above the median of the latest ones in `entries`."""
    same = entries[entries["processor"] == entry["processor"]].tail(NUM_ENTRIES)
    if same.empty:
        yield f"the ledger has no entry of this processor, {entry['processor']}; make ledger appends one"
    for case, cost in entry.items():
        if isinstance(cost, float) and case in same and cost > TOLERANCE * (usual := same[case].median()):
            yield f"{case} costs {cost:.2f} bare gradients, {cost / usual - 1:.0%} more than the {usual:.2f} of before"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the entry and what is slower; return the exit code, which is 0 in both cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("--append", action="store_true", help=f"append the entry to {LEDGER}")
    options = parser.parse_args(arguments)
    prepare_environment()
    entry = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _git("rev-parse", "--short=10", "HEAD") + "+" * bool(_git("status", "--porcelain", "-uno", ":!docs")),
        "processor": machine_facts()["cpu"],
        **measured(),
    }
    entries = pd.read_csv(LEDGER)
    new = pd.DataFrame([entry])
    print(new.to_csv(index=False), end="")
    for line in slower(entry, entries):
        print(f"warning: {line}")
    if options.append:
        pd.concat([entries, new]).to_csv(LEDGER, index=False)
    return 0


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
