"""Sparse tables in checkpoints: written by any number of ps, read by any other, and no lie is believed."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.checkpoint import manifest as manifest_module
from psflow.ps_runtime.checkpoint import reader as table_blocks
from psflow.ps_runtime.checkpoint import shards as shards_module
from psflow.ps_runtime.checkpoint.entries import ShardRecord, TableEntry
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import load_shard, save_shard, table_tensors
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.optimizers.adam import Adam
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec
from psflow.ps_runtime.tables.table import Table

ADAM = Adam(learning_rate=float("nan"))
ITEMS = TableSpec("items", 23, 3, "float32", 0, {"name": "uniform", "scale": 0.1}, seed=7)
RARE = TableSpec("rare", 40, 2, "float64", 0, {"name": "zeros"}, seed=8, admit_after=3, expire_after_steps=50)
MODEL = ModelSpec((VariableSpec("w", (4,), "float32", 0),), (ADAM.config(),), (ITEMS, RARE))


def tables_of(shard: int = 0, num_shards: int = 1) -> list[Table]:
    return [Table(spec, ADAM, shard, num_shards) for spec in MODEL.tables]


def push(table: Table, ids: Any, num_updates: int) -> None:
    mine = np.unique(np.asarray(ids, np.int64))
    mine = mine[mine % table.num_shards == table.shard]
    gradients = np.outer(mine + 1, np.ones(table.spec.dim)).astype(table.spec.dtype)
    table.push(mine, gradients, learning_rate=0.1, num_updates=num_updates)


def whole_of(tables: list[Table]) -> dict[str, Any]:
    """Return the tensors of one table, from all of its shards, in the order of ids."""
    parts = [table.tensors() for table in tables]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    orders = {name: np.argsort(joined[name]) for name in joined if name.endswith("ids")}
    by = {name: orders["candidate_ids" if name.startswith("candidate_") else "ids"] for name in joined}
    return {name: array[by[name]] for name, array in joined.items()}


def save(store: CheckpointStore, step: int, shards: list[list[Table]]) -> Manifest:
    records = []
    for layout, tables in zip(place(MODEL, len(shards)), shards, strict=True):
        arena, slots = allocate(layout)
        records.append(save_shard(store, step, len(shards), layout, arena, slots, tables))
    travelled = [ShardRecord.from_facts(json.loads(json.dumps(record.to_facts()))) for record in records]
    return store.commit(Manifest.of(step, MODEL, {}, travelled))


def allocate(layout: Any) -> tuple[Any, Any]:
    slots = [{n: np.zeros((g.stop - g.start) // 4, np.float32) for n in ("m", "v")} for g in layout.groups]
    return np.zeros(layout.nbytes, np.uint8), slots


def load(store: CheckpointStore, step: int, num_shards: int) -> list[list[Table]]:
    shards = []
    for layout in place(MODEL, num_shards):
        arena, slots = allocate(layout)
        tables = tables_of(layout.index, num_shards)
        push(tables[0], range(23), 1)  # what was there before is gone afterwards
        load_shard(CheckpointReader(store, step), layout, MODEL, arena, slots, tables)
        shards.append(tables)
    return shards


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_blocks, "BLOCK_BYTES", 150)


@pytest.fixture
def saved(store: CheckpointStore) -> Manifest:
    tables = [tables_of(0, 2), tables_of(1, 2)]
    for shard in tables:
        push(shard[0], [1, 2, 3, 8], 1)
        for step in range(3):
            push(shard[1], [5, 6, 7, 30 + step], step)
    return save(store, 9, tables)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from([0, 1]), st.lists(st.integers(0, 22), max_size=9)), max_size=12),
)
def test_tables_saved_with_m_shards_restore_with_n(m: int, n: int, pushes: list[tuple[int, list[int]]]) -> None:
    store = CheckpointStore(f"memory://{uuid.uuid4().hex}")
    before = [tables_of(shard, m) for shard in range(m)]
    for step, (table, ids) in enumerate(pushes, start=1):
        for tables in before:
            push(tables[table], ids, step)
    save(store, 5, before)
    after = load(store, 5, n)
    for index in range(len(MODEL.tables)):
        expected = whole_of([tables[index] for tables in before])
        found = whole_of([tables[index] for tables in after])
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
        assert sum(t[index].num_created for t in after) == sum(t[index].num_created for t in before)


def test_a_table_is_read_whole_for_evaluation_without_its_slots(store: CheckpointStore, saved: Manifest) -> None:
    reader = CheckpointReader(store, 9)
    ids = np.arange(23)
    read, fresh = np.empty((2, 23, 3), np.float32)
    table = reader.table(ITEMS)
    table.pull(ids, read)
    Table(ITEMS, None).pull(ids, fresh)
    assert [i for i in ids if (read[i] != fresh[i]).any()] == [1, 2, 3, 8]
    assert (table.num_created, reader.table(RARE).num_created) == (4, 3)
    assert table.optimizer is None


def test_what_is_pushed_after_a_restore_is_what_would_have_been(store: CheckpointStore, saved: Manifest) -> None:
    def go_on(tables: list[Table]) -> Table:
        for step in range(3, 6):
            push(tables[1], [6, 30, 31], step)
        return tables[1]

    (one,) = load(store, 9, 1)
    two = load(store, 9, 2)
    found, expected = whole_of([go_on(one)]), whole_of([go_on(tables) for tables in two])
    assert found["ids"].tolist() == [5, 6, 7, 30, 31]
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_manifest_lists_rows_dtypes_and_checksums(saved: Manifest) -> None:
    assert Manifest.from_json(saved.to_json()) == saved
    items = [entry for entry in saved.tables if entry.table == "items"]
    assert items[:4] == [
        TableEntry("items", "ids", "int64", (2,), 0),
        TableEntry("items", "weights", "float32", (2, 3), 0),
        TableEntry("items", "m", "float32", (2, 3), 0),
        TableEntry("items", "v", "float32", (2, 3), 0),
    ]
    assert [(e.tensor, e.shape, e.shard) for e in items[4:]] == [
        ("ids", (2,), 1), ("weights", (2, 3), 1), ("m", (2, 3), 1), ("v", (2, 3), 1),
    ]  # fmt: skip
    assert [e.key for e in saved.tables if e.table == "rare" and e.shard == 1] == [
        "rare#ids", "rare#weights", "rare#m", "rare#v", "rare#last_push",
        "rare#candidate_ids", "rare#candidate_pushes", "rare#candidate_last_push",
    ]  # fmt: skip


def test_what_is_not_there_is_named(store: CheckpointStore, saved: Manifest) -> None:
    reader = CheckpointReader(store, 9)
    with pytest.raises(CheckpointError, match="no table 'itms'; did you mean 'items'"):
        reader.table(replace(ITEMS, name="itms"))
    with pytest.raises(CheckpointError, match="table 'items' has dim 3, expected 4"):
        reader.table(replace(ITEMS, dim=4))
    with pytest.raises(CheckpointError, match="table 'items' has no slot velocity"):
        list(reader.table_rows(ITEMS, ["velocity"]))


def test_a_flipped_byte_of_a_table_is_found(store: CheckpointStore, saved: Manifest) -> None:
    name = store.shard_name(9, saved.shards[1])
    content = store.files.read(name)
    store.files.put(name, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="its bytes have changed"):
        CheckpointReader(store, 9).table(ITEMS)


def forged(manifest: Manifest, **changes: Any) -> str:
    return manifest_module._sealed(json.loads(manifest.to_json())["body"] | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"table": "itms"}, "no table 'itms'; did you mean 'items'"),
        ({"tensor": "id"}, "table 'items', shard 0: ids missing"),
        ({"shape": (9,)}, r"weights is float32\[2, 3\], expected float32\[9, 3\]"),
        ({"shape": (3, 2)}, r"ids is int64\[3, 2\], expected int64\[3\]"),
        ({"shape": ()}, r"ids is int64\[\], expected int64\[0\]"),
        ({"dtype": "int32"}, r"ids is int32\[2\], expected int64\[2\]"),
        ({"dtype": "object"}, "items#ids: dtype 'object' is invalid"),
        ({"shape": (10**12,)}, r"has \d+ bytes, its tensors claim 80000000"),
        ({"shard": 7}, "tensor 'items#ids' claims shard 7 of 2"),
        ({"tensor": "weights"}, "listed twice"),
    ],
)
def test_a_forged_table_entry_is_refused(saved: Manifest, changes: dict[str, Any], words: str) -> None:
    first, *others = saved.tables
    assert first == TableEntry("items", "ids", "int64", (2,), 0)
    entries = [replace(first, **changes).to_facts(), *(entry.to_facts() for entry in others)]
    with pytest.raises(CheckpointError, match=words):
        Manifest.from_json(forged(saved, tables=entries))


def test_a_table_with_a_part_missing_or_unlike_the_others_is_refused(saved: Manifest) -> None:
    facts = [entry.to_facts() for entry in saved.tables]
    for left, words in [
        ([f for f in facts if f[4] == 0], "table 'items', shard 1: ids, weights missing"),
        ([f for f in facts if f[1:5:3] != ["m", 1]], "table 'items' has other tensors in one shard than in another"),
        ([f[:4] for f in facts], "tensor of a table: expected a list of 5"),
        ([[7, *f[1:]] for f in facts], "tensor of a table: expected names"),
        ([[*f[:3], [-1], f[4]] for f in facts], "tensor of a table: shape: expected a whole number >= 0, got -1"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            Manifest.from_json(forged(saved, tables=left))


@pytest.mark.parametrize(
    "change",
    [
        {"num_rows": -1}, {"num_rows": 10**30}, {"dim": 0}, {"dtype": "object"}, {"dtype": "int64"}, {"optimizer": 5},
        {"initializer": {"name": "evil"}}, {"initializer": 3}, {"seed": "x"}, {"admit_after": 0},
        {"expire_after_steps": 0}, {"name": 3},
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_is_refused(saved: Manifest, change: dict[str, Any]) -> None:
    model = json.loads(saved.model.to_json())
    model["tables"][0] |= change
    with pytest.raises(CheckpointError, match=r"TableSpec\(name=.* is invalid"):
        Manifest.from_json(forged(saved, model=model))


def test_names_are_unique_among_variables_and_tables(saved: Manifest) -> None:
    model = json.loads(saved.model.to_json())
    model["tables"][1]["name"] = "w"
    with pytest.raises(CheckpointError, match="two variables or tables have the same name"):
        Manifest.from_json(forged(saved, model=model))


def test_more_rows_than_a_shard_can_have_are_refused(saved: Manifest) -> None:
    model = json.loads(saved.model.to_json())
    model["tables"][0]["num_rows"] = 3
    with pytest.raises(CheckpointError, match="table 'items', shard 1: 2 rows, expected at most 1"):
        Manifest.from_json(forged(saved, model=model))


@pytest.mark.parametrize(
    ("table", "tensor", "values", "words"),
    [
        ("items", "ids", [2, 1], "the ids of table 'items' are not ascending"),
        ("items", "ids", [1, 1], "the ids of table 'items' are not ascending"),
        ("items", "ids", [-1, 1], "the ids of table 'items' are not ascending"),
        ("items", "ids", [2, 24], "the ids of table 'items' are not ascending, not below"),
        ("items", "ids", [1, 2], "the ids of table 'items' .* or belong to another shard; use another checkpoint"),
        ("rare", "candidate_ids", [32, 30], "the ids of table 'rare' are not ascending"),
        ("rare", "candidate_pushes", [0, 1], "the push counts of table 'rare' are out of range, expected 1 to 2; use"),
        ("rare", "candidate_pushes", [1, 3], "the push counts of table 'rare' are out of range, expected 1 to 2; use"),
    ],
)
def test_rows_that_cannot_be_are_refused_even_under_a_right_checksum(
    store: CheckpointStore,
    saved: Manifest,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    tensor: str,
    values: list[int],
    words: str,
) -> None:
    (index,) = [i for i, spec in enumerate(MODEL.tables) if spec.name == table]
    forger = load(store, 9, 2)
    lies = forger[0][index].tensors() | {tensor: np.array(values)}
    monkeypatch.setattr(forger[0][index], "tensors", lambda: lies)
    save(store, 10, forger)
    with pytest.raises(CheckpointError, match=rf"shard_00000_of_00002.safetensors: {words}"):
        CheckpointReader(store, 10).table(MODEL.tables[index])


@pytest.mark.parametrize("ids", [[-1, 1], [5, 7, 6], [5, 7, 7]])
def test_ids_of_a_table_ascend_from_zero_over_all_its_blocks(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, ids: list[int]
) -> None:
    [table, other] = tables_of()
    push(table, range(len(ids)), 1)
    lies = table.tensors() | {"ids": np.array(ids)}
    monkeypatch.setattr(table, "tensors", lambda: lies)
    save(store, 1, [[table, other]])
    monkeypatch.setattr(table_blocks, "BLOCK_BYTES", 2 * (8 + 12))  # two rows, each an id and weights
    with pytest.raises(CheckpointError, match="the ids of table 'items' are not ascending"):
        CheckpointReader(store, 1).table(ITEMS)


def test_a_table_may_have_many_rows(store: CheckpointStore) -> None:
    large = replace(ITEMS, num_rows=200)
    model = ModelSpec((), (ADAM.config(),), (large,))
    table = Table(large, ADAM, 0, 1)
    push(table, [0, 199], 1)
    (layout,) = place(model, 1)
    record = save_shard(store, 1, 1, layout, np.zeros(0, np.uint8), [], [table])
    store.commit(Manifest.of(1, model, {}, [record]))
    assert CheckpointReader(store, 1).table(large).num_created == 2


def test_the_tensors_of_an_empty_table(store: CheckpointStore) -> None:
    tensors, entries = table_tensors(Table(ITEMS, ADAM), 3)
    assert {key: array.shape for key, array in tensors.items()} == {
        "items#ids": (0,), "items#weights": (0, 3), "items#m": (0, 3), "items#v": (0, 3),
    }  # fmt: skip
    assert {entry.shard for entry in entries} == {3}
    save(store, 1, [tables_of(0, 2), tables_of(1, 2)])
    assert CheckpointReader(store, 1).table(ITEMS).num_created == 0


@pytest.mark.parametrize(
    ("tensor", "words"),
    [("weights", "row 4 of table 'items' is -?inf"), ("m", "row 4 of slot 'm' of table 'items' is -?inf")],
)
def test_a_row_that_is_not_finite_is_neither_written_nor_read(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, tensor: str, words: str
) -> None:
    shards = [tables_of(shard, 2) for shard in range(2)]
    for tables in shards:
        push(tables[0], [1, 2, 3, 4], 1)
    intact = Table.tensors

    def spoilt(table: Table) -> dict[str, Any]:
        found = intact(table)
        if tensor in found and 4 in found["ids"]:
            found[tensor][list(found["ids"]).index(4), 1] = np.inf
        return found

    monkeypatch.setattr(Table, "tensors", spoilt)
    with pytest.raises(CheckpointError, match=rf"step_00000009: {words}, so it is not written"):
        save(store, 9, shards)
    assert store.steps() == []
    monkeypatch.setattr(
        shards_module, "fault_of_tensors", lambda *given: None
    )  # as if an earlier psflow had written it
    save(store, 9, shards)
    with pytest.raises(CheckpointError, match=rf"shard_00000_of_00002.safetensors: {words}; use another checkpoint"):
        load(store, 9, 1)
