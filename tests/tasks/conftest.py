from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from psflow.tasks.tracking import store as store_module
from psflow.tasks.tracking.store import prepare_store
from psflow.tasks.tracking.tracker import Tracker
from tests.new_databases import copy_store


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAUSE_SECS", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return prepare_store(copy_store(tmp_path))


@pytest.fixture
def open_tracker(store: str) -> Callable[..., Tracker]:
    def open_(**options: object) -> Tracker:
        given: dict[str, object] = {"experiment": "digits", "run_name": "first", "registered_model": "psflow-digits"}
        return Tracker.open(store, **(given | options))  # type: ignore[arg-type]

    return open_


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The folder of an export, as small as MLflow takes it."""
    path = tmp_path / "export" / "best" / "1"
    path.mkdir(parents=True)
    (path / "MLmodel").write_text("flavors: {}\n")
    return path
