"""Large dense parameters: the transfer of bytes."""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.throughput import Contest, measure_contests
from benchmarks.workloads import Workload

__all__ = ["CLAIM", "measure"]

CLAIM = """\
One vector of 1, 10 or 50 million float32 and a gradient that costs one pass over it, 1 ps, 2 replicas: at least 4 times
the steps of TensorFlow Estimator over shared memory, 1.5 times over TCP. The limit copies the bytes of a pull and of a
push, a process for each replica."""

SIZES = {"1M": 1_000_000, "10M": 10_000_000, "50M": 50_000_000}
REPORT_STEPS = {"1M": 10, "10M": 2, "50M": 1}
SLICE_SECS = {"1M": 1.0, "10M": 1.5, "50M": 4.0}


def measure(settings: Settings) -> list[Row]:
    """Measure each size over shared memory and TCP."""
    contests = []
    for name, size in SIZES.items():
        workload = Workload("dense", REPORT_STEPS[name], SLICE_SECS[name], {"num_parameters": size})
        contests.append(Contest(workload, [Case("async", transport, variant=name) for transport in ("shm", "tcp")]))
    return measure_contests(contests, settings)
