"""A small network, which shows the overhead of a step."""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.throughput import Contest, measure_contests
from benchmarks.workloads import Workload

__all__ = ["CLAIM", "WORKLOAD", "measure"]

CLAIM = """\
MLP 784-100-10, batch 100, gradient descent, data in memory. async/shm/1ps/2w makes at least 6 times the steps of
TensorFlow Estimator and 0.7 of the steps of a bare numpy gradient loop; async/tcp/1ps/2w at least 2 times TensorFlow's;
sync/shm/1ps/2w at least 5 times its synchronous gradients; async/shm/1ps/1w is no slower than TensorFlow in one process
without any ps."""

WORKLOAD = Workload("mlp", report_steps=50, slice_secs=1.0)

ASYNC_2W = (
    Case("async", "shm"),
    Case("async", "tcp"),
    Case("async", "unix"),
    Case("async", "shm", pipeline_depth=1),
    Case("bounded_staleness", "shm"),
    Case("hogwild", "shm"),
)


def measure(settings: Settings) -> list[Row]:
    """Measure asynchronous, synchronous and other training with 1 to 3 replicas."""
    contests = [
        Contest(WORKLOAD, ASYNC_2W),
        Contest(WORKLOAD, [Case("async", "shm", num_replicas=1)], peer_is_local=True),
        Contest(WORKLOAD, [Case("async", "shm", num_replicas=3)]),
        *(Contest(WORKLOAD, [Case("sync", "shm", num_replicas=n)]) for n in (2, 1, 3)),
    ]
    return measure_contests(contests, settings)
