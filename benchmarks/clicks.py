"""A wide and deep model on a log of clicks, from CSV to a checkpoint: ten million crossed ids."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import psutil

from benchmarks.click_log import BATCH_SIZE, CROSSED_IDS, conf_of, write_click_log
from benchmarks.peer import LOCAL, ROOT, Peer, environments_of, find_peer
from benchmarks.processes import pss_bytes
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.systems.program import Command, ProgramSystem

__all__ = ["CASES", "CLAIM", "Measured", "Shape", "TreeWatch", "examples_per_sec", "measure"]

CLAIM = """\
DNNLinearCombinedClassifier on a log of clicks in CSV, a pass over its records in batches of 1024: two keys of 1,000,000
and 100,000 hashed ids with vectors of 8, their cross hashed into 10,000,000 ids, a category and two numbers, with
missing values. psflow from only a configuration, TensorFlow Estimator as an ordinary program, in one process and with
2 ps and 2 replicas: more examples a second than TensorFlow, in less memory of all processes together."""

logger = logging.getLogger(__name__)

WARM_SHARE = 0.2
"""Share of the steps at the start that does not count for the rate, because of reading and compiling."""
LOOK_SECS = 0.25
"""Interval between two checks of the processes of a run."""
TIMEOUT_SECS = 1800.0
MIN_ROWS = 100 * BATCH_SIZE
MEGABYTE = 2**20
CHIEF = "chief-0"

Measured = Mapping[str, float]
"""One run: examples a second, seconds, CPU seconds of all processes, and their peak memory in MB."""
UNITS = {"rate": "examples/s", "wall": "s", "cpu": "s", "memory": "MB"}


@dataclass(frozen=True, slots=True)
class Shape:
    """The roles of a job; without ps, it is one process."""

    num_ps: int = 0
    num_replicas: int = 1


CASES = {"local": Shape(), "2ps/2w": Shape(2, 2)}


def measure(settings: Settings) -> list[Row]:
    """Measure each case: alternate whole runs of psflow and of TensorFlow."""
    wanted = [name for name in CASES if any(settings.wants(f"{name}/{figure}") for figure in UNITS)]
    num_rows = MIN_ROWS if settings.quick else max(settings.rows, MIN_ROWS)
    # where the results go, because a directory for temporary files may be in memory
    with TemporaryDirectory(prefix="clicks-", dir=settings.output) as folder:
        path = Path(folder).resolve() / "clicks.csv"
        write_click_log(path, num_rows)
        cases = wanted[:1] if settings.quick else wanted
        return [row for name in cases for row in _rows(name, path, num_rows // BATCH_SIZE, settings)]


def _rows(name: str, path: Path, max_steps: int, settings: Settings) -> list[Row]:
    peer = None if settings.quick else find_peer()
    runs: dict[str, list[Measured]] = {who: [] for who in ("psflow", "peer") if who == "psflow" or peer is not None}
    for number in range(settings.pairs):
        for who in sorted(runs, reverse=bool(number % 2)):
            system = (
                _product(CASES[name], path, max_steps)
                if who == "psflow" or peer is None
                else _peer(peer, CASES[name], path, max_steps)
            )
            runs[who].append(_run(system, max_steps))
            shown = ", ".join(f"{figure} {value:,.1f}" for figure, value in runs[who][-1].items())
            logger.info("%s, pair %d, %s: %s", name, number + 1, who, shown)
    return [
        Row.of(
            f"{name}/{figure}",
            unit,
            _samples(runs["psflow"], figure),
            peer=_samples(runs["peer"], figure) if "peer" in runs else None,
            less_is_better=figure != "rate",
        )
        for figure, unit in UNITS.items()
        if settings.wants(f"{name}/{figure}")
    ]


def _samples(runs: list[Measured], figure: str) -> Samples:
    return Samples([run[figure] for run in runs])


def _product(shape: Shape, path: Path, max_steps: int) -> ProgramSystem:
    def commands(directory: Path) -> dict[str, Command]:
        conf = directory / "clicks.yaml"
        conf.write_text(
            conf_of(path, directory / "model", max_steps, max(1, shape.num_ps), num_workers=shape.num_replicas - 1)
        )
        program = [sys.executable, "-m", "benchmarks.click_training", str(conf)]
        return {CHIEF: Command(program, {"PYTHONPATH": str(ROOT)})}

    return ProgramSystem("psflow", commands, counting=[CHIEF])


def _peer(peer: Peer, shape: Shape, path: Path, max_steps: int) -> ProgramSystem:
    environments = environments_of(shape.num_ps, shape.num_replicas) if shape.num_ps else {LOCAL: {}}
    training = [role for role in environments if not role.startswith("ps")]

    def commands(directory: Path) -> dict[str, Command]:
        program = [
            *(peer.python, "-m", "benchmarks.peers.tf_clicks", "--data", str(path)),
            *("--batch-size", str(BATCH_SIZE), "--crossed-ids", str(CROSSED_IDS)),
            *("--model-dir", str(directory / "model"), "--max-steps", str(max_steps)),
        ]
        return {
            role: Command(program, environment | {"PYTHONPATH": str(ROOT)})
            for role, environment in environments.items()
        }

    return ProgramSystem("TensorFlow", commands, counting=training[:1], first_steps=training)


def _run(system: ProgramSystem, max_steps: int) -> Measured:
    """Run a system to the end of its training, final checkpoint included."""
    with contextlib.closing(system):
        began = time.monotonic()
        system.launch()
        with TreeWatch(system.pids) as watch:
            for name in (name for name in system.roles if not name.startswith("ps")):
                system.await_event(name, "ended", TIMEOUT_SECS)
        wall = time.monotonic() - began
        [reports] = [found for name in system.roles if (found := system.progress.reports(name))]
    return {
        "rate": examples_per_sec(reports, max_steps),
        "wall": wall,
        "cpu": sum(watch.cpu_secs.values()),
        "memory": watch.peak_bytes / MEGABYTE,
    }


def examples_per_sec(reports: list[tuple[int, float]], max_steps: int) -> float:
    """Return the rate of (step, time) reports, from the end of the warm-up on.

    Examples
    --------
    >>> examples_per_sec([(0, 0.0), (20, 7.0), (60, 8.0), (100, 9.0)], 100) == 40 * BATCH_SIZE
    True
    """
    (first, start), *_, (last, stop) = [report for report in reports if report[0] >= WARM_SHARE * max_steps]
    return (last - first) / (stop - start) * BATCH_SIZE


@dataclass
class TreeWatch:
    """Looks at processes and all that they start, for the time of a ``with`` block.

    Parameters
    ----------
    pids : sequence of int
        The processes.

    Attributes
    ----------
    peak_bytes : int
        The largest sum of their proportional set sizes that was seen.
    cpu_secs : dict of int to float
        CPU seconds that each process was last seen to have used.
    """

    pids: Sequence[int]
    peak_bytes: int = 0
    cpu_secs: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="psflow-bench-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECS):
            self._look()

    def _look(self) -> None:
        total = 0
        for process in self._processes():
            with contextlib.suppress(psutil.Error, OSError):  # it has just ended
                total += pss_bytes(process.pid)
                self.cpu_secs[process.pid] = sum(process.cpu_times()[:2])
        self.peak_bytes = max(self.peak_bytes, total)

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for pid in self.pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                found += [process, *process.children(recursive=True)]
        return found
