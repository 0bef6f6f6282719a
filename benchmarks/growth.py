"""What a step costs as a job grows: variables, columns, ps, workers, and steps that were made before."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cases import Case
from benchmarks.memory import measure_growth
from benchmarks.mlp import WORKLOAD
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.throughput import Contest, measure_contests
from benchmarks.workloads import Workload

__all__ = ["CLAIM", "measure"]

CLAIM = """\
Steps per second as one thing grows and all else stays: 100,000 parameters in 10, 100 or 1,000 variables; 10, 100 or 500
columns of a dict; 1, 2 or 4 ps, and 1, 2 or 3 replicas, of the MLP 784-100-10. The limit is a bare loop for each
replica. "memory" is the proportional set size of a role after 10,000, 100,000 and 1,000,000 steps, its limit
that after 1,000."""

VARIABLES, COLUMNS = (10, 100, 1000), (10, 100, 500)
NUM_PS, NUM_REPLICAS = (1, 2, 4), (1, 2, 3)


def measure(settings: Settings) -> list[Row]:
    """Measure each size of each thing."""
    shapes = [(f"{n}-variables", n, 1) for n in VARIABLES] + [(f"{n}-columns", 1, n) for n in COLUMNS]
    contests = [
        Contest(
            Workload("many", 10, 1.0, {"num_variables": num_variables, "num_columns": num_columns}),
            [Case("async", "shm", variant=name)],
        )
        for name, num_variables, num_columns in shapes
    ]
    contests += [Contest(WORKLOAD, [Case("async", "shm", num_ps=n)]) for n in NUM_PS]
    contests += [Contest(WORKLOAD, [Case("async", "shm", num_replicas=n)]) for n in NUM_REPLICAS if n != 2]
    rows = measure_contests([replace(contest, has_peer=False) for contest in contests], settings)
    return rows if settings.quick and rows else rows + measure_growth(settings)
