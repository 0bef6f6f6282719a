"""Numbers survive a round over the wire as their format says: rounded once, or to the bit."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psflow.ps_runtime.errors import ProtocolError, UsageError
from psflow.ps_runtime.optimizers import Counter, GradientDescent, MovingAverage
from psflow.ps_runtime.optimizers.averages import states_of
from psflow.ps_runtime.protocol.payloads import PushBuffer, PushLayout
from psflow.ps_runtime.protocol.wire_codec import BLOCK_SIZE, WireCodec, narrow, widen
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec
from psflow.ps_runtime.specs.wire_format import EXACT, WireFormat

LARGEST = struct.unpack("<f", b"\x00\x00\x7f\x7f")[0]
"""The largest finite bfloat16."""


def rounded(values: np.ndarray) -> np.ndarray:
    bits, found = np.empty(values.size, np.uint16), np.empty(values.size, np.float32)
    narrow(values, bits, np.empty(min(values.size, BLOCK_SIZE), np.uint32))
    widen(bits, found)
    return found


def of_bits(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


def nearest(value: float) -> float:
    """Return the nearest finite bfloat16, of two the one whose last bit is 0: by comparing, in exact float64."""
    if not math.isfinite(value):
        return value
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    below = word >> 16 << 16
    around = [struct.unpack("<f", struct.pack("<I", bits))[0] for bits in (below, below + 0x10000)]
    best = min(around, key=lambda one: (abs(one - value), struct.unpack("<I", struct.pack("<f", one))[0] >> 16 & 1))
    return best if math.isfinite(best) else math.copysign(LARGEST, value)


FLOATS = st.floats(width=32, allow_subnormal=True)


@given(st.lists(FLOATS, min_size=1, max_size=40))
@example([1.00390625, 1.01171875, -1.00390625])  # in the middle of two: to the even one, down and up
@example([LARGEST, math.inf, -math.inf, math.nan, 0.0, -0.0])
def test_every_number_becomes_the_nearest_even_one(values: list[float]) -> None:
    found = rounded(np.float32(values))
    np.testing.assert_array_equal(found, np.float32([nearest(value) for value in values]))
    is_number = ~np.isnan(found)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(np.float32(values))[is_number])


@given(st.integers(0, 0xFFFF))
def test_what_is_a_bfloat16_stays_the_same(bits: int) -> None:
    value = of_bits(bits << 16)
    np.testing.assert_array_equal(rounded(value), value)


@pytest.mark.parametrize("sign", [0, 0x8000_0000])
def test_special_values(sign: int) -> None:
    smallest, quiet, signalling, all_ones = 0x0000_0001, 0x7FC0_0000, 0x7F80_0001, 0x7FFF_FFFF
    found = rounded(of_bits(*(sign | bits for bits in (quiet, signalling, 0x7F80_8000, all_ones))))
    assert np.isnan(found).all(), "the payload of a NaN must not carry into infinity, or around to zero"
    found = rounded(of_bits(sign | 0x7F80_0000, sign | 0, sign | smallest, sign | 0x0000_8001, sign | 0x007F_FFFF))
    expected = of_bits(sign | 0x7F80_0000, sign | 0, sign | 0, sign | 0x0001_0000, sign | 0x0080_0000)
    assert found.view(np.uint32).tolist() == expected.view(np.uint32).tolist()


def test_no_finite_number_becomes_infinite() -> None:
    largest = np.finfo(np.float32).max
    values = np.float32([largest, -largest, *of_bits(0x7F7F_7FFF, 0x7F7F_8000, 0x7F7F_8001)])
    assert rounded(values).tolist() == [LARGEST, -LARGEST, LARGEST, LARGEST, LARGEST]


def test_torch_rounds_in_the_same_way() -> None:
    torch = pytest.importorskip("torch")
    words = np.random.default_rng(1).integers(0, 2**32, 3 * BLOCK_SIZE + 5, np.uint32)
    values = words.view(np.float32)
    theirs = torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()
    is_beyond = np.isfinite(values) & np.isinf(theirs)
    assert 0 < is_beyond.sum() < values.size / 100
    np.testing.assert_array_equal(rounded(values)[~is_beyond], theirs[~is_beyond])
    np.testing.assert_array_equal(rounded(values)[is_beyond], np.copysign(np.float32(LARGEST), values[is_beyond]))


# the bodies of a shard

RULES = (GradientDescent(learning_rate=1.0), Counter(), MovingAverage(0.1))
TABLES = tuple(
    TableSpec(name, 100, 3, dtype, optimizer, {"name": "zeros"}, seed=1)
    for name, dtype, optimizer in (("items", "float32", 0), ("doubles", "float64", 0), ("fixed", "float32", None))
)
VARIABLES = (
    VariableSpec("w", (70_000,), "float32", 0),
    VariableSpec("double", (5,), "float64", 0),
    VariableSpec("count", (), "float32", 1),
    VariableSpec("mean", (7,), "float32", 2),
    VariableSpec("b", (3,), "float32", 0),
    VariableSpec("frozen", (9,), "float32", None),
    VariableSpec("ids", (4,), "int64", None),
)
BOTH = WireFormat("bfloat16", "bfloat16")
RNG = np.random.default_rng(2)


def codecs_of(tables: Sequence[TableSpec], wire: WireFormat = BOTH) -> tuple[WireCodec, WireCodec, PushLayout]:
    """Return the codecs of a role and of a ps, and the layout of pushes."""
    (layout,) = place(ModelSpec(VARIABLES, tuple(rule.config() for rule in RULES), tuple(tables)), 1)
    push_layout = PushLayout.of(layout, len(RULES), tables)
    role, ps = (WireCodec(wire, layout, push_layout, states_of(RULES)) for _ in range(2))
    return role, ps, push_layout


def arena_of() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    (layout,) = place(ModelSpec(VARIABLES, tuple(rule.config() for rule in RULES)), 1)
    arena = np.zeros(layout.nbytes, np.uint8)
    views = dict(zip((p.variable for p in layout.pieces), piece_views(layout, arena), strict=True))
    for view in views.values():
        view[...] = RNG.normal(size=view.shape) * 1000 + 1 / 3
    return arena, views


def assert_rounded(values: dict[str, np.ndarray], found: dict[str, np.ndarray], exact: set[str]) -> None:
    for name, value in values.items():
        expected = value if name in exact else rounded(value.reshape(-1)).reshape(value.shape)
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
        assert name in exact or (found[name] != value).any()


def filled_push(layout: PushLayout, arena: np.ndarray, counts: Sequence[int]) -> PushBuffer:
    push = PushBuffer.empty(layout, counts)
    push.num_examples, push.learning_rates[:], push.mask[:] = 17, [0.1, 1.0, 1 / 3], 1
    push.mask[1] = 0
    push.gradients[:] = arena[: push.gradients.size]
    if counts:
        ids = [np.sort(RNG.choice(100, n, replace=False)) for n in counts]
        rows = [RNG.normal(size=(n, 3)).astype(t.dtype) for n, t in zip(counts, TABLES, strict=True)]
        push.write_rows([(some, values, slice(None)) for some, values in zip(ids, rows, strict=True)])
    return push


@pytest.mark.parametrize(("num_values", "num_bytes"), [(70_000, 140_000), (3, 6), (0, 0)])
def test_a_body_has_two_bytes_for_a_number_and_no_others(num_values: int, num_bytes: int) -> None:
    variables = [VariableSpec("w", (num_values,), "float32", 0)] * bool(num_values)
    (layout,) = place(ModelSpec(tuple(variables), (RULES[0].config(),)), 1)
    push_layout = PushLayout.of(layout, 1, ())
    role, ps = (WireCodec(BOTH, layout, push_layout) for _ in range(2))
    push = PushBuffer.empty(push_layout, ())
    push.num_examples = 17
    head = len(push.body) - 4 * num_values
    body = role.encode_push(push)
    assert (role.arena_nbytes(np.zeros(4 * num_values, np.uint8)), len(body) - head) == (num_bytes, num_bytes)
    assert ps.decode_push(bytearray(body)).num_examples == 17


@pytest.mark.parametrize("counts", [(), (5, 4, 0), (0, 0, 0), (3, 0, 2), (60, 7, 1)])
def test_a_push_arrives_with_its_gradients_rounded_and_all_else_to_the_bit(counts: Sequence[int]) -> None:
    tables = TABLES if counts else ()
    role, ps, layout = codecs_of(tables)
    for _ in range(2):  # the second one in used memory
        arena, values = arena_of()
        push = filled_push(layout, arena, counts)
        body = role.encode_push(push)
        arrived = ps.decode_push(bytearray(body))
        assert arrived.num_examples == 17
        assert arrived.learning_rates.tolist() == push.learning_rates.tolist()
        assert arrived.mask.tolist() == push.mask.tolist()
        trained = {name for name in values if name not in ("frozen", "ids")}
        views = piece_views(place(ModelSpec(VARIABLES, tuple(r.config() for r in RULES)), 1)[0], arrived.gradients)
        found = dict(zip(values, views, strict=False))
        exact = {"double", "count", "mean"}
        assert_rounded({name: values[name] for name in trained}, found, exact)
        for table, (ids, rows), (arrived_ids, arrived_rows) in zip(tables, push.rows(), arrived.rows(), strict=True):
            assert arrived_ids.tolist() == ids.tolist()
            expected = rounded(rows.reshape(-1)).reshape(rows.shape) if table.name == "items" else rows
            np.testing.assert_array_equal(arrived_rows, expected)
        kept = arrived.copy()
        assert [ids.tolist() for ids, _ in kept.rows()] == [ids.tolist() for ids, _ in push.rows()]


def test_the_parameters_arrive_rounded_where_a_gradient_trains_them() -> None:
    role, ps, _ = codecs_of(())
    arena, values = arena_of()
    received = np.zeros_like(arena)
    room = role.arena_room(received)
    body = ps.encode_arena(arena)
    assert len(room) == len(body) < 0.51 * arena.size
    room[:] = body
    role.decode_arena(room, received)
    (layout,) = place(ModelSpec(VARIABLES, tuple(rule.config() for rule in RULES)), 1)
    found = dict(zip((p.variable for p in layout.pieces), piece_views(layout, received), strict=True))
    assert_rounded(values, found, {"double", "count", "mean", "frozen", "ids"})


def test_rows_arrive_rounded_where_a_gradient_trains_them() -> None:
    role, ps, layout = codecs_of(TABLES)
    for counts in ([4, 3, 2], [40, 0, 1]):
        body = np.zeros(layout.rows.values_nbytes(counts), np.uint8)
        for view in layout.rows.values(body, counts):
            view[...] = RNG.normal(size=view.shape)
        items, doubles, fixed = layout.rows.values(body, counts)
        encoded = ps.encode_rows(body.data, counts)
        assert len(encoded) == -(-6 * counts[0] // 8) * 8 + 24 * counts[1] + -(-12 * counts[2] // 8) * 8
        found = role.decode_rows(encoded, counts)
        np.testing.assert_array_equal(found[0], rounded(items.reshape(-1)).reshape(items.shape))
        np.testing.assert_array_equal(found[1], doubles)
        np.testing.assert_array_equal(found[2], fixed)


def test_a_body_in_the_other_format_is_refused() -> None:
    arena, _ = arena_of()
    role, ps, layout = codecs_of(())
    exact_role, exact_ps, _ = codecs_of((), EXACT)
    push = filled_push(layout, arena, ())
    with pytest.raises(ProtocolError, match="expected a push of"):
        ps.decode_push(bytearray(exact_role.encode_push(push)))
    with pytest.raises(ProtocolError, match="expected a push of"):
        PushBuffer(layout, bytearray(role.encode_push(push)))
    for sender, receiver in ((ps, exact_role), (exact_ps, role)):
        with pytest.raises(ProtocolError, match="bytes of parameters"):
            receiver.decode_arena(sender.encode_arena(arena), arena.copy())


def test_float32_is_not_copied() -> None:
    arena, _ = arena_of()
    role, ps, layout = codecs_of((), EXACT)
    push = filled_push(layout, arena, ())
    assert role.encode_push(push) is push.body
    assert ps.encode_arena(arena).obj is arena
    assert role.arena_room(arena).obj is arena


def test_memory_is_used_again() -> None:
    arena, _ = arena_of()
    role, ps, layout = codecs_of(())
    push = filled_push(layout, arena, ())
    assert ps.decode_push(role.encode_push(push)) is ps.decode_push(role.encode_push(push))
    for encode in (lambda: role.encode_push(push), lambda: ps.encode_arena(arena)):
        assert np.shares_memory(np.frombuffer(encode(), np.uint8), np.frombuffer(encode(), np.uint8))


def test_an_unknown_format_is_refused_with_all_faults() -> None:
    with pytest.raises(UsageError, match="gradients should be float32 or bfloat16, got 'float16'") as caught:
        WireFormat("float16", None)  # type: ignore[arg-type]
    assert len(caught.value.faults) == 2
