"""The checkpoint that a path names, wherever it lies."""

from __future__ import annotations

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import NoCheckpointError
from psflow.ps_runtime.specs.directories import absolute

__all__ = ["checkpoint_at"]


def checkpoint_at(model_dir: str, checkpoint_path: str | None) -> tuple[CheckpointStore, int]:
    """Return the store and the step of a checkpoint: that of `checkpoint_path`, or else the latest of `model_dir`.

    Raises
    ------
    NoCheckpointError
        If `model_dir` has no checkpoint, or `checkpoint_path` is no directory of one. It need not be there.
    """
    store = CheckpointStore(model_dir)
    if checkpoint_path is None:
        latest = store.latest()
        if latest is None:
            raise NoCheckpointError(model_dir, "there is no checkpoint yet; train first")
        return store, latest
    path = absolute(checkpoint_path).rstrip("/")
    parent, _, name = path.rpartition("/checkpoints/")
    digits = name.removeprefix("step_")
    if not parent or not digits.isdecimal():
        raise NoCheckpointError(checkpoint_path, "expected a directory such as MODEL_DIR/checkpoints/step_00001200")
    step = int(digits)
    return store if store.path(step) == path else CheckpointStore(parent), step
