"""What a model_dir must be before a job may begin in it."""

from __future__ import annotations

import os

from fsspec.core import url_to_fs
from fsspec.utils import get_protocol

from ps_runtime.checkpoint.file_store import FileStore
from ps_runtime.checkpoint.records import EVALUATIONS
from ps_runtime.checkpoint.store import CheckpointStore
from ps_runtime.errors import ModelDirError, UsageError
from ps_runtime.specs.variables import ModelSpec

__all__ = ["absolute", "check_local", "check_model_dir"]


def absolute(model_dir: str) -> str:
    """Return the absolute path of a local `model_dir`, also of a ``file://`` URL; any other URL as it is."""
    if not _is_local(model_dir):
        return model_dir
    return os.path.abspath(url_to_fs(model_dir)[1] if "://" in model_dir else model_dir)


def check_local(model_dir: str) -> None:
    """Refuse a model_dir that exports cannot be written to.

    Raises
    ------
    UsageError
        If it is no local directory. Its store is not asked.
    """
    if not _is_local(model_dir):
        raise UsageError(
            (
                f"model_dir {model_dir}: exports are written to local directories only, "
                f"got a URL of {get_protocol(model_dir)}; choose a directory on a disk that all hosts share",
            )
        )


def check_model_dir(model_dir: str, model: ModelSpec) -> None:
    """Refuse a model_dir that holds another model, or what is left of one.

    Raises
    ------
    ModelDirError
        Saying each difference to the latest checkpoint, or each file that is left though no checkpoint is.
    """
    store = CheckpointStore(model_dir)
    latest = store.latest()
    if latest is None:
        _check_empty(store.files)
        return
    differences = store.manifest(latest).model.differences(model)
    if differences:
        raise ModelDirError(
            (
                f"{model_dir} holds checkpoints of another model (the latest is of step {latest}); "
                "choose another model_dir, or restore the model:",
                *differences,
            )
        )


def _check_empty(files: FileStore) -> None:
    """Let no training begin where the results of another would be taken for its own."""
    best = [f"export/{exporter}/best.json" for exporter in files.names("export")]
    results = [name for name in (EVALUATIONS, *best) if files.size(name) is not None]
    if results:
        left = [*results, *(name for name in ("job.json",) if files.size(name) is not None)]
        raise ModelDirError(
            (
                f"{files.url} has no readable checkpoint, but results of an earlier training: {', '.join(left)}; "
                "remove these files, restore the checkpoints, or choose another model_dir",
            )
        )


def _is_local(model_dir: str) -> bool:
    return get_protocol(model_dir) in ("file", "local")
