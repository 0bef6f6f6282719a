"""Databases of other versions: older ones by the packages' own downgrade, newer ones by an unknown revision."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio.to_thread
import prefect.server.database
import pytest
from mlflow.exceptions import MlflowException
from mlflow.store.db.utils import _get_alembic_config
from prefect.server.database.alembic_commands import alembic_config, alembic_downgrade
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_API_URL, temporary_settings

from psflow.ps_runtime.errors import ConfigError
from psflow.tasks import schema_revisions
from psflow.tasks.connectivity import store_fault
from psflow.tasks.prefect_server.local_server import LocalPrefectServer
from psflow.tasks.schema_revisions import revision_fault, schema_fault, upgrade_schema
from psflow.tasks.tracking.store import prepare_store, unusable
from tests.new_databases import copy_prefect_database, copy_store
from tests.old_databases import downgrade_store, heads

COPIES = "or `psflow up --upgrade`, which copies it first"


def prefect_heads() -> tuple[str, str]:
    """Return those of Prefect for SQLite, which its own settings choose while it migrates."""
    return heads(
        alembic_config(), Path(prefect.server.database.__file__).parent / "_migrations" / "versions" / "sqlite"
    )


def stamp(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", [revision])


@pytest.fixture
def mlflow_database(tmp_path: Path) -> Path:
    copy_store(tmp_path)
    return tmp_path / "mlflow.db"


@pytest.mark.process
def test_a_store_of_an_older_mlflow_is_refused_with_the_command_that_upgrades_it(mlflow_database: Path) -> None:
    uri = f"sqlite:///{mlflow_database}"
    assert store_fault(uri) is None
    newest, before = downgrade_store(mlflow_database)
    was = mlflow_database.read_bytes()
    said = store_fault(uri)
    assert said is not None
    assert said.startswith(f"the MLflow store {uri} was made by an older MLflow: its schema is {before}, and MLflow ")
    assert said.endswith(f" expects {newest}; run `mlflow db upgrade {uri}`, {COPIES}")
    with pytest.raises(ConfigError) as refused:
        prepare_store(uri)
    assert refused.value.faults == (said,)
    assert mlflow_database.read_bytes() == was
    copy = upgrade_schema("mlflow", mlflow_database)
    assert copy == mlflow_database.with_name(f"mlflow.db.{before}.bak")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert "was made by an older MLflow" in str(schema_fault("mlflow", copy))
    assert upgrade_schema("mlflow", mlflow_database) is None
    assert prepare_store(uri) == uri


def test_a_store_of_a_newer_mlflow_asks_for_a_newer_package(mlflow_database: Path) -> None:
    stamp(mlflow_database, "ffffffffffff")
    said = str(store_fault(f"sqlite:///{mlflow_database}"))
    assert "was made by a newer MLflow, or by another program: MLflow " in said
    assert said.endswith("not know its schema, ffffffffffff; upgrade the package mlflow, or name another database")


def test_a_database_server_with_another_schema_is_reported_in_words_of_mlflow() -> None:
    _, before = heads(_get_alembic_config(""))
    error = MlflowException(f"Detected out-of-date database schema (found version {before}, but expected x). Take")
    said = unusable("postgresql://me:secret@host/db", error, "start it")
    assert "was made by an older MLflow" in said
    assert said.endswith("run `mlflow db upgrade postgresql://host/db`")  # psflow up --upgrade has files alone
    assert "secret" not in said


def test_a_database_server_of_another_program_is_reported_in_words_of_mlflow() -> None:
    error = MlflowException("Detected out-of-date database schema (found version None, but expected x). Take")
    said = unusable("postgresql://host/db", error, "start it")
    assert said.startswith("the MLflow store postgresql://host/db cannot be used: Detected out-of-date")


def test_a_store_that_another_process_is_creating_is_not_refused(mlflow_database: Path) -> None:
    _, before = heads(_get_alembic_config(""))
    stamp(mlflow_database, before)
    assert "was made by an older MLflow" in str(schema_fault("mlflow", mlflow_database))
    with closing(sqlite3.connect(mlflow_database)) as database, database:
        database.execute("DELETE FROM experiments")  # its first one comes when all tables are there
    assert schema_fault("mlflow", mlflow_database) is None


def test_a_database_of_another_program_is_not_called_a_store(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database, database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES ('aaaa')")
    assert "or by another program" in str(schema_fault("mlflow", tmp_path / "airflow.db"))


def test_a_database_that_is_locked_is_not_upgraded_and_leaves_no_copy(
    mlflow_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp(mlflow_database, heads(_get_alembic_config(""))[1])
    monkeypatch.setattr(schema_revisions, "LOCK_SECS", 0.01)
    revision = schema_revisions._stored_revision("mlflow", mlflow_database)
    monkeypatch.setattr(schema_revisions, "_stored_revision", lambda *_: revision)  # a lock may come after it is read
    with closing(sqlite3.connect(mlflow_database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ConfigError, match=r"mlflow\.db cannot be copied: database is locked; stop its users"):
            upgrade_schema("mlflow", mlflow_database)
    assert [path.name for path in mlflow_database.parent.glob("*.bak")] == []


@pytest.mark.parametrize(
    ("url", "is_used"),
    [
        ("sqlite+aiosqlite:///{}/prefect.db", True),
        ("sqlite+aiosqlite:///home/../home/prefect.db", True),
        ("sqlite+aiosqlite:///{}/other.db", False),
        ("sqlite+aiosqlite:///{}/prefect.db.old", False),
        ("postgresql+asyncpg://host{}/prefect.db", False),
    ],
)
def test_a_database_is_used_where_the_address_leads_to_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, is_used: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    with temporary_settings(
        {PREFECT_API_DATABASE_CONNECTION_URL: url.format(home)}, restore_defaults=[PREFECT_API_URL]
    ):
        assert schema_revisions._is_used(home / "prefect.db") is is_used


@pytest.mark.parametrize("content", [b"", b"no database at all"])
def test_what_is_no_database_of_mlflow_is_left_to_mlflow(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlflow.db").write_bytes(content)
    assert schema_fault("mlflow", tmp_path / "mlflow.db") is None
    assert schema_fault("mlflow", tmp_path / "none.db") is None


def with_a_run(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("INSERT INTO flow (name) VALUES ('train')")
        database.execute("INSERT INTO flow_run (flow_id, name) SELECT id, 'run' FROM flow")


@pytest.mark.process
def test_runs_of_an_older_prefect_are_not_changed_by_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest, before = prefect_heads()
    path = tmp_path / "prefect.db"
    copy_prefect_database(tmp_path)
    with_a_run(path)
    assert schema_fault("prefect", path) is None
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{path}"}):
        anyio.run(anyio.to_thread.run_sync, alembic_downgrade, before)  # its migrations ask for a loop
    said = schema_fault("prefect", path)
    assert f"{path} was made by an older Prefect: its schema is {before}, and Prefect " in str(said)
    assert str(said).endswith(f" expects {newest}; run `prefect server database upgrade`, {COPIES}")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr("psflow.tasks.schema_revisions._is_used", lambda _: True)  # the tests' own server is named
    with pytest.raises(ConfigError, match="was made by an older Prefect"):
        LocalPrefectServer()
    copy = upgrade_schema("prefect", path)
    assert copy == tmp_path / f"prefect.db.{before}.bak"
    assert schema_fault("prefect", copy) is not None
    assert schema_fault("prefect", path) is None


@pytest.mark.process(shared=True)
def test_a_prefect_database_without_runs_is_left_to_prefect_which_may_be_creating_it(tmp_path: Path) -> None:
    copy_prefect_database(tmp_path)
    stamp(tmp_path / "prefect.db", prefect_heads()[1])
    assert schema_fault("prefect", tmp_path / "prefect.db") is None


def test_a_prefect_database_of_the_newest_revision_is_known() -> None:
    newest, before = prefect_heads()
    assert revision_fault("prefect", "here", newest) is None
    assert "newer Prefect" in str(revision_fault("prefect", "here", before + "x"))
