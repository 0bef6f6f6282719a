from __future__ import annotations

import uuid
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.checkpoint import shards as shards_module
from psflow.ps_runtime.checkpoint import tensor_file
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import load_shard, save_shard, shard_tensors
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.specs import layout as layout_module
from psflow.ps_runtime.specs.layout import ShardLayout, place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

SLOTS = (("velocity",), (), ("m", "v"))

models = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.sampled_from(["float32", "float64", "int64", "bool"]),
        st.sampled_from([None, 0, 1, 2]),
    ),
    max_size=7,
).map(
    lambda specs: ModelSpec(
        tuple(VariableSpec(f"v{i}", shape, dtype, optimizer) for i, (shape, dtype, optimizer) in enumerate(specs)),
        tuple({"name": str(i)} for i in range(3)),
    )
)


def values_of(model: ModelSpec, rng: np.random.Generator) -> dict[tuple[str, str | None], Any]:
    """Return random weights and slots of every variable."""
    keys = [
        (v, slot) for v in model.variables for slot in (None, *(SLOTS[v.optimizer] if v.optimizer is not None else ()))
    ]
    return {(v.name, slot): np.asarray(rng.integers(0, 99, v.shape)).astype(v.dtype) for v, slot in keys}


def allocate(layout: ShardLayout) -> tuple[Any, list[dict[str, Any]]]:
    slots = [
        {
            name: np.full((g.stop - g.start) // np.dtype(g.dtype).itemsize, 1, g.dtype)
            for name in (SLOTS[g.optimizer] if g.optimizer is not None else ())
        }
        for g in layout.groups
    ]
    return np.full(layout.nbytes, 0xAA, np.uint8), slots


def in_shard(layout: ShardLayout, arena: Any, slots: Any) -> Any:
    """Yield (variable, slot, row_start, row_stop, bytes of it in the arena), found without the code under test."""
    for piece in layout.pieces:
        yield piece, None, arena[piece.offset : piece.offset + piece.nbytes]
        for group, arrays in zip(layout.groups, slots, strict=True):
            if piece.nbytes and group.start <= piece.offset < group.stop:
                for name, array in arrays.items():
                    start = piece.offset - group.start
                    yield piece, name, array.view(np.uint8)[start : start + piece.nbytes]


def rows(values: Any, piece: Any, slot: str | None) -> Any:
    array = values[piece.variable, slot]
    part = array[piece.row_start : piece.row_stop] if piece.shape else array
    return np.frombuffer(part.tobytes(), np.uint8)


@settings(max_examples=25, deadline=None)
@given(models, st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_saved_with_m_shards_restores_with_n(model: ModelSpec, m: int, n: int, random: Any) -> None:
    values = values_of(model, np.random.default_rng(random.getrandbits(32)))
    store = CheckpointStore(f"memory://{uuid.uuid4().hex}")
    with mock.patch.object(layout_module, "MIN_PIECE_BYTES", 16):  # so that small variables are split
        before, after = place(model, m), place(model, n)
    records = []
    for layout in before:
        arena, slots = allocate(layout)
        for piece, slot, raw in in_shard(layout, arena, slots):
            raw[:] = rows(values, piece, slot)
        records.append(save_shard(store, 5, m, layout, arena, slots))
    store.commit(Manifest.of(5, model, {}, records[::-1]))
    reader = CheckpointReader(store, 5)
    for (name, slot), array in values.items():
        if slot is None:
            assert reader.variable(name).tobytes() == array.tobytes()
    for layout in after:
        arena, slots = allocate(layout)
        load_shard(reader, layout, model, arena, slots)
        for piece, slot, raw in in_shard(layout, arena, slots):
            np.testing.assert_array_equal(raw, rows(values, piece, slot))


def test_tensors_are_views_of_the_arena(toy: Any) -> None:
    (layout,) = place(toy.model, 1)
    arena = np.zeros(layout.nbytes, np.uint8)
    slots = toy.slots_of(layout)
    tensors, entries = shard_tensors(layout, arena, slots)
    assert [entry.key for entry in entries] == list(tensors)
    assert set(tensors) == {
        "kernel@0", "kernel@0/velocity", "bias@0", "bias@0/velocity", "scale@0", "scale@0/m", "scale@0/v", "empty@0",
        "steps@0",
    }  # fmt: skip
    arena.fill(255)
    assert tensors["steps@0"].tolist() == [-1, -1]
    assert all(np.shares_memory(tensors[k], s) for k, s in [("scale@0/v", slots[1]["v"])])


def test_more_ps_than_variables(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 3, num_ps=7)
    reader = CheckpointReader(store, 3)
    (layout,) = place(toy.model, 1)
    arena, slots = np.zeros(layout.nbytes, np.uint8), toy.slots_of(layout)
    load_shard(reader, layout, toy.model, arena, slots)
    assert reader.variable("kernel").ravel().tolist() == list(range(3, 18))
    assert slots[0]["velocity"].tolist() == [3.0] * 18


def test_rows_are_assembled_over_shard_files(store: CheckpointStore) -> None:
    model = ModelSpec((VariableSpec("table", (1000, 40), "float32", None),), ())
    table = np.random.default_rng(0).random((1000, 40), np.float32)
    records = []
    for layout in place(model, 2):
        (piece,) = layout.pieces
        arena = np.frombuffer(table[piece.row_start : piece.row_stop].tobytes(), np.uint8)
        records.append(save_shard(store, 1, 2, layout, arena, [{}]))
    store.commit(Manifest.of(1, model, {}, records))
    reader = CheckpointReader(store, 1)
    for start, stop in [(0, 1000), (499, 501), (0, 1), (999, 1000), (7, 7), (500, 700)]:
        np.testing.assert_array_equal(reader.rows("table", None, start, stop), table[start:stop])
    with pytest.raises(CheckpointError, match=r"variable 'table' has rows \[0, 1000\), not \[990, 1001\)"):
        reader.rows("table", None, 990, 1001)


def test_variables_are_read_together(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 2)
    found = CheckpointReader(store, 2).variables(variable.name for variable in toy.model.variables)
    assert len(found) == len(toy.model.variables)
    for variable in toy.model.variables:
        np.testing.assert_array_equal(found[variable.name], toy.expected(2, variable))
        assert found[variable.name].dtype == variable.dtype


def test_what_is_not_there_is_named(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 1)
    reader = CheckpointReader(store, 1)
    with pytest.raises(CheckpointError, match="no variable 'kernal'; did you mean 'kernel'"):
        reader.variables(["bias", "kernal"])
    with pytest.raises(CheckpointError, match="no variable 'kernal'; did you mean 'kernel'"):
        reader.variable("kernal")
    with pytest.raises(CheckpointError, match="variable 'scale' has no slot 'velocity'; it has m, v"):
        reader.rows("scale", "velocity", 0, 1)
    assert reader.rows("scale", "m", 0, 1) == 1.0


def test_another_model_is_refused_with_all_differences(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 1)
    other = ModelSpec(
        (VariableSpec("kernel", (5, 4), "float32", 0), VariableSpec("b", (3,), "float32", 0)), toy.model.optimizers
    )
    (layout,) = place(other, 1)
    words = (
        r"to another model: .*'b' is missing; .*'bias' is new; .*'kernel' is float32\[5, 3\], expected float32\[5, 4\]"
    )
    with pytest.raises(CheckpointError, match=words):
        load_shard(CheckpointReader(store, 1), layout, other, np.zeros(layout.nbytes, np.uint8), toy.slots_of(layout))


def test_a_flipped_byte_in_a_shard_is_found_before_its_first_number_is_used(store: CheckpointStore, toy: Any) -> None:
    manifest = toy.save(store, 1)
    name = store.shard_name(1, manifest.shards[1])
    content = store.files.read(name)
    for place_ in range(0, len(content), 13):
        store.files.put(name, content[:place_] + bytes([content[place_] ^ 16]) + content[place_ + 1 :])
        reader = CheckpointReader(store, 1)
        with pytest.raises(CheckpointError, match=r"shard_00001_of_00002.safetensors: its bytes have changed"):
            [reader.variable(variable.name) for variable in toy.model.variables]


def test_a_shard_file_is_checked_once(store: CheckpointStore, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.save(store, 1)
    reader = CheckpointReader(store, 1)
    assert list(reader.variables(["kernel", "bias", "steps", "scale"])) == ["kernel", "bias", "steps", "scale"]
    monkeypatch.setattr(tensor_file.TensorFile, "_prove", None)
    assert reader.variable("kernel").shape == (5, 3)


@pytest.mark.parametrize(
    ("slot", "words"),
    [(None, "row 3 of variable 'v0' is nan"), ("velocity", "row 3 of slot 'velocity' of variable 'v0' is nan")],
)
def test_what_is_not_finite_is_neither_written_nor_read(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, slot: str | None, words: str
) -> None:
    monkeypatch.setattr(layout_module, "MIN_PIECE_BYTES", 16)
    model = ModelSpec((VariableSpec("v0", (4, 2), "float32", 0),), ({"name": "0"},))
    store, layouts = CheckpointStore(str(tmp_path)), place(model, 2)
    arrays = [allocate(layout) for layout in layouts]
    for layout, (arena, slots) in zip(layouts, arrays, strict=True):
        arena[:] = 0
        for piece, name, raw in in_shard(layout, arena, slots):
            if name == slot and piece.row_stop == 4:
                raw.view(np.float32)[-1] = np.nan

    def save() -> None:
        records = [save_shard(store, 3, 2, x, *some) for x, some in zip(layouts, arrays, strict=True)]
        store.commit(Manifest.of(3, model, {}, records))

    with pytest.raises(CheckpointError, match=rf"step_00000003: {words}, so it is not written and the last one stays"):
        save()
    assert store.steps() == []
    monkeypatch.setattr(
        shards_module, "fault_of_tensors", lambda *given: None
    )  # as if an earlier psflow had written it
    save()
    reader = CheckpointReader(store, 3)
    with pytest.raises(CheckpointError, match=rf"step_00000003: {words}; use another checkpoint, or remove this"):
        load_shard(reader, place(model, 1)[0], model, *allocate(place(model, 1)[0]))
    with pytest.raises(CheckpointError, match=words):
        reader.rows("v0", slot, 2, 4)
    assert np.isfinite(reader.rows("v0", slot, 0, 2)).all()
