"""What listeners see of a checkpoint, as their ``session``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.model.hooks import Fetches, pick

__all__ = ["SavingSession"]


class SavingSession:
    """A checkpoint that is about to be written, or was."""

    def __init__(self, store: CheckpointStore, global_step: int, *, is_saved: bool) -> None:
        self.global_step = global_step
        self._store = store
        self._is_saved = is_saved

    def run(self, fetches: Fetches) -> Any:
        """Return ``global_step``, or variables of the checkpoint, in the structure of `fetches`. Blocks.

        Raises
        ------
        UsageError
            If a name is unknown, or a variable is asked for before the checkpoint is written.
        """
        if not self._is_saved:
            return pick(fetches, {"global_step": self.global_step})
        with CheckpointReader.pinned(self._store, self.global_step, "listener") as reader:
            tables = [table.name for table in reader.manifest.model.tables]
            return pick(fetches, _Saved(reader), tables)


class _Saved(Mapping[str, Any]):
    """The values of a checkpoint, read when asked for."""

    def __init__(self, reader: CheckpointReader) -> None:
        self._reader = reader
        self._names = ("global_step", *(variable.name for variable in reader.manifest.model.variables))

    def __getitem__(self, name: str) -> Any:
        if name == "global_step":
            return self._reader.manifest.step
        if name not in self._names:
            raise KeyError(name)
        return self._reader.variable(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
