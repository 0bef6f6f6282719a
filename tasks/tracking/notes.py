"""What a run says beside its curves: tags and files, of which only the last counts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.scratch import scratch_directory
from psflow.tasks.tracking.points import valid_key

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Notes"]


class Notes:
    """The tags and files of one run that are not written yet.

    Notes
    -----
    `put_tags` and `put_file` never block and may be called from any thread. A tag or file that is put again before it
    was written replaces the older one, so that however long MLflow is away, no more is kept than there are names.
    """

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_tags(self, tags: Mapping[str, str]) -> None:
        """Take tags of the run."""
        with self._lock:
            self._tags |= {valid_key(name): value for name, value in tags.items()}

    def put_file(self, file: str, content: bytes) -> None:
        """Take a file, such as ``plots/roc.png``, for the artifacts of the run."""
        with self._lock:
            self._files[file] = content

    def waiting(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the tags and files that are not written."""
        with self._lock:
            return dict(self._tags), dict(self._files)

    def __len__(self) -> int:
        return len(self._tags) + len(self._files)

    def write_one(self, client: MlflowClient, run_id: str) -> None:
        """Write all tags, or else one file; what fails is kept, unless it was replaced meanwhile."""
        with self._lock:
            tags = dict(self._tags)
            file, content = next(iter(self._files.items()), ("", b""))
        if tags:
            from mlflow.entities import RunTag

            client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])
            self._forget(self._tags, tags)
        elif file:
            _log_file(client, run_id, PurePosixPath(file), content)
            self._forget(self._files, {file: content})

    def drop_one(self) -> str:
        """Forget what `write_one` cannot write; return what that was."""
        with self._lock:
            if self._tags:
                names, self._tags = ", ".join(self._tags), {}
                return f"the tags {names}"
            file = next(iter(self._files), "")
            self._files.pop(file, None)
            return f"the file {file}"

    def _forget(self, kept: dict[str, Any], written: Mapping[str, Any]) -> None:
        with self._lock:
            for name, value in written.items():
                if kept.get(name) is value:
                    del kept[name]


def _log_file(client: MlflowClient, run_id: str, file: PurePosixPath, content: bytes) -> None:
    folder = None if file.parent == PurePosixPath(".") else str(file.parent)
    with scratch_directory() as scratch:
        path = Path(scratch) / file.name
        path.write_bytes(content)
        client.log_artifact(run_id, str(path), folder)
