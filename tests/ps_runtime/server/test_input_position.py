from __future__ import annotations

import json

import pytest

from psflow.ps_runtime.server.input_position import InputPosition
from psflow.ps_runtime.specs.input import InputSpec, RecordRange


def drain(position: InputPosition, replica: int = 0) -> list[tuple[int, int, int]]:
    """Use up all that `replica` can have."""
    used = []
    while (records := position.take(replica)) is not None:
        position.commit(records)
        used.append((records.epoch, records.start, records.stop))
    return used


def again(position: InputPosition) -> InputPosition:
    return InputPosition.restored(position.spec, json.loads(json.dumps(position.to_facts())))


def test_one_replica_reads_each_epoch_in_order_with_a_small_last_batch():
    position = InputPosition(InputSpec(5, batch_size=2, num_epochs=2, split_batches=2))
    assert drain(position) == [(0, 0, 2), (0, 2, 4), (0, 4, 5), (1, 0, 2), (1, 2, 4), (1, 4, 5)]
    assert (position.epochs_completed, position.num_used, position.num_repeats) == (2, 10, 0)
    assert position.is_exhausted


def test_each_replica_has_a_split_of_its_own():
    position = InputPosition(InputSpec(8, batch_size=1, split_batches=4))
    first, second = position.take(0), position.take(1)
    assert (first, second) == (RecordRange(0, 0, 1), RecordRange(0, 4, 5))
    assert position.take(2) is None
    assert not position.is_exhausted


def test_what_a_lost_replica_had_is_granted_first():
    position = InputPosition(InputSpec(12, batch_size=2, split_batches=2))
    lost = position.take(0)
    position.give_back(0, lost)
    assert drain(position, 1) == [(0, 0, 2), (0, 2, 4), (0, 4, 6), (0, 6, 8), (0, 8, 10), (0, 10, 12)]


def test_records_in_a_returned_split_are_not_missed_before_anything_of_their_epoch_is_used():
    position = InputPosition(InputSpec(2, batch_size=2))
    position.give_back(0, position.take(0))
    assert position.num_misses == 0


def test_records_that_nobody_has_are_missed():
    position = InputPosition(InputSpec(4, batch_size=2, split_batches=1))
    position.take(0)
    position.commit(position.take(1))
    assert position.num_misses == 2


def test_what_is_given_back_in_an_epoch_that_is_read_now_is_not_missed():
    position = InputPosition(InputSpec(4, batch_size=2, num_epochs=2, split_batches=1))
    for _ in range(2):
        position.commit(position.take(0))
    position.give_back(0, position.take(0))
    assert position.num_misses == 0


def test_nothing_is_missed_of_a_stream_whose_end_is_not_known():
    position = InputPosition(InputSpec(None))
    position.take(0)
    assert position.num_misses == 0


def test_a_batch_that_is_put_back_is_the_next_of_its_replica_and_its_split_stays_whole():
    position = InputPosition(InputSpec(12, batch_size=2, split_batches=3))
    position.put_back(0, position.take(0))
    assert position.take(1) == RecordRange(0, 6, 8)
    assert [position.take(0) for _ in range(4)] == [(0, 0, 2), (0, 2, 4), (0, 4, 6), None]


def test_a_batch_that_is_put_back_when_its_replica_reads_another_split_brings_nothing_else_back():
    position = InputPosition(InputSpec(8, batch_size=2, split_batches=2))
    granted = [position.take(0) for _ in range(3)]
    position.put_back(0, granted[1])
    assert position.take(1) == RecordRange(0, 6, 8)
    assert [position.take(0) for _ in range(2)] == [(0, 2, 4), None]


@pytest.mark.parametrize("num_batches", [0, 1, 5, 8, 9, 16, 17])
@pytest.mark.parametrize("known_after", [0, 1, 3, 7, 8])
def test_a_stream_is_used_to_its_end_and_no_further(num_batches, known_after):
    position = InputPosition(InputSpec(None, split_batches=8))
    used = []
    while (records := position.take(0)) is not None:
        if len(used) == min(known_after, num_batches):
            position.end_stream(num_batches)
        if records.start >= num_batches:
            position.give_back(0, None)
            continue
        position.commit(records)
        used.append(records.start)
    assert used == list(range(num_batches))
    assert position.is_exhausted
    assert position.num_misses == 0
    assert position.epochs_completed == min(num_batches, 1)


@pytest.mark.parametrize("end", [0, 3, 5, 8, 9, 11])
def test_the_end_of_a_stream_cuts_off_open_and_returned_splits(end):
    position = InputPosition(InputSpec(None, split_batches=4))
    tickets = [position.take(replica) for replica in range(3)]
    position.give_back(1, tickets[1])
    position.end_stream(end)
    position.end_stream(end)
    for ticket in (tickets[0], tickets[2]):
        if ticket.start < end:
            position.commit(ticket)
    for replica in (0, 2):
        drain(position, replica)
    assert (position.num_used, position.num_misses, position.is_exhausted) == (end, 0, True)


def test_a_batch_of_a_stream_may_be_asked_for_once_it_is_handed_out_and_until_it_is_used():
    position = InputPosition(InputSpec(None, split_batches=2))
    assert [position.was_handed_out(i) for i in range(3)] == [True, False, False]
    position.commit(position.take(0))
    assert [position.was_handed_out(i) for i in range(3)] == [True, True, False]
    assert [position.was_used(i) for i in range(2)] == [True, False]


def test_a_restored_position_goes_on_where_it_was():
    position = InputPosition(InputSpec(7, batch_size=2, num_epochs=2, split_batches=2))
    position.commit(position.take(0))
    position.take(1)
    expected = [(0, 2, 4), (0, 4, 6), (0, 6, 7), (1, 0, 2), (1, 2, 4), (1, 4, 6), (1, 6, 7)]
    position.give_back(1, RecordRange(0, 4, 6))
    restored = again(position)
    assert drain(restored) == expected
    assert (restored.epochs_completed, restored.num_used, restored.num_misses) == (2, 14, 0)


def test_a_restored_stream_remembers_its_end():
    position = InputPosition(InputSpec(None, split_batches=4))
    position.commit(position.take(0))
    position.end_stream(3)
    restored = again(position)
    assert drain(restored) == [(0, 1, 2), (0, 2, 3)]
    assert (restored.epochs_completed, restored.is_exhausted) == (1, True)


def test_an_input_of_another_size_is_read_from_its_start():
    position = InputPosition(InputSpec(6, batch_size=2))
    position.commit(position.take(0))
    for spec in (InputSpec(4, batch_size=2), InputSpec(None)):
        fresh = InputPosition.restored(spec, position.to_facts())
        assert fresh.take(0) == RecordRange(0, 0, spec.batch_size)
        assert fresh.num_used == 0


def test_an_exhausted_data_set_begins_again_with_new_epochs():
    position = InputPosition(InputSpec(3, batch_size=2, num_epochs=2))
    drain(position)
    position.restart()
    assert drain(again(position)) == [(2, 0, 2), (2, 2, 3), (3, 0, 2), (3, 2, 3)]


@pytest.mark.parametrize("num_taken", range(6))
@pytest.mark.parametrize("gives_back", [True, False])
def test_a_data_set_that_was_left_in_the_middle_begins_again_with_new_epochs(num_taken, gives_back):
    position = InputPosition(InputSpec(3, batch_size=1, num_epochs=2, split_batches=2))
    taken = [position.take(0) for _ in range(num_taken)]
    for records in taken[:-1]:
        position.commit(records)
    if gives_back and taken:
        position.give_back(0, taken[-1])
    position.restart()
    again_read = drain(again(position))
    first = again_read[0][0]
    assert again_read == [(epoch, row, row + 1) for epoch in (first, first + 1) for row in range(3)]
    assert (position.is_exhausted, position.num_misses) == (False, 0)


def test_a_stream_that_was_left_in_the_middle_begins_again_at_its_start():
    position = InputPosition(InputSpec(None))
    position.commit(position.take(0))
    position.restart()
    assert position.take(0).start == 0
    assert not position.was_used(0)


@pytest.mark.parametrize("num_batches", [0, 2])
def test_an_exhausted_stream_begins_again_at_its_start(num_batches):
    position = InputPosition(InputSpec(None))
    position.end_stream(num_batches)
    drain(position)
    position.restart()
    assert position.take(0) == RecordRange(1, 0, 1)
    assert not position.was_used(0)
    position.commit(RecordRange(1, 0, 1))
    assert position.was_used(0)
    position.end_stream(1)
    assert (position.is_exhausted, position.num_misses) == (True, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": "x"},
        {"returned": [[1]]},
        {"returned": 5},
        {"used": []},
        {"used": {"a": [[0, 1]]}},
        {"used": {"0": [[2, 1]]}},
    ],
)
def test_facts_that_are_none_are_refused(change):
    facts = InputPosition(InputSpec(4)).to_facts() | change
    with pytest.raises(ValueError, match="not the facts of an input position"):
        InputPosition.restored(InputSpec(4), facts)


def test_missing_facts_are_refused():
    with pytest.raises(ValueError, match="not the facts of an input position"):
        InputPosition.restored(InputSpec(4), {})
