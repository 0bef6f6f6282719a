"""Selects the MLflow store, creates it in one process before others use it, and links to its pages."""

from __future__ import annotations

import atexit
import fcntl
import importlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from psflow.ps_runtime.collector import collector_at_rest
from psflow.ps_runtime.config.environment import mlflow_tracking_uri
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.schema_revisions import is_complete, revision_fault, schema_fault
from psflow.tasks.started_servers import found

if TYPE_CHECKING:
    from mlflow import MlflowClient

VIEW = "workflowType=machine_learning"
"""Query that opens a page in the view of runs and curves; the default view is that of GenAI."""


def run_page(uri: str, experiment_id: str, run_id: str) -> str | None:
    """Return the address of the page of a run; None if `uri` has no server.

    Examples
    --------
    >>> run_page("http://bob:secret@host:5000/", "3", "f00")
    'http://host:5000/#/experiments/3/runs/f00?workflowType=machine_learning'
    """
    return _page(uri, f"experiments/{experiment_id}/runs/{run_id}")


def checkpoint_page(uri: str, experiment_id: str, model_id: str) -> str | None:
    """Return the address of the page of a logged model, such as a checkpoint."""
    return _page(uri, f"experiments/{experiment_id}/models/{model_id}")


def version_page(uri: str, name: str, version: str) -> str | None:
    """Return the address of the page of a version of a registered model."""
    return _page(uri, f"models/{quote(name, safe='')}/versions/{version}")


def link(text: str, page: str | None) -> str:
    """Return `text` as markdown with a link to `page`, if there is one.

    Examples
    --------
    >>> link("f00", "http://host/f00"), link("f00", None)
    ('[f00](http://host/f00)', '`f00`')
    """
    return f"`{text}`" if page is None else f"[{text}]({page})"


def _page(uri: str, place: str) -> str | None:
    if not uri.startswith(("http://", "https://")):
        return None
    return f"{without_secrets(uri).rstrip('/')}/#/{place}?{VIEW}"


DEFAULT_URI = "sqlite:///mlflow.db"
SQLITE = "sqlite:///"
HTTP_TIMEOUT_SECS = 20
MAX_TRIES = 3
PAUSE_SECS = 1.0
IMPORT_SECS = 5.0
"""Timeout, as the process ends, of an import in the background."""
"""Seconds between two attempts."""
FAULTS_OF_THE_REQUEST = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}
"""Codes with which MLflow refuses the content of a request: a retry would fail again."""

OUT_OF_DATE = re.compile(r"out-of-date database schema \(found version (?!None,)(\w+),")
"""MLflow's message for the schema of another version; None means tables of another program."""

T = TypeVar("T")

HOW_TO_REACH_NAMED = "start it or correct MLFLOW_TRACKING_URI, or unset that to use mlflow.db in the working directory"
HOW_TO_REACH_STARTED = "psflow up started it; restart it: psflow down, then psflow up"


def store_uri(uri: str | None = None) -> str:
    """Return the address of the store `uri` (default: the store in use), with an absolute path for a file."""
    return _absolute(uri or mlflow_tracking_uri() or DEFAULT_URI)


def is_sqlite(uri: str) -> bool:
    """Return whether a store is a SQLite file."""
    return uri.startswith(SQLITE)


def prepare_store(uri: str | None = None) -> str:
    """Create the store if it is missing, and return its address, or that of a server of it that ``psflow up`` started.

    Raises ConfigError if the store cannot be used, does not answer, or was made by another version of MLflow.

    Notes
    -----
    Blocks for about three seconds if the store is new; of a complete SQLite file only the schema is read, without
    MLflow. Call it before other processes use the store: concurrent creation breaks a SQLite store. (A lock on its
    folder covers other callers of this function.)

    MLflow's default in this process does not change, nor does ``MLFLOW_TRACKING_URI``, which children inherit: pass the
    address to `mlflow_client`.
    """
    store = store_uri(uri)
    server = found().mlflow_uri(store)
    uri = server or store
    path = sqlite_path(uri)
    if path is not None and (fault := schema_fault("mlflow", path)) is not None:
        raise ConfigError((fault,))
    if path is not None and is_complete("mlflow", path):
        return uri  # the import of MLflow can wait until the cluster starts
    keep_quiet()
    try:
        with _folder_lock(uri):
            _create_whole(uri)
            retried(lambda: mlflow_client(uri).search_experiments(max_results=1))
    except Exception as error:  # each kind of store has its own errors
        what_to_do = HOW_TO_REACH_STARTED if server else HOW_TO_REACH_NAMED
        # the cause repeats the address with its password
        raise ConfigError((unusable(uri, error, what_to_do),)) from None
    return uri


def unusable(uri: str, error: Exception, what_to_do: str) -> str:
    """Return why the store `uri`, which answered with an `error`, cannot be used."""
    where, reason = without_secrets(uri), reason_of(error)
    if (stored := OUT_OF_DATE.search(reason)) and (fault := revision_fault("mlflow", where, stored[1])):
        return fault
    return f"the MLflow store {where} cannot be used: {reason}; {what_to_do}"


def store_modules() -> Sequence[str]:
    """Return the modules of MLflow that the first use of the store imports."""
    store = store_uri()
    is_opened_here = is_sqlite(found().mlflow_uri(store) or store)
    return ("mlflow", "mlflow.store.tracking.sqlalchemy_store") if is_opened_here else ("mlflow",)


def import_in_background(*modules: str) -> None:
    """Import modules of MLflow in a thread, in this order, so that their first use need not wait for all of that."""

    def run() -> None:
        with collector_at_rest(), suppress(Exception):  # the first use reports it
            for module in modules:
                importlib.import_module(module)

    thread = threading.Thread(target=run, name="psflow-mlflow-import", daemon=True)
    thread.start()
    atexit.register(thread.join, IMPORT_SECS)  # a thread that is stopped in C++ code aborts the process


def mlflow_client(uri: str) -> MlflowClient:
    """Return a client for tracking and registry in the store `uri`, and keep MLflow quiet."""
    from mlflow import MlflowClient

    keep_quiet()
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def retried(ask: Callable[[], T]) -> T:
    """Call `ask` up to `MAX_TRIES` times; raise its last error, or the first that a retry cannot fix.

    MLflow may have executed a request that failed: a repeated `ask` has to check for that.
    """
    from mlflow.exceptions import MlflowException

    for _ in range(MAX_TRIES - 1):
        try:
            return ask()
        except (MlflowException, OSError) as error:
            if isinstance(error, MlflowException) and error.error_code in FAULTS_OF_THE_REQUEST:
                raise
        time.sleep(PAUSE_SECS)
    return ask()


def artifact_location(uri: str) -> str | None:
    """Return the artifact location of new experiments: beside a SQLite file; None if a server decides."""
    path = sqlite_path(uri)
    return None if path is None else (path.parent / "mlartifacts").as_uri()


def reason_of(error: Exception) -> str:
    """Return the message of `error` without credentials in addresses; name a missing package."""
    if isinstance(error, ImportError) and error.name:
        return f"it needs the package {error.name.partition('.')[0]}, which is not installed"
    text = str(error).partition("\n[SQL: ")[0]  # the SQL statement does not help the user
    return without_secrets(text) or type(error).__name__


def sqlite_path(uri: str) -> Path | None:
    """Return the path of a SQLite store; None for other stores."""
    return Path(uri.removeprefix(SQLITE).partition("?")[0]) if is_sqlite(uri) else None


def _absolute(uri: str) -> str:
    path = sqlite_path(uri)
    return uri if path is None else uri.replace(str(path), str(path.absolute()), 1)


@contextmanager
def _folder_lock(uri: str) -> Iterator[None]:
    path = sqlite_path(uri)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _create_whole(uri: str) -> None:
    """Create the file of a SQLite store atomically, if it is missing.

    MLflow takes seconds and many transactions for it, and cannot use a store whose creation was interrupted.
    """
    path = sqlite_path(uri)
    if path is None or path.exists():
        return
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for left_over in path.parent.glob(f".{escape(path.name)}.*.new"):
        left_over.unlink()
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")  # MLflow caches engines by name
    store_type: Any = SqlAlchemyStore
    store_type(f"{SQLITE}{unfinished}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH).engine.dispose()
    unfinished.replace(path)


def keep_quiet() -> None:
    """Silence MLflow in the terminal, and limit its minutes of retries for an unavailable server."""
    from mlflow import environment_variables

    variables: Any = environment_variables
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # else it warns of each retry
    variables.MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.set(True)
    variables.MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
    if not variables.MLFLOW_HTTP_REQUEST_MAX_RETRIES.is_set():
        variables.MLFLOW_HTTP_REQUEST_MAX_RETRIES.set(0)  # a "failed" request may have been executed
    if not variables.MLFLOW_HTTP_REQUEST_TIMEOUT.is_set():
        variables.MLFLOW_HTTP_REQUEST_TIMEOUT.set(HTTP_TIMEOUT_SECS)
