"""The fixed binary form of a push."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.payloads import GRANT, PushBuffer, PushLayout, RowLayout
from psflow.ps_runtime.specs.layout import ALIGNMENT_BYTES, place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

SGD = GradientDescent(learning_rate=1.0).config()
MODEL = ModelSpec(
    (
        VariableSpec("a", (3,), "float32", 0),
        VariableSpec("b", (2,), "float64", 1),
        VariableSpec("fixed", (9,), "float32", None),
    ),
    (SGD, SGD),
)
LAYOUT = PushLayout.of(place(MODEL, 1)[0], 2)


def test_where_the_parts_lie():
    assert (LAYOUT.num_optimizers, LAYOUT.num_pieces, LAYOUT.gradient_nbytes) == (2, 2, 64 + 16)
    assert (LAYOUT.rates_start, LAYOUT.mask_start, LAYOUT.gradients_start) == (8, 24, ALIGNMENT_BYTES)
    assert LAYOUT.nbytes() == ALIGNMENT_BYTES + 80


def test_gradients_begin_behind_the_mask_however_long_that_is():
    assert [PushLayout(1, num_pieces, 64).gradients_start for num_pieces in (48, 49, 100)] == [64, 128, 128]


@pytest.mark.parametrize("nbytes", [0, 8, 24])
def test_rows_fill_their_body(nbytes):
    with pytest.raises(ProtocolError, match=f"expected 16 bytes of rows, got {nbytes}"):
        RowLayout((TableSpec("items", 6, 2, "float32", 0, {"name": "zeros"}, seed=1),)).values(
            np.zeros(nbytes, np.uint8), [2]
        )


@pytest.mark.parametrize(("num_rows", "num_shards", "most"), [(10, 1, 10), (10, 3, 4), (10**9, 2, 4_194_304)])
def test_a_message_holds_no_more_rows_of_a_table_than_a_shard_has(num_rows, num_shards, most):
    items = TableSpec("items", num_rows, 2, "float32", 0, {"name": "zeros"}, seed=1)
    assert RowLayout((items,)).max_counts(num_shards) == [most]
    assert RowLayout((items,)).max_nbytes(num_shards) == 8 + most * (8 + 2 * 4)


def test_what_is_filled_in_is_read_out_of_the_bytes():
    sent = PushBuffer.empty(LAYOUT)
    sent.num_examples = 32
    sent.learning_rates[:] = [0.5, 2.0]
    sent.mask[:] = [0, 1]
    sent.gradients[:] = 9
    for body in (bytes(sent.bytes), bytearray(sent.bytes), sent.bytes.data):
        received = PushBuffer(LAYOUT, body)
        assert received.num_examples == 32
        assert received.learning_rates.tolist() == [0.5, 2.0]
        assert received.mask.tolist() == [0, 1]
        assert (received.gradients == 9).all()
    assert struct.unpack_from("<Qdd", sent.bytes) == (32, 0.5, 2.0)


def test_a_receiver_may_use_the_gradients_up_also_of_bytes_that_cannot_change():
    body = bytes(LAYOUT.nbytes())
    PushBuffer(LAYOUT, body).gradients[:] = 1
    assert body == bytes(LAYOUT.nbytes())


def test_a_push_may_lie_anywhere_in_memory():
    memory = np.zeros(LAYOUT.nbytes() + 1, np.uint8)
    push = PushBuffer(LAYOUT, memory[1:].data)
    push.learning_rates[:] = 0.25
    assert push.learning_rates.tolist() == [0.25, 0.25]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_push_has_its_size(change):
    with pytest.raises(ProtocolError, match=rf"expected a push of 144 bytes, got {144 + change}"):
        PushBuffer(LAYOUT, bytes(LAYOUT.nbytes() + change))


def test_a_shard_without_variables_takes_a_push_too():
    empty = PushLayout.of(place(MODEL, 4)[3], 2)
    push = PushBuffer.empty(empty)
    assert (empty.gradient_nbytes, push.mask.size, push.gradients.size) == (0, 0, 0)


def test_a_grant_is_five_numbers():
    assert GRANT.size == 40


TABLES = tuple(TableSpec(name, 100, 2, "float32", 0, {"name": "zeros"}, 0, 1, None) for name in ("users", "items"))
WITH_ROWS = PushLayout.of(place(MODEL, 1)[0], 2, TABLES)
VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)
ROWS = [(np.array([3, 99]), VALUES[1:], slice(None)), (np.array([5]), VALUES, np.array([1]))]


def test_rows_of_tables_come_after_the_gradients():
    push = PushBuffer.empty(WITH_ROWS, [2, 1])
    push.write_rows(ROWS)
    received = PushBuffer(WITH_ROWS, bytes(push.bytes))
    assert [ids.tolist() for ids, _ in received.rows()] == [[3, 99], [5]]
    assert [values.tolist() for _, values in received.rows()] == [[[2, 3], [4, 5]], [[2, 3]]]


def test_a_push_takes_what_its_rows_need_of_a_buffer_with_room_for_more():
    push = PushBuffer.empty(WITH_ROWS, [9, 9])
    push.write_rows(ROWS)
    assert len(push.body) == WITH_ROWS.nbytes([2, 1])
    assert [ids.tolist() for ids, _ in PushBuffer(WITH_ROWS, push.body).rows()] == [[3, 99], [5]]


@pytest.mark.parametrize("is_copied", [False, True])
def test_ids_that_were_checked_stay_as_they_are_though_the_peer_changes_them(is_copied):
    push = PushBuffer.empty(WITH_ROWS, [2, 1])
    push.write_rows(ROWS)
    checked = [ids.tolist() for ids, _ in push.rows()]
    push.bytes[WITH_ROWS.rows_start :] = 255
    used = push.copy() if is_copied else push
    assert [ids.tolist() for ids, _ in used.rows()] == checked == [[3, 99], [5]]
