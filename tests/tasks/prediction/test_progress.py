from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psflow.tasks.prediction import progress as module
from psflow.tasks.prediction.progress import PredictionProgress
from tests.tasks.prediction.scoring import facts, part

PARTS = [part(i, 100 * i, 100 * i + 100) for i in range(4)]


def test_rows_rate_and_the_time_that_is_left_are_reported_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    shares: list[float] = []
    monkeypatch.setattr(module, "get_run_logger", lambda: SimpleNamespace(info=lambda form, line: told.append(line)))
    monkeypatch.setattr(module, "create_progress_artifact", lambda share, description: "id")
    monkeypatch.setattr(module, "update_progress_artifact", lambda found, share, description: shares.append(share))
    now: Any = SimpleNamespace(secs=0.0)
    progress = PredictionProgress(PARTS, clock=lambda: now.secs)
    for secs, done in ((1.0, PARTS[:1]), (4.0, PARTS[1:2]), (4.1, []), (5.0, PARTS[2:3]), (5.5, PARTS[3:])):
        now.secs = secs
        progress.add([facts(one, rows=90, rejects=10) for one in done])
        progress.report()
    assert told == [
        "predicted 200 of 400 rows, 2 of 4 partitions, 20 rejected, 50 rows/s, 4 s left",
        "predicted 400 of 400 rows, 4 of 4 partitions, 40 rejected, 73 rows/s",
    ]
    assert shares == [50, 100]
    assert (progress.rows, progress.rejects, progress.is_done) == (360, 40, True)


def test_a_prefect_server_that_is_away_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    logger = SimpleNamespace(info=lambda form, line: None, warning=lambda form, why: told.append(why))
    monkeypatch.setattr(module, "get_run_logger", lambda: logger)

    def away(*given: Any, **more: Any) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(module, "create_progress_artifact", away)
    progress = PredictionProgress(PARTS[:1])
    progress.add([facts(PARTS[0])])
    progress.report()
    assert (told, progress.is_done) == (["nobody answers"], True)
