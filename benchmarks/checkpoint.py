"""Checkpoints of a large model: the delay of training, and the time to write and to restore them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.peer import find_peer
from benchmarks.rows import Row, Samples
from benchmarks.saving_runs import PeerRuns, ProductRuns, Saved
from benchmarks.settings import Settings
from benchmarks.workloads import Workload
from psflow.ps_runtime.cluster.connecting import open_cluster

__all__ = ["CLAIM", "measure"]

CLAIM = """\
A model of 400 MB, 1 ps, 1 replica: a checkpoint delays training by at most twice the time of a copy into touched memory
("stall" as the chief measures it, "pause" between steps); its file is written during training. The limits: that copy;
a synced write of a file of 400 MB; reading it back from the disk."""

logger = logging.getLogger(__name__)

NUM_PARAMETERS, QUICK_PARAMETERS = 100_000_000, 250_000
CLUSTER_TIMEOUT_SECS = 60.0
QUANTITIES = ("stall", "pause", "save", "restore")
SUFFIX = "shm/1ps/1w"
BLOCK_BYTES = 1 << 24
COPIES = 5
"""Runs of which the fastest counts: the first one after a pause takes twice as long."""


def measure(settings: Settings) -> list[Row]:
    """Restore, train and save in turn with the limits and the peer."""
    wanted = [name for name in QUANTITIES if settings.wants(f"{name}/{SUFFIX}")]
    if not wanted:
        return []
    runs: dict[str, list[Saved]] = {"psflow": [], "limit": [], "peer": []}
    for number, kind, saved in _runs(settings):
        if number:  # the first one has nothing to restore, and warms up
            runs[kind].append(saved)
        logger.info("run %d of %s: %s", number, kind, saved)
    samples = {
        kind: {q: Samples([getattr(s, q) for s in saved]) for q in wanted} for kind, saved in runs.items() if saved
    }
    return [
        Row.of(
            f"{name}/{SUFFIX}",
            "s",
            samples["psflow"][name],
            samples["limit"][name],
            samples["peer"][name] if "peer" in samples else None,
            less_is_better=True,
        )
        for name in wanted
    ]


def _runs(settings: Settings) -> Iterator[tuple[int, str, Saved]]:
    """Yield the number of each run, its system, and its durations."""
    size = QUICK_PARAMETERS if settings.quick else NUM_PARAMETERS
    workload = Workload("dense", report_steps=1, slice_secs=1.0, params={"num_parameters": size})
    found = None if settings.quick else find_peer()
    with ExitStack() as stack:
        # where the results go, because a directory for temporary files may be in memory
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="checkpoint-", dir=settings.output)))
        limit = _Limit(4 * size, directory / "limit")
        peer = None if found is None else PeerRuns(found, workload, directory)
        client = stack.enter_context(open_cluster(None, 2, CLUSTER_TIMEOUT_SECS))
        product = ProductRuns(client, workload, "shm", directory / "psflow")
        for number in range(settings.pairs + 1):
            yield number, "psflow", product.run()
            yield number, "limit", limit.run()
            if peer is not None:
                yield number, "peer", peer.run()


class _Limit:
    """Only copy, write and read this number of bytes."""

    def __init__(self, nbytes: int, path: Path) -> None:
        self._source = np.ones(nbytes, np.uint8)
        self._target = np.ones(nbytes, np.uint8)
        self._path = path

    def run(self) -> Saved:
        copy_secs = min(self._copy_secs() for _ in range(COPIES))
        started = time.perf_counter()
        with self._path.open("wb", buffering=0) as file:
            for start in range(0, self._source.size, BLOCK_BYTES):
                file.write(self._source[start : start + BLOCK_BYTES].data)
            os.fsync(file.fileno())
            written = time.perf_counter()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        forgotten = time.perf_counter()
        with self._path.open("rb", buffering=0) as file:
            view = self._target.data
            while view:
                view = view[file.readinto(view[:BLOCK_BYTES]) :]
        read = time.perf_counter()
        return Saved(copy_secs, copy_secs, written - started, read - forgotten)

    def _copy_secs(self) -> float:
        started = time.perf_counter()
        np.copyto(self._target, self._source)
        return time.perf_counter() - started
