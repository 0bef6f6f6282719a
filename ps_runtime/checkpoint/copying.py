"""A checkpoint copied from one model_dir into another, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from ps_runtime.checkpoint.manifest import Manifest
from ps_runtime.checkpoint.store import CheckpointStore

__all__ = ["copy_checkpoint"]

CHUNK_BYTES = 8 * 2**20


def copy_checkpoint(source: CheckpointStore, target: CheckpointStore, step: int, holder: str) -> Manifest:
    """Copy the checkpoint of `step`; return its manifest in `target`. Blocks.

    Parameters
    ----------
    source, target : CheckpointStore
        Of different model_dirs. Only the owner of the second may call this.
    step : int
    holder : str
        Who reads, for people: the checkpoint is pinned meanwhile.

    Raises
    ------
    CheckpointError
        If `source` has no such checkpoint, its files are not those of its manifest, or `target` has one already.
    """
    with source.pin(step, holder) as manifest:
        for shard in manifest.shards:
            with source.files.local_path(source.shard_name(step, shard)) as path:
                target.files.write(target.shard_name(step, shard), _chunks(path))
        return target.commit(manifest)


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
