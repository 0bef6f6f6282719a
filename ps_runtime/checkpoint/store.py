"""The checkpoints of a model_dir: written, committed, listed, collected.

::

    model_dir/checkpoints/step_00001200/shard_00000_of_00002.safetensors
                                        shard_00001_of_00002.safetensors
                                        manifest.json                       written last

A directory without a manifest is unfinished, and readers ignore it. So a checkpoint appears atomically, with its
manifest, and disappears atomically, when its manifest is removed, before the first of its files. A manifest that exists
but was changed is damage, which is always reported: continuing from the checkpoint before it would lose the training
since then.

Readers and the collector do not wait for each other. A reader first pins, then looks for the manifest; the collector
first removes the manifest, then looks for pins, and restores the manifest if it finds one. In either order, the reader
finds no manifest and reports it, or the collector finds the pin and deletes nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from psflow.ps_runtime.checkpoint.entries import ShardFile
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.manifest import MAX_MANIFEST_BYTES, Manifest
from psflow.ps_runtime.checkpoint.pins import Pins
from psflow.ps_runtime.checkpoint.tensor_file import TensorFile, write_tensors
from psflow.ps_runtime.errors import CheckpointError, NoCheckpointError

REMEDY = "restore manifest.json, or remove this checkpoint's directory: training then resumes from the previous one"

_STEP = re.compile(r"step_(\d{8,})")


class CheckpointStore:
    """The checkpoints of one model_dir.

    Notes
    -----
    Every call blocks. Any number of readers, on any hosts; several processes may write the shards of a step, but only
    one at a time commits and collects: the chief. Writing, committing and collecting in a local directory is durable
    when the call returns.
    """

    def __init__(self, model_dir: str, clock: Callable[[], float] = time.time, *, fence: Fence = open_fence) -> None:
        self.files = FileStore(model_dir, fence)
        self.clock = clock
        self._pins = Pins(self.files, clock)
        self._times: dict[int, tuple[float, float]] = {}

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, ascending. Reads each manifest once in the lifetime of this object.

        Raises CheckpointError if any of them has a damaged manifest.
        """
        times = {}
        for step in self._directories():
            is_known = step in self._times and self.files.size(_manifest_name(step)) is not None
            found = self._times[step] if is_known else self._read_times(step)
            if found is not None:
                times[step] = found
        self._times = times
        return sorted(times)

    def saved_at(self) -> dict[int, float]:
        """Return the time of saving by step, ascending; costs and errors as in `steps`."""
        return {step: self._times[step][0] for step in self.steps()}

    def path(self, step: int) -> str:
        """Return the directory of the checkpoint of `step`, whether it exists or not: a path, or a URL."""
        return self.files.location(_directory(step))

    def latest(self) -> int | None:
        """Return the step of the newest checkpoint; None without one. CheckpointError as in `steps`."""
        return max(self.steps(), default=None)

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of `step`.

        Raises CheckpointError if the checkpoint does not exist, or its manifest is damaged.
        """
        manifest = self._read_manifest(step)
        if manifest is None:
            path = self.files.path(_manifest_name(step))
            raise NoCheckpointError(path, f"no checkpoint of step {step}: the manifest is missing")
        return manifest

    def wrong_sizes(self, step: int) -> list[str]:
        """Return a sentence for each file of the checkpoint of `step` that is missing or has another size. Cheap.

        Raises CheckpointError as in `manifest`.
        """
        return self._wrong_sizes(self.manifest(step))

    def shard_name(self, step: int, shard: ShardFile) -> str:
        """Return the name of a shard file in `files`."""
        return f"{_directory(step)}/{shard.name}"

    def write_shard(self, step: int, index: int, num_shards: int, tensors: Mapping[str, Any]) -> ShardFile:
        """Write the tensors of one shard; `commit` makes them a part of a checkpoint.

        Raises CheckpointError if the checkpoint of `step` is already committed.
        """
        self._must_be_open(step)
        empty = ShardFile(index, num_shards, 0, "")
        nbytes, checksum = write_tensors(self.files, self.shard_name(step, empty), tensors)
        return replace(empty, nbytes=nbytes, checksum=checksum)

    def commit(self, manifest: Manifest) -> Manifest:
        """Make the shards that `manifest` lists a checkpoint; return it with its times set.

        Raises CheckpointError if the manifest contradicts itself or the files, or the checkpoint is already committed.
        """
        self._must_be_open(manifest.step)
        path = self.files.path(_manifest_name(manifest.step))
        if faults := manifest.faults():
            raise CheckpointError(path, "; ".join(faults))
        if faults := self._wrong_sizes(manifest):
            raise CheckpointError(path, f"{'; '.join(faults)}; write it again")
        now = self.clock()
        since = min((first for _, first in self._known_times().values()), default=now)
        stamped = replace(manifest, saved_at=now, first_saved_at=since)
        self.files.put(_manifest_name(manifest.step), stamped.to_json().encode())
        return stamped

    @contextlib.contextmanager
    def pin(self, step: int, holder: str) -> Iterator[Manifest]:
        """Protect the checkpoint of `step` from collection during the block.

        Raises CheckpointError if the checkpoint does not exist, or no longer.
        """
        with self._pins.hold(step, holder):
            yield self.manifest(step)

    def collect_garbage(
        self, keep_max: int | None, keep_every_n_hours: float, now: float, protected: Set[int] = frozenset()
    ) -> list[int]:
        """Remove old checkpoints; return their steps.

        Notes
        -----
        The newest checkpoint, `keep_max` newest ones (None or 0: all), `protected` and pinned ones stay. So does, for
        good, the first checkpoint of every period of `keep_every_n_hours` (> 0). Periods count from the first
        checkpoint of the model_dir; the first period keeps none.
        """
        steps = self.steps()
        if not keep_max:
            return []
        kept = self._kept_for_good(steps, keep_every_n_hours * 3600) | set(steps[-keep_max:]) | protected
        pinned = self._pins.steps(now)
        removed = []
        for step in steps:
            if step not in kept | pinned and self._remove(step, now):
                removed.append(step)
        return removed

    def discard_uncommitted(self) -> list[int]:
        """Remove the remains of a dead job's checkpoints without a manifest; return their steps.

        Only the owner of the model_dir may call this, while no checkpoint is being written.
        """
        pinned = self._pins.steps(self.clock())
        leftovers = [
            step for step in self._directories() if step not in pinned and self.files.size(_manifest_name(step)) is None
        ]
        for step in leftovers:
            self.files.remove_tree(_directory(step))
        return leftovers

    def _remove(self, step: int, now: float) -> bool:
        text = self.files.read(_manifest_name(step))
        self.files.remove(_manifest_name(step))
        if step in self._pins.steps(now):  # a reader pinned it meanwhile, and may have read the manifest
            self.files.put(_manifest_name(step), text)
            return False
        self.files.remove_tree(_directory(step))
        self._times.pop(step, None)
        return True

    def _kept_for_good(self, steps: list[int], period_secs: float) -> set[int]:
        firsts: dict[int, int] = {}
        for step in steps:
            saved_at, since = self._times[step]
            firsts.setdefault(int((saved_at - since) // period_secs), step)
        return {step for period, step in firsts.items() if period > 0}

    def _wrong_sizes(self, manifest: Manifest) -> list[str]:
        sizes = {shard: self.files.size(self.shard_name(manifest.step, shard)) for shard in manifest.shards}
        return [
            f"{shard.name} {'is missing' if size is None else f'has {size} bytes'}, expected {shard.nbytes} bytes"
            for shard, size in sizes.items()
            if size != shard.nbytes
        ]

    def _must_be_open(self, step: int) -> None:
        """Refuse a step whose checkpoint is committed, or is damaged."""
        if self._read_manifest(step) is not None:
            path = self.files.path(_manifest_name(step))
            raise CheckpointError(path, "this checkpoint is already committed, and cannot be changed")

    def _directories(self) -> list[int]:
        matches = (_STEP.fullmatch(name) for name in self.files.names("checkpoints"))
        return [int(match[1]) for match in matches if match]

    def _known_times(self) -> dict[int, tuple[float, float]]:
        self.steps()
        return self._times

    def _read_times(self, step: int) -> tuple[float, float] | None:
        manifest = self._read_manifest(step)
        return None if manifest is None else (manifest.saved_at, manifest.first_saved_at)

    def _read_manifest(self, step: int) -> Manifest | None:
        """Return the manifest of `step`; None without one, or if it was removed; CheckpointError if it is damaged."""
        name = _manifest_name(step)
        path = self.files.path(name)
        size = self.files.size(name)
        if size is None:
            return None
        try:
            if size > MAX_MANIFEST_BYTES:
                raise CheckpointError(path, f"{size} bytes, at most {MAX_MANIFEST_BYTES} are allowed")
            manifest = Manifest.from_json(self.files.read(name).decode(), path)
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise CheckpointError(path, f"its bytes have changed: {error}; {REMEDY}") from error
        except CheckpointError as error:
            raise CheckpointError(path, f"{error.reason}; {REMEDY}") from error
        if manifest.step != step:
            raise CheckpointError(path, f"it is the manifest of step {manifest.step}, expected {step}; {REMEDY}")
        return manifest


def _directory(step: int) -> str:
    return f"checkpoints/step_{step:08d}"


def _manifest_name(step: int) -> str:
    return f"{_directory(step)}/manifest.json"


def copy_checkpoint(source: CheckpointStore, target: CheckpointStore, step: int, holder: str) -> Manifest:
    """Copy the checkpoint of `step`; return its manifest in `target`. Blocks.

    Raises CheckpointError if `source` has no such checkpoint, its files do not match its manifest bit by bit, or
    `target` has the checkpoint already.
    """
    with source.pin(step, holder) as manifest:
        for shard in manifest.shards:
            name = source.shard_name(step, shard)
            file = TensorFile(source.files, name, nbytes=shard.nbytes, checksum=shard.checksum)
            target.files.write(target.shard_name(step, shard), file.chunks())
        return target.commit(manifest)
