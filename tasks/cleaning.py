"""Finds files of trainings on this disk, their sizes, and those that can be removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from psflow.ps_runtime.checkpoint.files import storing
from psflow.ps_runtime.checkpoint.job_file import NAME, JobFile
from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import CheckpointError, ConfigError, PsflowError
from psflow.ps_runtime.model.best import BestRecord
from psflow.ps_runtime.model.export.directory import ExportDirectory
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.connectivity import run_fault
from psflow.tasks.schema_revisions import holds_database
from psflow.tasks.tracking.models import PATH
from psflow.tasks.tracking.run import missing_run
from psflow.tasks.tracking.store import artifact_location, mlflow_client, reason_of, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

MODEL_DIRS = Path("runs")
"""Default parent of model_dirs."""
MAX_DEPTH = 3
"""Levels of directories that are searched below it: ``runs/digits/{scheduled_time}`` has two, and a folder of a team
may be above."""
PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class Held:
    """A file or folder, with its total size."""

    path: str
    num_bytes: int

    def __str__(self) -> str:
        return f"{self.path}: {size_text(self.num_bytes)}"


@dataclass(frozen=True, slots=True)
class DeletedRuns:
    """Runs that were deleted in MLflow, which keeps them until they are removed."""

    run_ids: tuple[str, ...] = ()
    num_bytes: int = 0
    needed: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Files on this disk that an MLflow store needs, and those that it does not."""

    exports: Mapping[str, str]
    deleted: DeletedRuns
    lacking: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ModelDir:
    """A model_dir, and its exports that can be removed."""

    path: str
    parts: tuple[Held, ...]
    old_exports: tuple[Held, ...]
    stays: tuple[str, ...]

    def remove_old(self) -> list[str]:
        """Remove the old exports; return the reasons for those that are kept.

        This process claims the job meanwhile, so that no training starts.
        """
        job = JobFile(self.path)
        try:
            job.claim()
        except PsflowError as error:
            return [str(error)]
        left: list[str] = []
        try:
            for exporter in dict.fromkeys(os.path.dirname(export.path) for export in self.old_exports):
                of_it = [export.path for export in self.old_exports if os.path.dirname(export.path) == exporter]
                with storing(exporter), ExportDirectory.opened(exporter, self.path) as directory:
                    left += directory.remove([int(os.path.basename(path)) for path in of_it])
        except PsflowError as error:
            return [*map(_not_removed, left), str(error)]
        finally:
            job.release()
        return [*map(_not_removed, left)]


def size_text(num_bytes: float) -> str:
    """Format a number of bytes for display.

    Examples
    --------
    >>> size_text(812), size_text(3_100_000_000)
    ('812 bytes', '3.1 GB')
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if num_bytes < 1000 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.3g} {unit}"


def held(store: str) -> list[Held]:
    """Return the sizes of model_dirs, MLflow store and artifacts, without opening the store."""
    paths = [MODEL_DIRS]
    database = sqlite_path(store)
    if database is not None:
        paths += [database, Path(_local(artifact_location(store) or "") or "")]
    return [Held(_shown(path), _size_at(str(path))) for path in paths if path.exists()]


def found_model_dirs() -> list[str]:
    """Return the distinct directories with a job, at most `MAX_DEPTH` levels below `MODEL_DIRS`.

    Notes
    -----
    The search does not enter found directories, as checkpoints and exports are most of the files, nor links; a link may
    itself be a model_dir on another disk.
    """
    found = {
        os.path.realpath(path): path for path in sorted(_with_job(str(MODEL_DIRS), MAX_DEPTH), key=os.path.islink)[::-1]
    }
    return sorted(found.values())


def model_dirs(needs: Recorded) -> list[ModelDir]:
    """Return the local model_dirs; `needs` is what MLflow needs of them."""
    return [_model_dir(path, needs) for path in found_model_dirs()]


def recorded(uri: str) -> Recorded:
    """Return the files that the MLflow store `uri` needs, and those that it does not.

    Raises ConfigError if the store does not answer.
    """
    database = sqlite_path(uri)
    if database is not None and not holds_database("mlflow", database):
        return Recorded({}, DeletedRuns(), _lacking(uri))
    try:
        client = mlflow_client(uri)
        versions = list(_named_versions(client))
        deleted = list(_deleted_runs(client))
        needed = _why_needed(client, versions, {run.info.run_id for run in deleted})
        lacking = _lacking(uri)
    except CheckpointError:  # damaged job
        raise
    except Exception as error:  # each kind of store has its own errors
        raise ConfigError((f"cannot read what the MLflow store needs: {reason_of(error)}",)) from None
    exports = {os.path.realpath(v.tags[PATH]): alias for alias, v in versions if PATH in v.tags}
    sizes = sum(_size_of(path) for run in deleted if (path := _local(run.info.artifact_uri)) is not None)
    return Recorded(exports, DeletedRuns(tuple(run.info.run_id for run in deleted), sizes, needed), lacking)


def remove_deleted_runs(uri: str, database: str) -> None:
    """Run ``mlflow gc`` on the store `uri`, whose local database has the address `database`.

    Raises ConfigError if it fails.
    """
    command = [sys.executable, "-m", "mlflow", "gc", "--backend-store-uri", database]
    settings = child_environment({"MLFLOW_TRACKING_URI": uri})  # not an argument, which other users can see
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise ConfigError((f"mlflow gc ended with {done.returncode}: {without_secrets(reason)}",))


def _with_job(folder: str, depth: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            folders = [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return  # missing, or of another user
    for path in folders:
        if os.path.isfile(os.path.join(path, NAME)):
            yield path
        elif depth > 1 and not os.path.islink(path):
            yield from _with_job(path, depth - 1)


def _model_dir(path: str, needs: Recorded) -> ModelDir:
    parts = [Held(os.path.join(path, name), _size_at(os.path.join(path, name))) for name in ("checkpoints", "export")]
    parts.append(Held(path, _size_at(path)))
    old: list[Held] = []
    stays: list[str] = []
    try:
        why_not = JobFile(path).refusal() or needs.lacking.get(path)
    except (CheckpointError, OSError) as error:
        why_not = str(error)
    for exporter in sorted(Path(path, "export").glob("*/")):
        try:
            old += _old_exports(ExportDirectory(str(exporter), path), needs.exports)
        except (CheckpointError, OSError) as error:
            stays.append(str(error))
    if old and why_not is not None:
        old, stays = [], [why_not]
    return ModelDir(path, tuple(parts), tuple(old), tuple(stays))


def _old_exports(exporter: ExportDirectory, named: Mapping[str, str]) -> list[Held]:
    """Return the exports of an exporter except the newest, the best, and targets of links or aliases."""
    best = BestRecord.read(exporter.path)
    paths = {version: exporter.version_path(version) for version in exporter.versions()}
    links = [path for path in paths.values() if os.path.islink(path)]
    own = {version: path for version, path in paths.items() if os.path.isdir(path) and path not in links}
    kept = {*[*own][-1:], *([] if best is None else [best.version])}
    needed = {*named, *map(os.path.realpath, links)}
    old = [path for version, path in own.items() if version not in kept and os.path.realpath(path) not in needed]
    return [Held(path, _size_of(path)) for path in old]


def _named_versions(client: MlflowClient) -> Iterator[tuple[str, ModelVersion]]:
    """Yield the model versions of aliases, each with the address of the alias."""
    for model in _pages(lambda token: client.search_registered_models(max_results=PER_PAGE, page_token=token)):
        for alias, version in model.aliases.items():
            yield f"models:/{model.name}@{alias}", client.get_model_version(model.name, str(version))


def _deleted_runs(client: MlflowClient) -> Iterator[Run]:
    from mlflow.entities import ViewType

    def experiments(token: str | None) -> Any:
        return client.search_experiments(view_type=ViewType.ALL, max_results=PER_PAGE, page_token=token)

    ids = [experiment.experiment_id for experiment in _pages(experiments)]
    yield from _pages(lambda token: client.search_runs(ids, "", ViewType.DELETED_ONLY, PER_PAGE, page_token=token))


def _why_needed(client: MlflowClient, versions: Sequence[tuple[str, ModelVersion]], deleted: set[str]) -> str | None:
    """Return why ``mlflow gc``, which checks neither aliases nor trainings, must not run; None if it may."""
    from mlflow.exceptions import MlflowException

    for alias, version in versions:
        if version.run_id in deleted:
            return f"{alias} comes from run {version.run_id}, which is deleted; restore it, or remove the alias"
        try:
            if version.model_id:
                client.get_logged_model(version.model_id)
        except MlflowException:
            return f"{alias} comes from model {version.model_id}, which is deleted; restore it, or remove the alias"
    for path in found_model_dirs():
        job = JobFile(path)
        record = job.read()
        if record is not None and record.run_id in deleted and (in_use := job.refusal()) is not None:
            return f"run {record.run_id} is deleted, but {in_use}"
    return None


def _lacking(uri: str) -> dict[str, str]:
    """Return the local model_dirs whose run is not in the store `uri`, each with a reason to keep it."""
    found: dict[str, str] = {}
    for path in found_model_dirs():
        with suppress(CheckpointError, OSError):  # its exports are kept
            record = JobFile(path).read()
            run_id = None if record is None else record.run_id
            if run_id is not None and (fault := run_fault(uri, run_id)) == missing_run(uri, run_id):
                found[path] = f"{path}: {fault}"
    return found


def _pages(ask: Callable[[str | None], Any]) -> Iterator[Any]:
    """Yield the results of all pages of a search."""
    token: str | None = None
    while True:
        page = ask(token)
        yield from page
        if not (token := page.token):
            return


def _local(uri: str) -> str | None:
    """Return the path of a local file address; None for other addresses."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme in ("", "file") else None


def _shown(path: Path) -> str:
    """Return a path for display, relative to the working directory if possible."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _not_removed(path: str) -> str:
    return f"{path}, an old export, cannot be removed; correct the permissions of its files, then remove it"


def _size_at(path: str) -> int:
    """Like `_size_of`, but follows a link, as users make to another disk."""
    return _size_of(os.path.realpath(path))


def _size_of(path: str) -> int:
    """Return the bytes of a file, or of all files below a folder; files that vanish meanwhile count 0."""
    try:
        if not os.path.isdir(path) or os.path.islink(path):
            return os.lstat(path).st_size
        return sum(_size_of(os.path.join(path, name)) for name in os.listdir(path))
    except OSError:
        return 0
