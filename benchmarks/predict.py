"""Batch prediction."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from psflow.tasks.prediction.output import partitions

from benchmarks.mlp import WORKLOAD
from benchmarks.peer import LOCAL, Peer, find_peer, peer_arguments
from benchmarks.predicting import export_model, save_arrays, write_rows
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.startup_scene import ROOT, Scene
from benchmarks.systems.program import Command, ProgramSystem
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.config.environment import child_environment
from psflow.tasks.prediction.inputs import prediction_input, read_input
from psflow.tasks.prediction.model import read_model_info
from psflow.tasks.prediction.partition import predict_partition

__all__ = ["CLAIM", "measure"]

CLAIM = """\
Predictions of the network 784-100-10 for 61,440 rows of an npz file, as CSV, with 2 workers. "partitions": the work of
the workers, model and rows loaded; "flow": the whole command, with cluster and servers up. The limit is one process
that predicts and writes the same with numpy alone, for "flow" with reading. The peer is Estimator.predict in one
process, whose predictions are not written; for "partitions" it is timed from its first batch on."""

logger = logging.getLogger(__name__)

NUM_ROWS, QUICK_ROWS = 61_440, 4_096
NUM_WORKERS = 2
CLUSTER_TIMEOUT_SECS = 60.0
TIMEOUT_SECS = 300.0
LIMIT, LIMIT_ALL = "limit", "limit with reading"
PEER, PEER_ALL = "peer", "peer with its start"
OTHERS = {"partitions": (LIMIT, PEER), "flow": (LIMIT_ALL, PEER_ALL)}
"""What each is compared with."""


def measure(settings: Settings) -> list[Row]:
    """Measure partitions and flow, in turn with the limit and the peer."""
    wanted = [name for name in ("partitions", "flow") if settings.wants(f"{name}/{NUM_WORKERS}w")]
    wanted = wanted[:1] if settings.quick else wanted
    if not wanted:
        return []
    num_rows = QUICK_ROWS if settings.quick else NUM_ROWS
    secs: dict[str, list[float]] = defaultdict(list)
    with _Predictions(num_rows, find_peer() if not settings.quick else None, with_flow="flow" in wanted) as predictions:
        for number in range(settings.pairs + 1):
            for name, taken in predictions.round(wanted):
                if number:  # the first round loads model and rows, and makes databases
                    secs[name].append(taken)
            logger.info("round %d: %s", number, {name: round(values[-1], 3) for name, values in secs.items()})

    def rates(name: str) -> Samples | None:
        return Samples([num_rows / taken for taken in secs[name]]) if name in secs else None

    rows = []
    for name in wanted:
        mine = rates(name)
        assert mine is not None
        rows.append(Row.of(f"{name}/{NUM_WORKERS}w", "rows/s", mine, *map(rates, OTHERS[name])))
    return rows


class _Predictions:
    """Everything that is needed to predict, for the time of a ``with`` block."""

    def __init__(self, num_rows: int, peer: Peer | None, *, with_flow: bool) -> None:
        self._num_rows = num_rows
        self._peer = peer
        self._with_flow = with_flow
        self._resources = ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        stack = self._resources
        self._directory = Path(stack.enter_context(TemporaryDirectory(prefix="psflow-bench-")))
        self._rows, self._variables = self._directory / "rows.npz", self._directory / "variables.npz"
        write_rows(self._rows, self._num_rows)
        self._model, variables = export_model(self._directory / "model")
        save_arrays(self._variables, variables)
        WORKLOAD.save_arrays(str(self._directory / "records.npz"))
        self._client = stack.enter_context(open_cluster(None, NUM_WORKERS, CLUSTER_TIMEOUT_SECS))
        self._scene = stack.enter_context(Scene())
        if self._with_flow:
            self._scene.start_servers(NUM_WORKERS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def round(self, wanted: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Predict all rows in each way; yield its name and its seconds."""
        if "partitions" in wanted:
            yield "partitions", self._partitions()
        if "flow" in wanted:
            arguments = ["predict", "--model", self._model, "--input", str(self._rows)]
            yield "flow", self._scene.command([*arguments, "--output", str(self._new_path())])
        yield from zip((LIMIT, LIMIT_ALL), self._alone(), strict=True)
        if self._peer is not None:
            yield from self._of_peer(self._peer)

    def _partitions(self) -> float:
        model = read_model_info(self._model, self._model, None)
        source = prediction_input(str(self._rows))
        digest = read_input(source, model.schema).digest()
        output = str(self._new_path())
        started = time.monotonic()
        futures = [
            self._client.submit(predict_partition, model, source, digest, part, output, pure=False)
            for part in partitions(self._num_rows)
        ]
        assert sum(future.result() for future in futures) == self._num_rows
        return time.monotonic() - started

    def _alone(self) -> list[float]:
        arguments = [str(self._rows), str(self._variables), str(self._new_path())]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.predicting", *arguments],
            cwd=ROOT,
            env=child_environment({}),
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_SECS,
            check=True,
        )
        return [float(secs) for secs in done.stdout.split()]

    def _of_peer(self, peer: Peer) -> Iterator[tuple[str, float]]:
        arguments = peer_arguments(peer, WORKLOAD, self._directory / "records.npz", self._new_path())
        arguments += ["--predict", str(self._rows)]
        system = ProgramSystem("TensorFlow predict", lambda _: {LOCAL: Command(arguments)}, counting=[])
        started = time.monotonic()
        try:
            system.launch()
            system.await_event(LOCAL, "ended", TIMEOUT_SECS)
            [told] = [event for event in system.events[LOCAL] if "predicted_secs" in event]
            yield PEER, told["predicted_secs"] / told["share"]
            yield PEER_ALL, time.monotonic() - started
        finally:
            system.close()

    def _new_path(self) -> Path:
        return self._directory / str(next(self._numbers))
