from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError, StorageError

PowerCuts = Callable[[Callable[[], Any]], Iterator[bool]]


def check_whole(store: CheckpointStore, step: int, toy: Any) -> None:
    reader = CheckpointReader(store, step)
    for variable in toy.model.variables:
        np.testing.assert_array_equal(reader.variable(variable.name), toy.expected(step, variable))


def test_an_empty_model_dir_has_no_checkpoints(store: CheckpointStore) -> None:
    assert store.steps() == []
    assert store.latest() is None
    assert store.discard_uncommitted() == []
    with pytest.raises(CheckpointError, match="no checkpoint of step 3: the manifest is missing"):
        store.manifest(3)


def test_committed_checkpoints_are_listed_in_order_and_read_whole(store: CheckpointStore, toy: Any) -> None:
    for step in (100, 20, 123_456_789):
        toy.save(store, step)
    for reader in (store, CheckpointStore(store.files.url)):
        assert reader.steps() == [20, 100, 123_456_789]
        assert reader.latest() == 123_456_789
        for step in reader.steps():
            check_whole(reader, step, toy)


def test_the_layout_on_disk(tmp_path: Any, toy: Any) -> None:
    toy.save(CheckpointStore(str(tmp_path)), 1200)
    assert sorted(os.listdir(tmp_path)) == ["checkpoints"]
    assert sorted(os.listdir(tmp_path / "checkpoints" / "step_00001200")) == [
        "manifest.json",
        "shard_00000_of_00002.safetensors",
        "shard_00001_of_00002.safetensors",
    ]


def test_a_model_dir_may_hold_any_character(tmp_path: Any, toy: Any) -> None:
    store = CheckpointStore(str(tmp_path / "a [b]* ?c ~é"))
    store.files.create()
    toy.save(store, 1)
    check_whole(CheckpointStore(store.files.url), 1, toy)


def test_shards_without_a_manifest_do_not_exist(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 1)
    store.write_shard(2, 0, 1, {"kernel@0": np.ones(3)})
    assert store.steps() == [1]
    assert store.discard_uncommitted() == [2]
    assert store.files.names("checkpoints") == ["step_00000001"]


@pytest.mark.parametrize("damage", [b"", b"\xff{}", b"{}", b"[]"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_damaged_manifest_is_passed_over_by_nobody(
    store: CheckpointStore, toy: Any, step: int, damage: bytes
) -> None:
    toy.save(store, 1)
    manifest = toy.save(store, 2)
    name = f"checkpoints/step_0000000{step}/manifest.json"
    store.files.put(name, damage)
    damaged = CheckpointStore(store.files.url)
    for call in (
        damaged.steps,
        damaged.latest,
        damaged.saved_at,
        lambda: damaged.manifest(step),
        lambda: damaged.write_shard(step, 0, 2, {}),
        lambda: damaged.commit(replace(manifest, step=step)),
        lambda: damaged.collect_garbage(1, 10_000, now=0.0),
    ):
        with pytest.raises(
            CheckpointError, match=rf"{name}: (its bytes|not a manifest).*; restore manifest\.json, or remove this"
        ):
            call()
    assert damaged.discard_uncommitted() == []
    assert damaged.files.read(name) == damage
    damaged.files.remove_tree(name.rpartition("/")[0])
    assert damaged.steps() == [3 - step]


def test_the_manifest_of_another_step_is_refused(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 1)
    store.files.put(
        "checkpoints/step_00000002/manifest.json", store.files.read("checkpoints/step_00000001/manifest.json")
    )
    with pytest.raises(CheckpointError, match="it is the manifest of step 1, expected 2"):
        store.steps()


def test_a_checkpoint_that_is_collected_while_it_is_looked_at_is_no_damage(
    store: CheckpointStore, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.save(store, 1)
    toy.save(store, 2)
    reader = CheckpointStore(store.files.url)
    read = reader.files.read

    def collected(name: str) -> bytes:
        store.collect_garbage(1, 10_000, now=0.0)
        return read(name)

    monkeypatch.setattr(reader.files, "read", collected)
    assert reader.steps() == [2]


def test_a_committed_checkpoint_cannot_be_changed(store: CheckpointStore, toy: Any) -> None:
    manifest = toy.save(store, 1)
    with pytest.raises(CheckpointError, match="this checkpoint is already committed"):
        store.write_shard(1, 0, 2, {})
    with pytest.raises(CheckpointError, match="this checkpoint is already committed"):
        store.commit(manifest)


def test_commit_refuses_what_the_files_do_not_hold(store: CheckpointStore, toy: Any) -> None:
    manifest = replace(toy.save(store, 1), step=2)
    with pytest.raises(CheckpointError, match=r"shard_00000_of_00002.safetensors is missing, expected \d+ bytes; "):
        store.commit(manifest)
    with pytest.raises(CheckpointError, match="expected each of 3 once"):
        store.commit(replace(manifest, tensors=()))
    assert store.steps() == [1]


def test_the_times_of_a_checkpoint(store: CheckpointStore, clock: Any, toy: Any) -> None:
    toy.save(store, 1)
    clock.now += 60
    toy.save(store, 2)
    manifest = CheckpointStore(store.files.url).manifest(2)
    assert (manifest.saved_at, manifest.first_saved_at) == (1_000_060.0, 1_000_000.0)


def test_a_power_cut_anywhere_in_a_save_leaves_whole_checkpoints_only(
    tmp_path: Any, toy: Any, power_cuts: PowerCuts
) -> None:
    toy.save(CheckpointStore(str(tmp_path)), 1)
    cuts = 0
    for is_done in power_cuts(lambda: toy.save(CheckpointStore(str(tmp_path)), 2)):
        cuts += 1
        store = CheckpointStore(str(tmp_path))
        assert store.steps() in ([[1, 2]] if is_done else [[1], [1, 2]])
        for step in store.steps():
            check_whole(store, step, toy)
        if not is_done:
            store.files.remove("checkpoints/step_00000002/manifest.json")
            store.discard_uncommitted()
            assert os.listdir(tmp_path / "checkpoints") == ["step_00000001"]
    assert cuts > 15


def test_a_job_saves_again_what_a_power_cut_interrupted(tmp_path: Any, toy: Any, power_cuts: PowerCuts) -> None:
    for index, is_done in enumerate(power_cuts(lambda: toy.save(CheckpointStore(str(tmp_path)), 2))):
        store = CheckpointStore(str(tmp_path))
        if store.latest() is None:
            toy.save(store, 2, num_ps=1 + index % 3)
        check_whole(CheckpointStore(str(tmp_path)), 2, toy)
        if not is_done:
            store.files.remove_tree("checkpoints")


def test_a_power_cut_anywhere_in_a_collection_leaves_whole_checkpoints_only(
    tmp_path: Any, toy: Any, power_cuts: PowerCuts
) -> None:
    for step in (1, 2, 3):
        toy.save(CheckpointStore(str(tmp_path)), step)
    for is_done in power_cuts(lambda: CheckpointStore(str(tmp_path)).collect_garbage(1, 10_000, now=0.0)):
        store = CheckpointStore(str(tmp_path))
        assert store.latest() == 3
        for step in store.steps():
            check_whole(store, step, toy)
        assert not is_done or store.steps() == [3]
    store.discard_uncommitted()
    assert os.listdir(tmp_path / "checkpoints") == ["step_00000003"]


def test_a_failed_write_leaves_no_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (tmp_path / "checkpoints" / "step_00000001").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"could not be written: No space left on device \(\d+\.\d MB are free\)"):
        store.write_shard(1, 0, 1, {"a": np.ones(3)})
    assert os.listdir(tmp_path / "checkpoints" / "step_00000001") == []


def test_the_manifest_is_put_last(store: CheckpointStore, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def noted(call: Callable[..., None]) -> Callable[..., None]:
        def noting(name: str, content: Any) -> None:
            names.append(name)
            call(name, content)

        return noting

    monkeypatch.setattr(store.files, "write", noted(store.files.write))
    monkeypatch.setattr(store.files, "put", noted(store.files.put))
    toy.save(store, 7)
    assert [name.rpartition("/")[2] for name in names] == [
        "shard_00000_of_00002.safetensors",
        "shard_00001_of_00002.safetensors",
        "manifest.json",
    ]


def test_listing_reads_each_manifest_once(store: CheckpointStore, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.save(store, 1)
    store.steps()
    monkeypatch.setattr(Manifest, "from_json", None)
    assert store.steps() == [1]


def test_the_path_of_a_checkpoint_is_one_that_people_can_use(tmp_path: Path) -> None:
    assert CheckpointStore(str(tmp_path)).path(7) == str(tmp_path / "checkpoints" / "step_00000007")
    assert CheckpointStore("memory://runs/a").path(7) == "memory:///runs/a/checkpoints/step_00000007"
