"""A checkpoint copied from one model_dir into another, whole or not at all."""

from __future__ import annotations

from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.checkpoint.tensor_file import TensorFile

__all__ = ["copy_checkpoint"]


def copy_checkpoint(source: CheckpointStore, target: CheckpointStore, step: int, holder: str) -> Manifest:
    """Copy the checkpoint of `step`; return its manifest in `target`. Blocks.

    Raises
    ------
    CheckpointError
        If `source` has no such checkpoint, its files are not those of its manifest, to the last bit, or `target` has
        one already.
    """
    with source.pin(step, holder) as manifest:
        for shard in manifest.shards:
            name = source.shard_name(step, shard)
            file = TensorFile(source.files, name, nbytes=shard.nbytes, checksum=shard.checksum)
            target.files.write(target.shard_name(step, shard), file.chunks())
        return target.commit(manifest)
