from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.files import FileReader
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore, copy_checkpoint
from psflow.ps_runtime.errors import CheckpointError

SHARD = "checkpoints/step_00000003/shard_00001_of_00002.safetensors"


@pytest.fixture
def target(tmp_path: Any) -> CheckpointStore:
    (tmp_path / "fork").mkdir()
    return CheckpointStore(str(tmp_path / "fork"))


@pytest.fixture
def source(store: CheckpointStore, toy: Any) -> CheckpointStore:
    toy.save(store, 3)
    return store


def test_a_copy_is_the_checkpoint(source: CheckpointStore, target: CheckpointStore) -> None:
    copy_checkpoint(source, target, 3, "fork")
    ours, theirs = CheckpointReader(target, 3), CheckpointReader(source, 3)
    names = [variable.name for variable in theirs.manifest.model.variables]
    for name in names:
        assert ours.variable(name).tobytes() == theirs.variable(name).tobytes()
    assert ours.manifest.shards == theirs.manifest.shards
    elsewhere = CheckpointStore(f"memory://{uuid.uuid4().hex}")
    copy_checkpoint(source, elsewhere, 3, "fork")
    assert elsewhere.files.read(SHARD) == source.files.read(SHARD)


def test_a_flipped_bit_is_not_copied(source: CheckpointStore, target: CheckpointStore) -> None:
    data = bytearray(source.files.read(SHARD))
    data[-1] ^= 1
    source.files.put(SHARD, bytes(data))
    with pytest.raises(CheckpointError, match="its bytes have changed: checksum crc32") as told:
        copy_checkpoint(source, target, 3, "fork")
    assert told.value.path == source.files.path(SHARD)
    assert target.steps() == []


def test_a_missing_shard_is_told_of_the_source(source: CheckpointStore, target: CheckpointStore) -> None:
    source.files.remove(SHARD)
    with pytest.raises(CheckpointError, match=r"the file is missing \(expected") as told:
        copy_checkpoint(source, target, 3, "fork")
    assert told.value.path == source.files.path(SHARD)


def test_a_source_that_cannot_be_read_is_not_told_as_a_full_disk(
    source: CheckpointStore, target: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = FileReader.blocks

    def broken(self: FileReader, start: int, stop: int) -> Iterator[Any]:
        yield from blocks(self, start, stop)
        if target.files.names("checkpoints"):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(FileReader, "blocks", broken)
    with pytest.raises(CheckpointError, match=r"cannot be read: .*Input/output error; use another checkpoint") as told:
        copy_checkpoint(source, target, 3, "fork")
    assert told.value.path.startswith(source.files.path("checkpoints"))
