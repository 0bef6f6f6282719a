"""What a shard does with pushes and decisions, as plain arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.optimizers.averages import MovingAverage
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent, Momentum
from psflow.ps_runtime.protocol.job_state import Decision, Entry
from psflow.ps_runtime.protocol.payloads import PushBuffer
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.shard import BLOCK_SIZE, Shard
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec
from psflow.ps_runtime.transport.arena import HEADER_BYTES, REACHED, VERSION, Arena, header_words

SIZES = {"a": 2, "b": 3, "c": 2, "d": 1}
SGD = GradientDescent(learning_rate=1.0)
CHIEF, WORKER = (0, 5), (1, 7)
"""Lives of two replicas."""
ITEMS = TableSpec("items", 6, 2, "float32", 0, {"name": "zeros"}, seed=1)


class Readers:
    """Whoever reads the arena while it changes: notes which bytes are changed next, as its header says too."""

    def __init__(self, block: Any) -> None:
        self.words = header_words(block)
        self.parts: list[tuple[int, int]] = []

    def begin(self, counter: int) -> None:
        pass

    def await_past(self, stop: int) -> None:
        self.parts.append((self.words[REACHED], stop))


def read_arena(num_bytes: int) -> tuple[Arena, Readers]:
    """Return an arena, and those who read it."""
    block = np.zeros(HEADER_BYTES + num_bytes, np.uint8)
    arena = Arena(block, None)
    arena.readers = readers = Readers(block)
    return arena, readers


def make(rule: Any = SGD, tables: Sequence[TableSpec] = (), sizes: dict[str, int] = SIZES, **options: Any) -> Shard:
    """Return a shard of float32 variables, all zero."""
    model = ModelSpec(tuple(VariableSpec(n, (size,), "float32", 0) for n, size in sizes.items()), (rule.config(),))
    (layout,) = place(model, 1)
    shard = Shard(layout, [rule], tables, **options)
    shard.initialize(bytes(layout.nbytes))
    return shard


def push_of(shard: Shard, rate: float = 1.0, rows: Any = (), **gradients: float) -> PushBuffer:
    """Return a push of a gradient for each variable that is named, all of its elements the same."""
    push = PushBuffer.empty(shard.push_layout, [len(rows)] * len(shard.tables))
    push.learning_rates[:] = rate
    for index, view in enumerate(piece_views(shard.layout, push.gradients)):
        name = shard.layout.pieces[index].variable
        if name in gradients:
            view[...] = gradients[name]
            push.mask[index] = 1
    if shard.tables:
        push.write_rows([(np.array(rows, np.int64), np.ones((len(rows), ITEMS.dim), np.float32), slice(None))])
    return push


def values(shard: Shard, arrays: Any = None) -> dict[str, list[float]]:
    arena = (arrays or shard.arrays).arena
    views = piece_views(shard.layout, arena)
    return {piece.variable: view.tolist() for piece, view in zip(shard.layout.pieces, views, strict=True)}


def first(shard: Shard) -> dict[str, float]:
    """Return the first element of each variable."""
    return {name: value[0] for name, value in values(shard).items()}


def decided(decision: Decision, key: tuple[int, int], sequence: int) -> Entry:
    return Entry(decision, *key, sequence)


def applied(key: tuple[int, int], sequence: int) -> Entry:
    return decided(Decision.APPLY, key, sequence)


def test_a_push_changes_nothing_before_it_is_decided_on() -> None:
    shard = make()
    assert shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))
    assert (shard.version, first(shard)["a"]) == (0, 0.0)
    shard.settle(0, [applied(CHIEF, 1)])
    assert (shard.version, first(shard)) == (1, {"a": -1.0, "b": 0.0, "c": 0.0, "d": 0.0})
    assert shard.statistics()["held_pushes"] == 0


def test_a_push_is_one_update_at_its_own_learning_rate() -> None:
    shard = make()
    shard.hold(CHIEF, 1, 0, push_of(shard, rate=0.5, a=1.0, b=2.0, c=3.0, d=4.0))
    shard.settle(0, [applied(CHIEF, 1)])
    assert values(shard) == {"a": [-0.5] * 2, "b": [-1.0] * 3, "c": [-1.5] * 2, "d": [-2.0]}


def test_a_variable_without_a_gradient_is_left_alone_and_its_slots_too() -> None:
    shard = make(Momentum(learning_rate=1.0, momentum=0.5))
    for sequence, gradients in enumerate([{"a": 1.0, "c": 1.0}, {"c": 1.0}, {"a": 1.0}], start=1):
        shard.hold(CHIEF, sequence, 0, push_of(shard, **gradients))
        shard.settle(sequence - 1, [applied(CHIEF, sequence)])
    assert first(shard) == {"a": -2.5, "b": 0.0, "c": -2.5, "d": 0.0}


@pytest.mark.parametrize(
    ("named", "parts"),
    [
        ("ab", [(0, 20)]),
        ("abd", [(0, 20), (28, 32)]),
        ("bd", [(8, 20), (28, 32)]),
        ("bcd", [(8, 32)]),
        ("d", [(28, 32)]),
        ("", []),
    ],
)
def test_neighbours_with_a_gradient_are_updated_in_one_run(named: str, parts: list[tuple[int, int]]) -> None:
    arena, readers = read_arena(32)
    shard = make(arena=arena)
    readers.parts.clear()
    shard.hold(CHIEF, 1, 0, push_of(shard, **dict.fromkeys(named, 1.0)))
    shard.settle(0, [applied(CHIEF, 1)])
    assert readers.parts == parts
    assert first(shard) == {name: -1.0 if name in named else 0.0 for name in SIZES}


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_large_variable_is_updated_a_block_after_the_other(names: str) -> None:
    size = 2 * BLOCK_SIZE + 3
    arena, readers = read_arena(4 * (size + 1))
    shard = make(sizes={"a": size, "b": 1}, arena=arena)
    readers.parts.clear()
    shard.hold(CHIEF, 1, 0, push_of(shard, **dict.fromkeys(names, 1.0)))
    shard.settle(0, [applied(CHIEF, 1)])
    stops = [4 * BLOCK_SIZE, 8 * BLOCK_SIZE, 4 * (size + len(names) - 1)]
    assert readers.parts == [*itertools.pairwise([0, *stops])]
    assert values(shard)["a"] == [-1.0] * size


@pytest.mark.parametrize(
    ("is_aware", "version", "step_size"), [(True, 3, 8), (True, 2, 8), (True, 1, 4), (True, 0, 8 / 3), (False, 0, 8)]
)
def test_the_learning_rate_is_divided_by_the_staleness_where_that_is_asked_for(
    is_aware: bool, version: int, step_size: float
) -> None:
    shard = make(staleness_aware=is_aware)
    for sequence in (1, 2, 3):
        shard.hold(WORKER, sequence, sequence - 1, push_of(shard, b=1.0))
        shard.settle(sequence - 1, [applied(WORKER, sequence)])
    shard.hold(CHIEF, 1, version, push_of(shard, rate=8.0, a=1.0))
    shard.settle(3, [applied(CHIEF, 1)])
    assert first(shard)["a"] == pytest.approx(-step_size)


def test_staleness_does_not_scale_a_moving_average() -> None:
    model = ModelSpec(
        (VariableSpec("w", (2,), "float32", 0), VariableSpec("mean", (2,), "float32", 1)),
        (SGD.config(), MovingAverage(0.5).config()),
    )
    shard = Shard(place(model, 1)[0], [SGD, MovingAverage(0.5)], (), staleness_aware=True)
    shard.initialize(bytes(place(model, 1)[0].nbytes))
    for sequence in (1, 2):
        push = push_of(shard, w=8.0, mean=8.0)
        push.learning_rates[:] = [1.0, 0.5]
        shard.hold(CHIEF, sequence, 0, push)
        shard.settle(sequence - 1, [applied(CHIEF, sequence)])
    push = push_of(shard, w=8.0, mean=8.0)
    push.learning_rates[:] = [1.0, 0.5]
    shard.hold(WORKER, 1, 0, push)
    shard.settle(2, [applied(WORKER, 1)])
    assert first(shard) == {"w": -8.0 - 8.0 - 4.0, "mean": 4.0 + 2.0 + 1.0}


def test_a_repeated_push_is_told_from_a_new_one() -> None:
    shard = make()
    assert not shard.hold(CHIEF, 0, 0, push_of(shard, a=100.0)), "the first push has number 1"
    assert shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))
    assert not shard.hold(CHIEF, 1, 0, push_of(shard, a=100.0))
    shard.settle(0, [applied(CHIEF, 1)])
    assert not shard.hold(CHIEF, 1, 0, push_of(shard, a=100.0))
    assert shard.hold(CHIEF, 2, 1, push_of(shard, a=1.0))
    assert shard.hold((CHIEF[0], CHIEF[1] + 1), 1, 1, push_of(shard, a=1.0)), "another life counts from 1"
    assert (first(shard)["a"], shard.torn_pushes) == (-1.0, 0)


def test_a_push_that_is_overtaken_by_the_next_of_its_life_was_torn() -> None:
    shard = make()
    shard.hold(CHIEF, 1, 0, push_of(shard, a=100.0))
    assert shard.hold(CHIEF, 2, 0, push_of(shard, a=1.0))
    shard.settle(0, [applied(CHIEF, 2)])
    assert (first(shard)["a"], shard.torn_pushes) == (-1.0, 1)


def test_what_is_held_longer_than_an_event_is_kept_in_buffers_that_are_used_again() -> None:
    shard = make()
    borrowed = push_of(shard, a=1.0)
    for sequence, gradient in enumerate([1.0, 10.0, 100.0], start=1):
        borrowed.bytes[:] = push_of(shard, a=gradient).bytes
        shard.hold(CHIEF, sequence, sequence - 1, borrowed)
        shard.keep(CHIEF)
        borrowed.bytes[:] = 255  # the transport's memory, which it fills with the next message
        shard.settle(sequence - 1, [applied(CHIEF, sequence)])
    assert first(shard) == {"a": -111.0, "b": 0.0, "c": 0.0, "d": 0.0}


def test_pushes_kept_at_the_same_time_have_buffers_of_their_own() -> None:
    shard = make()
    shard.hold(CHIEF, 1, 0, push_of(shard, a=5.0))
    shard.keep(CHIEF)
    shard.settle(0, [decided(Decision.DROP, CHIEF, 1)])
    for key, gradient in ((CHIEF, 1.0), (WORKER, 10.0)):
        shard.hold(key, 2, 0, push_of(shard, a=gradient))
        shard.keep(key)
        shard.keep(key)
    shard.settle(1, [applied(CHIEF, 2), applied(WORKER, 2)])
    assert first(shard)["a"] == -11.0


def test_a_round_is_one_update_by_the_mean_where_a_missing_gradient_counts_as_zero() -> None:
    shard = make()
    shard.hold(CHIEF, 1, 0, push_of(shard, rate=0.5, a=1.0, b=4.0))
    shard.hold(WORKER, 1, 0, push_of(shard, rate=0.5, a=3.0, d=8.0))
    entries = [decided(Decision.SUM, CHIEF, 1), decided(Decision.SUM, WORKER, 1)]
    shard.settle(0, entries)
    assert (shard.version, first(shard)["a"]) == (0, 0.0)
    shard.settle(2, [Entry.close(2)])
    assert (shard.version, first(shard)) == (1, {"a": -1.0, "b": -1.0, "c": 0.0, "d": -2.0})


@pytest.mark.parametrize("num_gradients", [0, 1, 3])
def test_a_round_that_is_closed_with_another_count_is_refused(num_gradients: int) -> None:
    shard = make()
    for key in (CHIEF, WORKER):
        shard.hold(key, 1, 0, push_of(shard, a=1.0))
    shard.settle(0, [decided(Decision.SUM, CHIEF, 1), decided(Decision.SUM, WORKER, 1)])
    with pytest.raises(Refusal, match=rf"a round of {num_gradients} gradients is closed, but 2 are summed here"):
        shard.settle(2, [Entry.close(num_gradients)])
    assert (shard.version, shard.num_settled, first(shard)["a"]) == (0, 2, 0.0)


def test_a_round_of_nothing_is_refused() -> None:
    with pytest.raises(Refusal, match="a round of 0 gradients is closed, but 0 are summed here"):
        make().settle(0, [Entry.close(0)])


def test_entries_that_were_carried_out_before_are_skipped() -> None:
    shard = make()
    entries = []
    for sequence in (1, 2, 3):
        shard.hold(CHIEF, sequence, 0, push_of(shard, a=1.0))
        entries.append(applied(CHIEF, sequence))
        shard.settle(max(0, sequence - 2), entries[max(0, sequence - 2) :])
    assert (shard.num_settled, shard.version, first(shard)["a"]) == (3, 3, -3.0)


def test_a_gap_in_the_log_is_refused() -> None:
    shard = make()
    shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))
    with pytest.raises(Refusal, match="expected log entries starting at 0, got 1"):
        shard.settle(1, [applied(CHIEF, 1)])
    assert first(shard)["a"] == 0.0


@pytest.mark.parametrize("held", [None, 1, 3])
def test_a_decision_about_a_push_that_never_came_is_refused_unless_it_is_to_forget_it(held: int | None) -> None:
    shard = make()
    if held is not None:
        shard.hold(WORKER, held, 0, push_of(shard, a=1.0))
    with pytest.raises(Refusal, match="push 2 of worker-0 was decided, but never reached this shard"):
        shard.settle(0, [applied(WORKER, 2)])
    assert (shard.num_settled, first(shard)["a"]) == (0, 0.0)
    shard.settle(0, [decided(Decision.DROP, WORKER, 2)])
    assert (shard.num_settled, shard.statistics()["held_pushes"]) == (1, int(held is not None))


def test_a_dropped_push_is_forgotten() -> None:
    shard = make()
    shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))
    shard.settle(0, [decided(Decision.DROP, CHIEF, 1)])
    assert (shard.version, first(shard)["a"], shard.torn_pushes) == (0, 0.0, 0)
    assert not shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))


def test_a_snapshot_holds_what_was_decided_and_tears_the_rest() -> None:
    shard = make(Momentum(learning_rate=1.0, momentum=0.5))
    shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))
    shard.hold(WORKER, 1, 0, push_of(shard, a=100.0))
    assert shard.snapshot_step is None
    shard.snapshot(0, [applied(CHIEF, 1)], step=1)
    assert (shard.snapshot_step, shard.torn_pushes, shard.statistics()["held_pushes"]) == (1, 1, 0)
    shard.hold(CHIEF, 2, 1, push_of(shard, a=1.0))
    shard.settle(1, [applied(CHIEF, 2)])
    assert first(shard)["a"] == -2.5
    assert values(shard, shard.snapshot_arrays)["a"] == [-1.0, -1.0]
    assert [slot.tolist()[:3] for slot in shard.snapshot_arrays.slots[0].values()] == [[1.0, 1.0, 0.0]]


def test_a_slot_has_an_element_for_each_parameter() -> None:
    shard = make(Momentum(learning_rate=1.0, momentum=0.5))
    for arrays in (shard.arrays, shard.snapshot_arrays):
        assert [slot.shape for slots in arrays.slots for slot in slots.values()] == [(sum(SIZES.values()),)]


def test_a_restored_shard_goes_on_where_the_snapshot_was() -> None:
    shard = make(Momentum(learning_rate=1.0, momentum=0.5))
    shard.hold(CHIEF, 1, 0, push_of(shard, a=1.0))
    shard.snapshot(0, [applied(CHIEF, 1)], step=1)
    other = make(Momentum(learning_rate=1.0, momentum=0.5))
    shard.snapshot_arrays.copy_into(other.snapshot_arrays, lambda pairs: [np.copyto(a, b) for a, b in pairs])
    other.is_ready = False
    other.restore(41)
    assert (other.version, other.snapshot_step, other.is_ready) == (41, 41, True)
    other.hold(CHIEF, 2, 41, push_of(other, a=1.0))
    other.settle(0, [applied(CHIEF, 2)])
    assert (other.version, first(other)["a"]) == (42, -2.5)


def test_each_change_of_the_arena_covers_it_and_names_its_version() -> None:
    arena, readers = read_arena(32)
    shard = make(arena=arena)
    assert (shard.is_ready, readers.words[VERSION], readers.parts) == (True, 0, [(0, 32)])
    shard.restore(3)
    assert (readers.words[VERSION], readers.parts) == (3, [(0, 32), (0, 32)])


def test_a_shard_without_anything_skips_the_log() -> None:
    (_, empty) = place(ModelSpec((VariableSpec("a", (1,), "float32", 0),), (SGD.config(),)), 2)
    shard = Shard(empty, [SGD], num_shards=2)
    shard.settle(7, [Entry.close(3)])
    assert (shard.holds_something, shard.num_settled, shard.version) == (False, 0, 0)


def test_rows_of_a_table_are_pushed_and_pulled() -> None:
    shard = make(tables=[ITEMS])
    for sequence, ids in enumerate([[1, 4], [4]], start=1):
        shard.hold(CHIEF, sequence, 0, push_of(shard, rate=0.5, rows=ids))
        shard.keep(CHIEF)
        shard.settle(sequence - 1, [applied(CHIEF, sequence)])
    ids = [np.array([4, 0, 1], np.int64)]
    for room in (lambda nbytes: None, lambda nbytes: memoryview(bytearray(nbytes))):
        rows = np.frombuffer(shard.pull_rows(ids, room), np.float32).reshape(3, 2)
        assert rows.tolist() == [[-1.0, -1.0], [0.0, 0.0], [-0.5, -0.5]]
    assert shard.statistics()["created_rows"] == {"items": 2}


def test_pulls_of_any_size_follow_each_other() -> None:
    shard = make(tables=[ITEMS])
    for num_rows in (1, 6, 2):
        body = shard.pull_rows([np.arange(num_rows)], lambda nbytes: None)
        assert len(body) == num_rows * ITEMS.row_nbytes


def test_rows_of_a_round_are_averaged_over_all_its_pushes() -> None:
    shard = make(tables=[ITEMS])
    shard.hold(CHIEF, 1, 0, push_of(shard, rows=[1, 2]))
    shard.hold(WORKER, 1, 0, push_of(shard, rows=[2]))
    entries = [decided(Decision.SUM, CHIEF, 1), decided(Decision.SUM, WORKER, 1), Entry.close(2)]
    shard.settle(0, entries)
    body = shard.pull_rows([np.array([1, 2])], lambda nbytes: None)
    assert np.frombuffer(body, np.float32).tolist() == [-0.5, -0.5, -1.0, -1.0]


@pytest.mark.parametrize("wrong", [-1, 6])
def test_rows_of_no_table_are_refused(wrong: int) -> None:
    shard = make(tables=[ITEMS])
    shard.check_rows(push_of(shard, rows=[0, 5]))
    with pytest.raises(InputError, match="items"):
        shard.check_rows(push_of(shard, rows=[wrong]))


def test_rows_that_no_optimizer_moves_are_refused() -> None:
    shard = make(tables=[TableSpec("items", 6, 2, "float32", None, {"name": "zeros"}, seed=1)])
    shard.check_rows(push_of(shard))
    with pytest.raises(InputError, match="no optimizer trains table 'items', but a push contains rows of it"):
        shard.check_rows(push_of(shard, rows=[1]))
