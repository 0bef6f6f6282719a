"""Batch prediction."""

from __future__ import annotations

import itertools
import logging
import os
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from benchmarks.predicting import export_network, write_records
from benchmarks.processes import cpu_secs, pss_bytes
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.startup_scene import ROOT
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.fork_server import ENVIRONMENT
from psflow.ps_runtime.config.environment import child_environment
from psflow.tasks.prediction.inputs import prediction_input
from psflow.tasks.prediction.model import read_model_info
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.plan import plan_prediction
from psflow.tasks.prediction.window import Partitions, predicted_parts

__all__ = ["CLAIM", "measure"]

CLAIM = """\
Predictions of the network 20-100-10 for records of 20 numbers of float32 in a Parquet file, as Parquet, with 2 workers
of a running cluster: from the inspection of the input to the mark of success. The limit is two concurrent bare
processes that read, compute and write the same with numpy and pyarrow. psflow reaches at least 0.85 of its rows, and a
worker takes at most 400 MB at its peak."""

logger = logging.getLogger(__name__)

SIZES = {"1M": 1_000_000, "10M": 10_000_000}
QUICK_ROWS = 50_000
FILES = (10, 100, 1000)
"""Numbers of files of a million rows together."""
NUM_WORKERS = 2
CLUSTER_TIMEOUT_SECS = 60.0
LOOK_SECS = 0.1
"""Between two looks at the memory of workers."""
MEGABYTE = 2**20

Measured = dict[str, float]
"""Of one system: rows/s, CPU seconds, peak megabytes of a process."""


def measure(settings: Settings) -> list[Row]:
    """Measure each size, in turn with the bare processes."""
    rows: list[Row] = []
    inputs = {f"{size}/{NUM_WORKERS}w": (num_rows, 1) for size, num_rows in SIZES.items()}
    inputs |= {f"1M/{number}-files/{NUM_WORKERS}w": (SIZES["1M"], number) for number in FILES}
    for case, (num_rows, num_files) in inputs.items():
        if settings.wants(case) and not (settings.quick and rows):
            rows += _measure(case, QUICK_ROWS if settings.quick else num_rows, num_files, settings.pairs)
    return rows


def _measure(case: str, num_rows: int, num_files: int, pairs: int) -> list[Row]:
    found: dict[str, list[Measured]] = defaultdict(list)
    with _Predictions(num_rows, num_files) as predictions:
        for number in range(pairs + 1):
            mine, limit = predictions.psflow(), predictions.alone()
            if number:  # the first round loads the model, and fills the caches
                found["psflow"].append(mine)
                found["limit"].append(limit)
            logger.info("round %d: psflow %s, limit %s", number, _shown(mine), _shown(limit))

    def samples(name: str, what: str) -> Samples:
        return Samples([one[what] for one in found[name]])

    return [
        Row.of(case, "rows/s", samples("psflow", "rate"), samples("limit", "rate")),
        Row.of(f"{case}/cpu", "s", samples("psflow", "cpu"), samples("limit", "cpu"), less_is_better=True),
        Row.of(f"{case}/memory", "MB", samples("psflow", "memory"), samples("limit", "memory"), less_is_better=True),
    ]


def _shown(measured: Measured) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in measured.items())


class _Predictions:
    """Everything that is needed to predict, for the time of a ``with`` block."""

    def __init__(self, num_rows: int, num_files: int) -> None:
        self._num_rows, self._num_files = num_rows, num_files
        self._resources = ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        stack = self._resources
        self._directory = Path(stack.enter_context(TemporaryDirectory(prefix="psflow-bench-")))
        records = self._directory / "records"
        records.mkdir()
        for number in range(self._num_files):
            write_records(records / f"{number:04}.parquet", self._num_rows // self._num_files)
        self._model, variables = export_network(self._directory / "network")
        np.savez(self._directory / "variables.npz", allow_pickle=False, **variables)
        self._client = stack.enter_context(open_cluster(None, NUM_WORKERS, CLUSTER_TIMEOUT_SECS))
        self._workers = list(self._client.run(os.getpid).values())
        self._bare = [stack.enter_context(_Bare(self._directory, records, n)) for n in range(NUM_WORKERS)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def psflow(self) -> Measured:
        """Predict all rows with psflow."""
        with _Watch(self._workers, self._num_rows) as watch:
            model = read_model_info(self._model, self._model, self._model, None)
            source = prediction_input(str(self._directory / "records" / "*.parquet"))
            plan = plan_prediction(model, source, PredictionOptions(), str(self._new_folder()))
            with plan.folder.claim():
                plan.begin()
                for _ in predicted_parts(self._client, Partitions(plan.work, plan.left())):
                    watch.look()
                assert sum(part.rows for part in plan.complete()) == self._num_rows
        return watch.measured

    def alone(self) -> Measured:
        """Predict all rows with the bare processes."""
        folder = self._new_folder()
        with _Watch([bare.pid for bare in self._bare], self._num_rows) as watch:
            for bare in self._bare:
                bare.begin(folder)
            while not all(bare.is_done for bare in self._bare):
                watch.look()
            assert sum(bare.num_rows() for bare in self._bare) == self._num_rows
        return watch.measured

    def _new_folder(self) -> Path:
        folder = self._directory / str(next(self._numbers))
        folder.mkdir()
        return folder


class _Bare:
    """A process that predicts its share with only numpy and pyarrow, on each request."""

    def __init__(self, directory: Path, records: Path, number: int) -> None:
        arguments = [str(records), str(directory / "variables.npz"), str(directory), str(number), str(NUM_WORKERS)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.predicting", *arguments],
            cwd=ROOT,
            env=child_environment(ENVIRONMENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        self._said()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def begin(self, folder: Path) -> None:
        """Have it write its share into a folder."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{folder.name}\n")
        self._process.stdin.flush()

    @property
    def is_done(self) -> bool:
        """Whether it has said how many rows it has written."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], LOOK_SECS)[0])

    def num_rows(self) -> int:
        """Wait until it is done; return how many rows it has written."""
        return int(self._said())

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the bare process {self.pid} has ended")
        return line


class _Watch:
    """Measures rate, CPU time and peak memory of what some processes do in a ``with`` block; this process counts, too.

    Attributes
    ----------
    measured : dict
        After the block.
    """

    def __init__(self, pids: Sequence[int], num_rows: int) -> None:
        self._pids, self._num_rows = pids, num_rows
        self._peak, self._next_look = 0, 0.0
        self.measured: Measured = {}

    def __enter__(self) -> Self:
        self._cpu = cpu_secs([*self._pids, os.getpid()])
        self._began = time.monotonic()
        return self

    def look(self) -> None:
        """Look at the memory of the processes, unless that was done a moment ago."""
        if time.monotonic() >= self._next_look:
            self._look()
            self._next_look = time.monotonic() + LOOK_SECS

    def _look(self) -> None:
        self._peak = max(self._peak, *map(pss_bytes, self._pids))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        secs = time.monotonic() - self._began
        cpu = cpu_secs([*self._pids, os.getpid()]) - self._cpu
        self._look()  # they may have ended before the first look
        self.measured = {"rate": self._num_rows / secs, "cpu": cpu, "memory": self._peak / MEGABYTE}
