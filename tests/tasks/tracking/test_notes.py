"""Tags and files of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient

from psflow.ps_runtime.roles.events import Metrics
from psflow.tasks.tracking import tracker as tracker_module
from psflow.tasks.tracking.points import Notes
from psflow.tasks.tracking.tracker import Tracker

OpenTracker = Callable[..., Tracker]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "WRITE_EVERY_SECS", 0.01)


def test_files_and_tags_come_into_the_run(store: str, open_tracker: OpenTracker, tmp_path: Path) -> None:
    tracker = open_tracker()
    tracker.put_file("config.yaml", b"a: 1")
    tracker.put_file("plots/a.png", b"\x89PNG")
    tracker.put_tags({"progress": "step 3"})
    assert tracker.close(timeout_secs=200), tracker.statistics()
    client = MlflowClient(store, store)
    assert client.get_run(tracker.run_id).data.tags["progress"] == "step 3"
    for file, content in (("config.yaml", b"a: 1"), ("plots/a.png", b"\x89PNG")):
        assert Path(client.download_artifacts(tracker.run_id, file, str(tmp_path))).read_bytes() == content


def test_only_the_last_counts() -> None:
    notes = Notes()
    written: list[Any] = []
    client: Any = SimpleNamespace(
        log_batch=lambda run_id, tags: written.extend((tag.key, tag.value) for tag in tags),
        log_artifact=lambda run_id, path, folder: written.append((folder, Path(path).read_bytes())),
    )
    for number in range(3):
        notes.put_tags({"progress": f"step {number}"})
        notes.put_file("plots/a.png", b"%d" % number)
    assert len(notes) == 2
    while notes:
        notes.write_one(client, "r")
    assert written == [("progress", "step 2"), ("plots", b"2")]


def test_what_was_replaced_while_it_was_written_is_written_again() -> None:
    notes = Notes()
    client: Any = SimpleNamespace(log_batch=lambda run_id, tags: notes.put_tags({"a": "new"}))
    notes.put_tags({"a": "old"})
    notes.write_one(client, "r")
    assert len(notes) == 1


def test_file_that_mlflow_refuses_is_dropped(
    store: str, open_tracker: OpenTracker, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = open_tracker()
    tracker.put_file("../outside", b"")
    tracker.handle(Metrics(1, {"loss": 1.0}))
    assert not tracker.close(timeout_secs=200)
    assert "loss" in MlflowClient(store, store).get_run(tracker.run_id).data.metrics
    assert "the file ../outside" in caplog.text
