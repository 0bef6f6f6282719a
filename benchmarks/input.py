"""Input: the rate at which one process reads each form of data."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.input_forms import BATCH_ROWS, FORMS, NUM_COLUMNS, Form
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.splittable import SplittableInput

__all__ = ["CLAIM", "measure"]

CLAIM = """\
One process reads 20 columns and a label in batches of 256: an epoch in the order of the file, an epoch shuffled, and,
for tabular files, the scan before the first epoch, which learns types and chunk positions. Epochs of npz and IDX
include reading the whole file. The limit is the bare loop, in order: pyarrow.csv in a stream, iter_batches of Parquet,
load_svmlight_file of scikit-learn, np.load, np.frombuffer, into float32 batches of that size. A step is a batch."""

logger = logging.getLogger(__name__)

QUICK_ROWS = 4_096
BARE = "bare"

Timed = tuple[float, float]
"""Seconds, and CPU seconds of all threads of this process."""


def measure(settings: Settings) -> list[Row]:
    """Measure each form, alternating psflow with the bare loop."""
    rows: list[Row] = []
    for form in FORMS:
        wanted = [kind for kind in _kinds(form) if settings.wants(f"{form.name}/{kind}")]
        if wanted and not (settings.quick and rows):
            rows += _rows(form, wanted[:1] if settings.quick else wanted, settings)
    return rows


def _kinds(form: Form) -> list[str]:
    return ["scan"] * form.is_scanned + ["ordered", "shuffled"]


def _rows(form: Form, wanted: list[str], settings: Settings) -> list[Row]:
    num_rows = QUICK_ROWS if settings.quick else form.num_rows
    timed: dict[str, list[Timed]] = {name: [] for name in (*wanted, BARE)}
    # where the results go, because a directory for temporary files may be in memory
    with TemporaryDirectory(prefix="input-", dir=settings.output) as folder:
        path = Path(folder, form.name)
        random = np.random.default_rng(3)
        form.write(path, random.random((num_rows, NUM_COLUMNS), np.float32), random.integers(0, 10, num_rows))
        for number in range(settings.pairs + 1):
            taken = {name: _timed(form, path, name) for name in timed}
            logger.info(
                "%s, round %d: %s", form.name, number, {name: round(secs, 3) for name, (secs, _) in taken.items()}
            )
            if number:  # the first round imports what is needed, and fills the page cache
                for name, found in taken.items():
                    timed[name].append(found)

    def samples(name: str) -> Samples:
        batches = num_rows / BATCH_ROWS
        return Samples([num_rows / secs for secs, _ in timed[name]], [cpu / batches for _, cpu in timed[name]])

    return [Row.of(f"{form.name}/{kind}", "examples/s", samples(kind), samples(BARE)) for kind in wanted]


def _timed(form: Form, path: Path, name: str) -> Timed:
    match name:
        case "bare":
            return _spent(lambda: deque(form.bare(path), maxlen=0))
        case "scan":
            return _spent(lambda: _opened(form, path, shuffle=False))
        case _ if form.is_scanned:
            data = _opened(form, path, shuffle=name == "shuffled")
            return _spent(lambda: deque(_epoch(data), maxlen=0))
        case _:
            return _spent(lambda: deque(_epoch(_opened(form, path, shuffle=name == "shuffled")), maxlen=0))


def _spent(act: Callable[[], object]) -> Timed:
    started, used = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - started, time.process_time() - used


def _opened(form: Form, path: Path, *, shuffle: bool) -> SplittableInput:
    """Open the data like training does."""
    opened = open_input(
        partial(open_dataset, form.described(path), batch_size=BATCH_ROWS, shuffle=shuffle),
        mode="train",
        non_finite="error",
    )
    assert isinstance(opened, SplittableInput)
    return opened


def _epoch(data: SplittableInput) -> Iterator[object]:
    for start in range(0, data.num_records, BATCH_ROWS):
        yield data.read(0, start, min(start + BATCH_ROWS, data.num_records))
