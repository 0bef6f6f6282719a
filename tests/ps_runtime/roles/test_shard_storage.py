"""What a shard was, it is again after a restore: on as many ps, or on others."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.entries import ShardRecord
from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError, StoppedError
from psflow.ps_runtime.optimizers.adaptive import Adagrad
from psflow.ps_runtime.roles.ps import ShardStorage
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

ADAGRAD = Adagrad(learning_rate=float("nan"))
MODEL = ModelSpec(
    (VariableSpec("w", (6, 2), "float32", 0),),
    (ADAGRAD.config(),),
    (TableSpec("items", 50, 3, "float32", 0, {"name": "zeros"}, seed=1),),
)
IDS = np.array([1, 4, 5, 9])


class Job:
    """What a storage asks of a job."""

    model = MODEL

    def __init__(self, model_dir: str, num_ps: int) -> None:
        self.model_dir = model_dir
        self.num_ps = num_ps


def shards_of(num_ps: int) -> list[Shard]:
    return [Shard(layout, [ADAGRAD], MODEL.tables, num_ps) for layout in place(MODEL, num_ps)]


def train(shard: Shard) -> None:
    """Give each shard other parameters, and rows of its own."""
    shard.initialize(np.arange(shard.layout.nbytes, dtype=np.uint8).tobytes())
    mine = IDS[IDS % shard.num_shards == shard.layout.index]
    gradients = np.outer(mine, np.ones(3)).astype(np.float32)
    shard.tables[0].push(mine, gradients, learning_rate=0.5, num_updates=1)
    shard.snapshot(0, (), 7)


def write(job: Any, shard: Shard, fence: Fence = open_fence) -> Any:
    """Return what the storage tells when it has written."""
    told: Future[Any] = Future()
    storage = ShardStorage(job, shard.layout.index, lambda *news: told.set_result(news), fence)
    storage.write(7, shard)
    storage.close()
    return told.result(timeout=0)


def rows_of(shards: list[Shard]) -> dict[int, list[float]]:
    tensors = [shard.tables[0].tensors() for shard in shards]
    return {int(i): w.tolist() for t in tensors for i, w in zip(t["ids"], t["weights"], strict=True)}


@pytest.mark.parametrize("num_ps", [1, 2, 3])
def test_a_shard_is_restored_with_its_tables(tmp_path: Any, num_ps: int) -> None:
    before = shards_of(2)
    records = []
    for shard in before:
        train(shard)
        step, facts = write(Job(str(tmp_path), 2), shard)
        assert step == 7
        records.append(ShardRecord.from_facts(facts))
    store = CheckpointStore(str(tmp_path))
    store.commit(Manifest.of(7, MODEL, {"position": 3}, records))
    after = shards_of(num_ps)
    for shard in after:
        storage = ShardStorage(Job(str(tmp_path), num_ps), shard.layout.index, print)
        assert storage.load(7, shard) == {"position": 3}
        storage.close()
        shard.restore(7)
        assert shard.version == 7
    assert rows_of(after) == rows_of(before)
    assert rows_of(after).keys() == set(IDS.tolist())
    if num_ps == 2:
        for old, new in zip(before, after, strict=True):
            assert new.arrays.arena.tobytes() == old.arrays.arena.tobytes()
    assert store.files.names("pins") == []


def test_why_nothing_was_written_is_told(tmp_path: Any) -> None:
    (tmp_path / "checkpoints").write_text("a file where a directory should be")
    (shard,) = shards_of(1)
    train(shard)
    step, refused = write(Job(str(tmp_path), 1), shard)
    assert (step, refused.code) == (7, "storage")
    assert refused.reason.startswith(
        f"ps-0 could not write its part of checkpoint 7: {tmp_path}/checkpoints/step_00000007/shard"
    )
    assert "could not be written: Not a directory" in refused.reason


def test_a_ps_that_is_lost_while_it_writes_says_so(tmp_path: Any) -> None:
    def closed() -> None:
        raise StoppedError("this role", "it was lost meanwhile")

    (shard,) = shards_of(1)
    train(shard)
    step, refused = write(Job(str(tmp_path), 1), shard, closed)
    assert (step, refused.code) == (7, "lost")
    assert refused.reason.endswith("this role was stopped: it was lost meanwhile")


def test_a_checkpoint_that_is_gone_is_an_error(tmp_path: Any) -> None:
    (shard,) = shards_of(1)
    storage = ShardStorage(Job(str(tmp_path), 1), 0, print)
    with pytest.raises(CheckpointError, match="no checkpoint of step 7"):
        storage.load(7, shard)
    storage.close()
    assert not shard.is_ready
