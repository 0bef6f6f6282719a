"""Laws of placement: whatever the model, every row has one place, and every role computes the same."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.optimizers.adam import Adam
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.payloads import PushLayout
from psflow.ps_runtime.specs import layout
from psflow.ps_runtime.specs.layout import ALIGNMENT_BYTES, piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

OPTIMIZERS = (Adam(learning_rate=1.0).config(), GradientDescent(learning_rate=1.0).config())
VARIABLES = st.lists(
    st.builds(
        lambda shape, dtype, optimizer, slices: (
            tuple(shape),
            dtype,
            optimizer,
            slices and min(slices, max(1, shape[0] if shape else 1)),
        ),
        st.lists(st.integers(0, 40), max_size=3),
        st.sampled_from(["float32", "float64"]),
        st.sampled_from([0, 1, None]),
        st.sampled_from([None, None, 1, 2, 7]),
    ),
    max_size=8,
)


def model_of(*variables: tuple[Any, ...]) -> ModelSpec:
    return ModelSpec(tuple(VariableSpec(f"v{i}", *facts) for i, facts in enumerate(variables)), OPTIMIZERS)


@settings(max_examples=settings().max_examples * 3 // 2)
@given(VARIABLES, st.integers(1, 5), st.sampled_from([16, 256, 64 * 1024]))
def test_every_row_has_one_place_and_arenas_are_sound(variables, num_ps, min_piece_bytes):
    model = model_of(*variables)
    with patch.object(layout, "MIN_PIECE_BYTES", min_piece_bytes):
        shards = place(model, num_ps)
        assert shards == place(ModelSpec.from_json(model.to_json()), num_ps)
    assert [shard.index for shard in shards] == list(range(num_ps))
    check_rows(model, shards)
    for shard in shards:
        check_arena(model, shard)
    largest = max((piece.nbytes for shard in shards for piece in shard.pieces), default=0)
    loads = [sum(piece.nbytes for piece in shard.pieces) for shard in shards]
    assert max(loads) - min(loads) <= largest


def check_rows(model, shards):
    for variable in model.variables:
        pieces = sorted(
            (p.row_start, p.row_stop, p.shape, p.dtype) for s in shards for p in s.pieces if p.variable == variable.name
        )
        rows = [row for start, stop, *_ in pieces for row in range(start, stop)]
        assert rows == list(range(variable.num_rows))
        for start, stop, shape, dtype in pieces:
            assert dtype == variable.dtype
            assert shape == ((stop - start, *variable.shape[1:]) if variable.shape else ())


def check_arena(model, shard):
    optimizer_of = {v.name: v.optimizer for v in model.variables}
    end = 0
    for piece in shard.pieces:
        assert piece.offset >= end
        assert piece.offset % np.dtype(piece.dtype).itemsize == 0
        end = piece.offset + piece.nbytes
    assert shard.nbytes == end
    for group in shard.groups:
        assert group.start % ALIGNMENT_BYTES == 0
        inside = [p for p in shard.pieces if group.start <= p.offset < group.stop and p.nbytes]
        assert sum(p.nbytes for p in inside) == group.stop - group.start
        assert all((optimizer_of[p.variable], p.dtype) == (group.optimizer, group.dtype) for p in inside)
    trained = [group for group in shard.groups if group.optimizer is not None]
    assert shard.groups == (*trained, *(group for group in shard.groups if group.optimizer is None))
    assert shard.gradient_nbytes == max((group.stop for group in trained), default=0)
    check_views(shard, optimizer_of)


def check_views(shard, optimizer_of):
    buffer = np.zeros(shard.nbytes, np.uint8)
    for number, view in enumerate(piece_views(shard, buffer), start=1):
        view[...] = number
    values = [view.copy() for view in piece_views(shard, buffer)]
    assert all((value == number).all() for number, value in enumerate(values, start=1))
    gradients = piece_views(shard, buffer[: shard.gradient_nbytes])
    push = PushLayout.of(shard, len(OPTIMIZERS))
    assert push.num_pieces == len(gradients)
    assert push.gradients_start % ALIGNMENT_BYTES == 0
    for piece in shard.pieces[len(gradients) :]:
        assert optimizer_of[piece.variable] is None or not piece.nbytes
    for piece in shard.pieces[: len(gradients)]:
        assert optimizer_of[piece.variable] is not None or not piece.nbytes


def test_a_large_variable_is_split_by_rows_and_spread():
    shards = place(model_of(((1000, 100), "float32", 0), ((10,), "float32", 0)), 4)
    rows = [[p.row_stop - p.row_start for p in shard.pieces if p.variable == "v0"] for shard in shards]
    assert rows == [[250]] * 4


@pytest.mark.parametrize(("num_slices", "pieces"), [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (7, [3, 2, 2])])
def test_a_partitioner_says_into_how_many_slices_a_variable_is_split(num_slices, pieces):
    for num_rows in (7, 100_000):
        shards = place(model_of(((num_rows, 4), "float32", 0, num_slices)), 3)
        assert sorted((len(shard.pieces) for shard in shards), reverse=True) == pieces


def test_one_ps_holds_every_variable_whole():
    [shard] = place(model_of(((7,), "float32", 0, 7)), 1)
    assert [piece.shape for piece in shard.pieces] == [(7,)]


def test_a_small_variable_stays_whole():
    shards = place(model_of(((100, 100), "float32", 0), ((100, 100), "float32", 0)), 2)
    assert [[p.shape for p in shard.pieces] for shard in shards] == [[(100, 100)]] * 2


@pytest.mark.parametrize(("num_rows", "num_pieces"), [(1023, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3)])
def test_a_variable_is_split_where_it_is_larger_than_64_kib(num_rows, num_pieces):
    shards = place(model_of(((num_rows, 16), "float32", 0)), 4)
    assert sum(len(shard.pieces) for shard in shards) == num_pieces


def test_no_piece_is_less_than_a_row():
    shards = place(model_of(((2, 100_000), "float32", 0)), 4)
    assert sorted(len(shard.pieces) for shard in shards) == [0, 0, 1, 1]


def test_a_variable_without_values_is_one_piece():
    shards = place(model_of(((0, 4), "float32", 0)), 2)
    assert sum(len(shard.pieces) for shard in shards) == 1


def test_more_ps_than_variables_leave_some_empty_but_never_ps_0():
    shards = place(model_of(((), "float32", 0)), 3)
    assert [shard.nbytes for shard in shards] == [4, 0, 0]


def test_placement_is_by_bytes():
    shards = place(model_of(((3000,), "float32", 0), *(((1000,), "float32", 0) for _ in range(3))), 2)
    assert [[p.variable for p in shard.pieces] for shard in shards] == [["v0"], ["v1", "v2", "v3"]]


def test_groups_are_one_for_each_optimizer_and_dtype_and_the_untrained_come_last():
    model = model_of(((3,), "float32", None), ((3,), "float64", 1), ((3,), "float32", 1), ((2,), "float32", 0))
    shard = place(model, 1)[0]
    assert [(g.optimizer, g.dtype, g.start, g.stop) for g in shard.groups] == [
        (0, "float32", 0, 8),
        (1, "float32", 64, 76),
        (1, "float64", 128, 152),
        (None, "float32", 192, 204),
    ]
    assert (shard.gradient_nbytes, shard.nbytes) == (152, 204)


@pytest.mark.parametrize("num_ps", [1, 2, 7])
def test_nothing_is_lost_of_a_large_model(num_ps):
    model = model_of(((784, 100), "float32", 0), ((100,), "float32", 0), ((50_000, 16), "float32", 1))
    shards = place(model, num_ps)
    assert sum(p.nbytes for shard in shards for p in shard.pieces) == model.nbytes
    fair_share = math.ceil(model.nbytes / num_ps)
    assert max(p.nbytes for shard in shards for p in shard.pieces) <= fair_share
    assert max(shard.nbytes for shard in shards) < 2 * fair_share
