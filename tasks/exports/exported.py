"""Lists, adds and registers exports of a model_dir, and moves the best one on disk and in MLflow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import measured
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.model.best import NAME, BestRecord, Better
from psflow.ps_runtime.model.export.directory import ExportDirectory
from psflow.ps_runtime.redaction import shown_path, without_secrets
from psflow.ps_runtime.roles.events import Export
from psflow.tasks.tracking.models import BEST, BestAlias, BestModel, RecordedModels
from psflow.tasks.tracking.store import mlflow_client, reason_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHOSEN = "chosen"
"""Exporter name of checkpoints that the user chose."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An export, and the checkpoint that it was made of."""

    exporter: str
    version: int
    path: str
    step: int
    saved_at: float


def best_record(model_dir: str) -> BestRecord | None:
    """Return the current choice of BestExporter."""
    return BestRecord.read(os.path.join(model_dir, "export", "best"))


def best_export(model_dir: str) -> Export | None:
    """Return the event of the export that BestExporter, or the user, has chosen."""
    best = best_record(model_dir)
    if best is None:
        return None
    return Export(BEST, best.step, best.version, best.path, is_best=True, metrics=measured(best.metrics))


def exports_of(model_dir: str, exporter: str | None = None) -> list[Exported]:
    """Return the exports of `model_dir` with a known checkpoint, of one exporter or of all, the best first."""
    files = FileStore(model_dir)
    exporters = [exporter] if exporter is not None else sorted(files.names("export"), key=lambda name: name != BEST)
    found = []
    for name in exporters:
        directory = ExportDirectory(files.location(f"export/{name}"))
        for version in directory.versions():
            if (record := directory.record(version)) is not None:
                path = directory.version_path(version)
                found.append(Exported(name, version, path, record.step, record.saved_at))
    return found


def add_export(directory: ExportDirectory, write: Callable[[str], None], step: int, saved_at: float) -> Exported:
    """Return the export of a checkpoint in `directory`; if it is missing, ``write(path)`` writes it."""
    exporter = os.path.basename(directory.path)
    version = directory.find(step, saved_at)
    if version is None:
        before = BestRecord.read(directory.path)
        version = directory.add(write, step, saved_at, 0 if before is None else before.version)
    return Exported(exporter, version, directory.version_path(version), step, saved_at)


class Registration:
    """The registered model of a training."""

    def __init__(self, uri: str, run_id: str, registered_model: str) -> None:
        self._client: MlflowClient = mlflow_client(uri)
        self._uri = uri
        self._run_id = run_id
        self._name = registered_model

    def register(self, exported: Exported, metrics: Mapping[str, float]) -> BestModel:
        """Return the version of `exported` in the registered model; register it if missing or deleted. Blocks.

        Raises ConfigError if MLflow refuses it.
        """
        with self._told():
            experiment_id = self._client.get_run(self._run_id).info.experiment_id
            models = RecordedModels(self._client, experiment_id, self._run_id, self._name, revives=True)
            models.read()
            return models.register_export(
                Export(
                    exported.exporter, exported.step, exported.version, exported.path, is_best=False, metrics=metrics
                )
            )

    def move_alias(self, version: str) -> None:
        """Set the alias ``best`` to `version`; ConfigError if MLflow refuses it."""
        with self._told():
            self._client.set_registered_model_alias(self._name, BEST, version)

    def offer_alias(self, version: str, step: int, metrics: Mapping[str, float], better: Better) -> bool:
        """Like `move_alias`, unless the alias stays with another run (`BestAlias`); return whether `version` has it."""
        with self._told():
            alias = BestAlias(self._client, self._name, self._run_id, better)
            return alias.give(version, step, metrics, is_new=False)

    @contextmanager
    def _told(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:
            where = without_secrets(self._uri)
            raise ConfigError((f"{self._name} cannot be registered in {where}: {reason_of(error)}",)) from None


@contextmanager
def moved_best(directory: ExportDirectory, record: BestRecord) -> Iterator[None]:
    """Write `record` to ``best.json``; restore it if the block, which moves the alias, fails."""
    before = BestRecord.read(directory.path)
    if not directory.choose(record, before):
        what = "another export has become the best one meanwhile; run the same command again"
        raise UsageError((f"{shown_path(directory.path)}: {what}",))
    try:
        yield
    except BaseException:
        if before is not None:
            directory.choose(before, record)
        elif BestRecord.read(directory.path) == record:
            FileStore(directory.path).remove(NAME)
        raise
