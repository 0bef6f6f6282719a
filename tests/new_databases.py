"""New databases of MLflow and Prefect: making one takes seconds, so a run of the tests makes one and copies it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from psflow.tasks.prefect_server.local_server import LocalPrefectServer
from psflow.tasks.tracking.store import prepare_store
from tests.started_processes import uncounted

FOLDER = "PSFLOW_TESTS_NEW_DATABASES"


def share_among_workers(folder: Path) -> None:
    """Keep what is made once in `folder`, for this process and for those that it starts from now on."""
    folder.mkdir()
    os.environ[FOLDER] = str(folder)


def copy_store(to: Path) -> str:
    """Copy a new MLflow store to ``mlflow.db`` in a directory; return its address."""
    shutil.copy(_made_once("mlflow", _make_store) / "mlflow.db", to)
    return f"sqlite:///{to}/mlflow.db"


def copy_prefect_database(home: Path) -> None:
    """Copy a new database of Prefect into a home directory of it, unless it has one: its journal is of that one."""
    if not (home / "prefect.db").exists():
        shutil.copytree(_made_once("prefect", _make_prefect_database), home, dirs_exist_ok=True)


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory `name` that all workers share; the first that asks makes it, the others wait."""
    folder = Path(os.environ[FOLDER])
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (path := folder / name).exists():
            unfinished = Path(tempfile.mkdtemp(dir=folder))
            with uncounted():
                make(unfinished)
            unfinished.rename(path)
    return path


def _make_store(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(folder))
        prepare_store(f"sqlite:///{folder}/mlflow.db")


def _make_prefect_database(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(folder))
        server = LocalPrefectServer()
        try:
            server.wait()
        finally:
            server.close()
