"""What is told of scans: to a watcher after each chunk, else to the log now and then."""

from __future__ import annotations

from pathlib import Path

import pytest

from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.data.scan_progress import LoggedScans, ScanProgress, told_of_scans
from psflow.ps_runtime.record_files.scan import Scan


def test_a_watcher_is_told_after_each_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Scan.__init__.__kwdefaults__, "chunk_bytes", 8)
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x\n" + "1234567\n" * 5)
    told: list[ScanProgress] = []
    given = Csv(path=str(tmp_path)).read()
    with told_of_scans(told.append):
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
    logged = LoggedScans(said.append, lambda: now)
    for secs in (1, 9, 11, 15, 20, 22, 40):
        now = 100.0 + secs
        logged(ScanProgress("it", secs * 10**8, 10**10, secs))
    assert said == [
        "reading it: 1.1 of 10.0 GB (11 %), 100 MB/s, ETA 0:01:29",
        "reading it: 2.2 of 10.0 GB (22 %), 100 MB/s, ETA 0:01:18",
        "reading it: 4.0 of 10.0 GB (40 %), 100 MB/s, ETA 0:01:00",
    ]
