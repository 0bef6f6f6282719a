"""Progress of long reading: for a watcher after each chunk or second, else in the log from time to time."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.data import reading_progress
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.input_pipeline import call_input_fn
from psflow.ps_runtime.data.reading_progress import CallProgress, LoggedProgress, ScanProgress, watched_by
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.tabular_files.scan import Scan
from tests.limits import HANG_SECS


def test_a_watcher_is_called_after_each_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Scan.__init__.__kwdefaults__, "chunk_bytes", 8)
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x\n" + "1234567\n" * 5)
    told: list[ScanProgress] = []
    given = Csv(path=str(tmp_path)).read()
    with watched_by(told.append):
        schema = given.learn("error", "the train input").schema()
        num_chunks = len(told)
        given.open(schema, "error", "the eval input", needs_labels=True)
    given.learn("error", "unwatched")
    assert num_chunks == 10
    assert [progress.done_bytes for progress in told[:10]] == [*range(10, 43, 8), *range(52, 85, 8)]
    assert [progress.where for progress in told] == ["the train input"] * 10 + ["the eval input"] * 10
    assert {progress.num_bytes for progress in told} == {84}
    assert all(progress.secs >= 0 for progress in told)


def test_the_log_has_a_line_every_ten_seconds() -> None:
    now, said = 100.0, list[str]()
    logged = LoggedProgress(said.append, lambda: now)
    for secs in (1, 9, 11, 15, 20, 22, 40):
        now = 100.0 + secs
        logged(ScanProgress("it", secs * 10**8, 10**10, secs))
    assert said == [
        "reading it: 1.1 of 10.0 GB (11 %), 100 MB/s, ETA 0:01:29",
        "reading it: 2.2 of 10.0 GB (22 %), 100 MB/s, ETA 0:01:18",
        "reading it: 4.0 of 10.0 GB (40 %), 100 MB/s, ETA 0:01:00",
    ]


def test_a_watcher_gets_an_input_fn_that_runs_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_progress, "TICK_SECS", 0.001)
    seen = list[ScanProgress | CallProgress]()
    has_been_seen = threading.Event()
    data = Dataset(np.ones((2, 1)), None).batch(1)

    def watch(progress: ScanProgress | CallProgress) -> None:
        seen.append(progress)
        has_been_seen.set()

    def slow() -> Dataset:
        has_been_seen.wait(HANG_SECS)
        return data

    with watched_by(watch):
        assert call_input_fn(slow)() is data
    assert {progress.where for progress in seen} == {f"the input_fn {slow.__qualname__}"}
    assert [progress.has_ended for progress in seen] == [False] * (len(seen) - 1) + [True]
    assert len(seen) > 1


def test_the_log_has_a_line_of_a_call_every_ten_seconds() -> None:
    now, said = 100.0, list[str]()
    logged = LoggedProgress(said.append, lambda: now)
    now = 900.0  # a watcher may be older than a call
    for secs in (1, 9, 10, 15, 20):
        now = 900.0 + secs
        logged(CallProgress("the input_fn points", secs))
    logged(CallProgress("the input_fn points", 31.0, has_ended=True))
    assert said == [f"the input_fn points has been running for {secs} s" for secs in (10, 20)]
