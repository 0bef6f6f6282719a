"""Databases as earlier versions of MLflow have made them, by its own downgrade."""

from __future__ import annotations

from pathlib import Path

import alembic.command
import sqlalchemy
from alembic.config import Config
from alembic.script import ScriptDirectory
from mlflow.store.db.utils import _get_alembic_config

__all__ = ["downgrade_store", "heads"]


def heads(config: Config, folder: Path | None = None) -> tuple[str, str]:
    """Return the newest revision, and the one before, as Alembic finds them."""
    if folder is not None:
        config.set_main_option("version_locations", str(folder))
    script = ScriptDirectory.from_config(config)
    newest = script.get_revision(str(script.get_current_head()))
    return newest.revision, str(newest.down_revision)


def downgrade_store(path: Path) -> tuple[str, str]:
    """Bring an MLflow store to the revision before the newest one; return both, as `heads` does."""
    uri = f"sqlite:///{path}"
    config = _get_alembic_config(uri)
    newest, before = heads(config)
    engine = sqlalchemy.create_engine(uri)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        alembic.command.downgrade(config, before)
    engine.dispose()
    return newest, before
