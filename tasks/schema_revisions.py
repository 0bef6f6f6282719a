"""Checks the schema of databases of MLflow and Prefect against the installed packages, without importing them.

Both packages migrate databases with Alembic, which stores the revision in the database.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from psflow.ps_runtime.config.environment import prefect_home
from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.started_servers import Kind

MIGRATIONS: Mapping[Kind, str] = {
    "mlflow": "store/db_migrations/versions",
    "prefect": "server/database/_migrations/versions/sqlite",
}
NAMES: Mapping[Kind, str] = {"mlflow": "the MLflow store", "prefect": "Prefect's database"}
PACKAGES: Mapping[Kind, str] = {"mlflow": "MLflow", "prefect": "Prefect"}
HOW_TO_UPGRADE: Mapping[Kind, str] = {
    "mlflow": "`mlflow db upgrade {}`",
    "prefect": "`prefect server database upgrade`",
}
REVISION = re.compile(r"^revision\b[^=\n]*=\s*[\"'](\w+)[\"']", re.MULTILINE)
EARLIER = re.compile(r"^down_revision\b[^=\n]*=\s*(\([^)]*\)|.*)", re.MULTILINE)
HOLDS: Mapping[Kind, str] = {"mlflow": "experiments", "prefect": "flow_run"}
"""Table with rows in each complete database in use."""
LOCK_SECS = 5.0
"""Seconds to wait for a locked database."""


def holds_database(kind: Kind, path: Path) -> bool:
    """Return whether the file `path` exists and has tables of the package, without creating them.

    Notes
    -----
    True for an unreadable file, whose use reports the reason.
    """
    try:
        with closing(_opened(path)) as database:
            return HOLDS[kind] in _tables(database)
    except sqlite3.Error:
        return path.exists()


def schema_fault(kind: Kind, path: Path) -> str | None:
    """Return why the database in the file `path` does not match the installed package, or None if it does or is new.

    Notes
    -----
    Changes nothing. None for an unreadable file, whose use reports the reason. A store without experiments, or a
    Prefect database without flow runs, has no data to lose, and may be under creation: it then passes all earlier
    revisions.
    """
    revision = _stored_revision(kind, path) if path.exists() else None
    where = f"sqlite:///{path}" if kind == "mlflow" else str(path)
    return None if revision is None else revision_fault(kind, where, revision)


def is_complete(kind: Kind, path: Path) -> bool:
    """Return whether the database in the file `path` is in use and has the schema of the installed package."""
    revision = _stored_revision(kind, path) if path.exists() else None
    return revision is not None and revision_fault(kind, str(path), revision) is None


def revision_fault(kind: Kind, where: str, revision: str) -> str | None:
    """Return why a database with the schema `revision` does not match the installed package, or None if it does."""
    earlier = _earlier_revisions(kind)
    package, now = PACKAGES[kind], version(kind)
    if revision not in earlier:
        what = f"{NAMES[kind]} {where} was made by a newer {package}, or by another program"
        known = f"{package} {now} does not know its schema, {revision}"
        return f"{what}: {known}; upgrade the package {kind}, or name another database"
    newest = set(earlier) - {name for names in earlier.values() for name in names}
    if revision in newest:
        return None
    what = f"{NAMES[kind]} {where} was made by an older {package}"
    expected = f"its schema is {revision}, and {package} {now} expects {', '.join(sorted(newest))}"
    is_file = kind == "prefect" or where.startswith("sqlite:")
    copies = ", or `psflow up --upgrade`, which copies it first" if is_file else ""
    return f"{what}: {expected}; run {HOW_TO_UPGRADE[kind].format(where)}{copies}"


def upgrade_schema(kind: Kind, path: Path) -> Path | None:
    """Copy a database of an older package, and upgrade it to the schema of the installed one.

    Returns the path of the copy, which only its owner can read; None if there is nothing to upgrade.

    Raises ConfigError if the file of the copy exists, the database cannot be copied, or the upgrade fails.
    """
    revision = _stored_revision(kind, path) if path.exists() else None
    fault = None if revision is None else schema_fault(kind, path)
    if fault is None or revision not in _earlier_revisions(kind):
        return None
    copy = path.with_name(f"{path.name}.{revision}.bak")
    _copy(path, copy)
    words = {"mlflow": ["db", "upgrade", f"sqlite:///{path}"], "prefect": ["server", "database", "upgrade", "--yes"]}
    command = [sys.executable, "-P", "-m", kind, *words[kind]]
    # in this working directory, as Prefect's home may be relative
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode or schema_fault(kind, path) is not None:
        last = (done.stderr or done.stdout).decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError((f"{NAMES[kind]} {path} was not upgraded: {last}; {copy} has the state before",))
    return copy


def prefect_database_fault() -> str | None:
    """Return why the database of psflow's Prefect servers does not match the installed Prefect, or None."""
    path = prefect_home() / "prefect.db"
    fault = schema_fault("prefect", path)
    return fault if fault is not None and _is_used(path) else None


def check_prefect_database() -> None:
    """Refuse a database in Prefect's home that does not match the installed Prefect.

    Raises ConfigError if it does not match.
    """
    if (fault := prefect_database_fault()) is not None:
        raise ConfigError((fault,))


def _copy(path: Path, copy: Path) -> None:
    """Copy a database with its journal."""
    try:
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise ConfigError((f"{copy} exists, an earlier copy of {path.name}; move it away",)) from None
    try:
        with closing(sqlite3.connect(path, timeout=LOCK_SECS)) as source, closing(sqlite3.connect(copy)) as target:
            source.execute(
                "SELECT 1 FROM sqlite_master LIMIT 1"
            )  # waits for a lock, on which the copy alone would hang
            source.backup(target)
    except sqlite3.Error as error:
        copy.unlink()
        raise ConfigError((f"{path} cannot be copied: {error}; stop its users, and try again",)) from None


def _is_used(path: Path) -> bool:
    """Return whether a Prefect server started here would use the database in the file `path`."""
    from prefect.settings import get_current_settings  # takes a second, so only for a database with a fault
    from sqlalchemy import make_url

    settings = get_current_settings()
    address = settings.server.database.connection_url
    if settings.api.url is not None:
        return False
    if address is None:
        return True
    url = make_url(address.get_secret_value())
    return url.get_backend_name() == "sqlite" and Path(url.database or "").resolve() == path.resolve()


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=LOCK_SECS)


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _stored_revision(kind: Kind, path: Path) -> str | None:
    try:
        with closing(_opened(path)) as database:
            held = HOLDS[kind]
            if held in _tables(database) and database.execute(f"SELECT 1 FROM {held} LIMIT 1").fetchone() is None:
                return None
            row = database.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


@functools.cache
def _earlier_revisions(kind: Kind) -> Mapping[str, tuple[str, ...]]:
    """Return the revisions of the installed package, each with its direct predecessors."""
    package = find_spec(kind)  # imports nothing
    folders = package.submodule_search_locations if package is not None else None
    texts = [file.read_text() for folder in folders or () for file in Path(folder, MIGRATIONS[kind]).glob("*.py")]
    return {
        match[1]: tuple(re.findall(r"[\"'](\w+)[\"']", before[1]))
        for text in texts
        if (match := REVISION.search(text)) and (before := EARLIER.search(text))
    }
