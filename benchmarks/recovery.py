"""The cost of a lost role: the rate of the others, and the time until training continues."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.losing_runs import run_with_lost_ps, run_with_lost_worker
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.workloads import Workload

__all__ = ["CLAIM", "measure"]

CLAIM = """\
One of two workers is killed, or stopped, while a step takes 10 ms and a checkpoint is saved every 50 steps: the chief
and the other worker lose at most a tenth of their rate in the next 20 s; the limit is their rate in the 20 s before. A
ps is killed: the chief makes its next step within 15 s plus the restore of the checkpoint, which is the limit."""

logger = logging.getLogger(__name__)

SECS, QUICK_SECS = 20.0, 2.0
FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


class LostPs(NamedTuple):
    """A model whose ps is killed."""

    workload: Workload
    save_steps: int


LOST_PS = {
    "784-100-10": LostPs(Workload("mlp", report_steps=100, slice_secs=1.0), 2000),
    "400MB": LostPs(Workload("dense", report_steps=1, slice_secs=1.0, params={"num_parameters": 100_000_000}), 12),
}


def measure(settings: Settings) -> list[Row]:
    """Measure each case in jobs of their own, one after the other."""
    rows: list[Row] = []
    # where the results go, because a directory for temporary files may be in memory
    with TemporaryDirectory(prefix="recovery-", dir=settings.output) as folder:
        for name, fault in FAULTS.items():
            case = f"{name}/2w"
            if settings.wants(case) and not (settings.quick and rows):
                rows.append(_rates(case, fault, Path(folder), settings))
        for name, lost in LOST_PS.items():
            case = f"ps/{name}"
            if settings.wants(case) and not (settings.quick and rows):
                rows.append(_recoveries(case, lost, Path(folder), settings))
    return rows


def _rates(case: str, fault: signal.Signals, folder: Path, settings: Settings) -> Row:
    secs = QUICK_SECS if settings.quick else SECS
    found = []
    for number in range(settings.pairs):
        with TemporaryDirectory(dir=folder) as model_dir:
            found.append(run_with_lost_worker(Path(model_dir), fault, secs))
        logger.info("%s, run %d: %.1f steps/s, before %.1f", case, number + 1, found[-1].since, found[-1].before)
    return Row.of(case, "steps/s", Samples([r.since for r in found]), Samples([r.before for r in found]))


def _recoveries(case: str, lost: LostPs, folder: Path, settings: Settings) -> Row:
    found = []
    for number in range(settings.pairs):
        with TemporaryDirectory(dir=folder) as model_dir:
            found.append(run_with_lost_ps(lost.workload, Path(model_dir), lost.save_steps))
        total, restore = found[-1].total, found[-1].restore
        logger.info("%s, run %d: %.2f s until the next step, %.2f s of them restore", case, number + 1, total, restore)
    totals, restores = [r.total for r in found], [r.restore for r in found]
    return Row.of(case, "s", Samples(totals), Samples(restores), less_is_better=True)
