"""The checkpoints of one shard: restored in the ps's own thread, written beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import load_shard, save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import PsflowError, StoppedError
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.pulse import Pulse
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.shard import Shard

__all__ = ["ShardStorage"]

Written = Callable[[int, Mapping[str, Any] | Refusal], None]
"""Takes the step, and what was written or why nothing was."""


class ShardStorage:
    """Reads and writes the part of each checkpoint that one shard holds."""

    def __init__(
        self, job: JobSpec, index: int, written: Written, fence: Fence = open_fence, pulse: Pulse | None = None
    ) -> None:
        self._job = job
        self._index = index
        self._written = written
        self._pulse = pulse or Pulse()
        self._store = CheckpointStore(job.model_dir, fence=fence)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="psflow-writer")

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        """Fill the shard's snapshot from the checkpoint of `step`; return the facts of its cut. Blocks."""
        arrays = shard.snapshot_arrays
        with self._pulse.long_call(), CheckpointReader.pinned(self._store, step, f"ps-{self._index}") as reader:
            load_shard(reader, shard.layout, self._job.model, arrays.arena, arrays.slots, shard.snapshot_tables)
            return reader.manifest.job

    def write(self, step: int, shard: Shard) -> None:
        """Start to write the shard's snapshot; `written` is called when that is done. Does not block."""
        self._writer.submit(self._write, step, shard)

    def close(self) -> None:
        """Wait for the file that is being written, and end the thread."""
        self._writer.shutdown(wait=True)

    def _write(self, step: int, shard: Shard) -> None:
        arrays = shard.snapshot_arrays
        what = f"ps-{self._index} could not write its part of checkpoint {step}"
        try:
            record = save_shard(
                self._store,
                step,
                self._job.num_ps,
                shard.layout,
                arrays.arena,
                arrays.slots,
                shard.snapshot_tables,
            )
        except StoppedError as error:  # this ps was lost: training rolls back, and saves again
            self._written(step, Refusal("lost", f"{what}: {error}"))
        except Exception as error:  # whatever a store raises: the saver waits for an answer
            reason = str(error) if isinstance(error, PsflowError) else f"{type(error).__name__}: {error}"
            self._written(step, Refusal("storage", f"{what}: {reason}"))
        else:
            self._written(step, record.to_facts())
