"""A sparse table: only the rows of a batch are transferred."""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.pulls import measure_pulls
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.throughput import Contest, measure_contests
from benchmarks.workloads import Workload

__all__ = ["CLAIM", "measure"]

CLAIM = """\
A table of 1,000,000 x 16, batches of 1024 x 26 ids, Adagrad, 2 replicas: at least 1.5 times the steps of TensorFlow
Estimator with uniform ids, 2.5 times with Zipf ids (share of the k-th row ~ k ** -1.05), and 0.7 of the bare kernels
(unique ids, their rows, gradient sums, row updates), with 1 and with 2 ps. "pull" is a pull of 26,624 uniform ids from
one ps without transport: it takes at most 1.3 times a bare take of the same rows from the same memory."""


def measure(settings: Settings) -> list[Row]:
    """Measure uniform and Zipf ids with 1 and 2 ps, and separate pulls."""
    contests = []
    for num_ps in (1, 2):
        for ids in ("zipf", "uniform"):
            workload = Workload("embedding", report_steps=5, slice_secs=1.5, params={"ids": ids})
            cases = [Case("async", transport, num_ps, variant=ids) for transport in ("shm", "tcp")]
            contests.append(Contest(workload, cases))
    return measure_contests(contests, settings) + ([] if settings.quick else measure_pulls(settings))
