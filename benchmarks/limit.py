"""The limit as a program: ``python -m benchmarks.limit MODEL REPORT_STEPS PARAMS`` repeats a bare step forever."""

from __future__ import annotations

import json
import os
import sys
import time

from threadpoolctl import threadpool_limits

from benchmarks.systems.program import Command, ProgramSystem
from benchmarks.workloads import Workload
from psflow.ps_runtime.cluster.fork_server import ENVIRONMENT

__all__ = ["limit_system", "main"]


def limit_system(workload: Workload, num_replicas: int) -> ProgramSystem:
    """Return the limit of a workload: a bare loop for each replica, but no more than there are cores.

    Its environment is that of the roles of psflow, or it would be no limit: without that a copy of megabytes may take
    twice as long.
    """
    number = min(num_replicas, len(os.sched_getaffinity(0)))
    arguments = ["benchmarks.limit", workload.model, str(workload.report_steps), json.dumps(dict(workload.params))]
    commands = {f"loop-{i}": Command([sys.executable, "-m", *arguments], ENVIRONMENT) for i in range(number)}
    return ProgramSystem(f"limit {workload.model}/{num_replicas}w", lambda _: commands, counting=list(commands))


def main(model: str, report_steps: int, params: str) -> None:
    """Repeat the bare step of a model, and print the step count every `report_steps`."""
    step = Workload(model, report_steps, 0.0, json.loads(params)).bare_step()
    count = 0
    with threadpool_limits(limits=1):
        while True:
            step()
            count += 1
            if count % report_steps == 0:
                print(json.dumps({"step": count, "time": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
