from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from psflow.tasks.tracking import Tracker, prepare_store


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of MLflow that is made once: creating one takes seconds, copying it does not."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    prepare_store(f"sqlite:///{path}")
    return path


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> str:
    path = tmp_path / "mlflow.db"
    shutil.copy(empty_store, path)
    return prepare_store(f"sqlite:///{path}")


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
