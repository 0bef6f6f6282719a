"""From tickets to updates, told by plain calls."""

from __future__ import annotations

import math

import pytest

from psflow.ps_runtime.protocol.job_state import Decision, Entry
from psflow.ps_runtime.server.instructions import Decided
from psflow.ps_runtime.server.updates import BatchTicket, Updates
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Sync
from psflow.ps_runtime.specs.input import RecordRange

ANY = RecordRange(0, 0, 1)
INCARNATION = 4


def give(updates: Updates, *replicas: int) -> list[BatchTicket]:
    tickets = [BatchTicket(replica, updates.global_step, ANY) for replica in replicas]
    for ticket in tickets:
        updates.give(ticket)
    return tickets


def entry(decision: Decision, replica: int, sequence: int) -> Entry:
    return Entry(decision, replica, INCARNATION, sequence)


def applied(replica: int, sequence: int) -> Entry:
    return entry(Decision.APPLY, replica, sequence)


def summed(replica: int, sequence: int) -> Entry:
    return entry(Decision.SUM, replica, sequence)


def test_a_push_uses_its_ticket_and_becomes_an_update() -> None:
    updates = Updates(Async(), num_replicas=2, num_shards=1)
    first, second = give(updates, 0, 1)
    assert updates.tickets == {first, second}
    updates.take(first, INCARNATION, 1, 0)
    assert (updates.tickets, updates.global_step) == ({second}, 0)
    assert updates.settle() == ([Decided(0, [applied(0, 1)])], [])
    assert (updates.global_step, updates.log.start, updates.log.end) == (1, 1, 1)


def test_nothing_is_decided_twice() -> None:
    updates = Updates(Async(), num_replicas=1, num_shards=1)
    (ticket,) = give(updates, 0)
    updates.take(ticket, INCARNATION, 1, 0)
    updates.settle()
    assert updates.settle() == ([], [])
    assert updates.close() == ([], [])


def test_other_shards_hear_of_decisions_from_the_log() -> None:
    updates = Updates(Async(), num_replicas=1, num_shards=2)
    for sequence in (1, 2):
        (ticket,) = give(updates, 0)
        updates.take(ticket, INCARNATION, sequence, updates.global_step)
        assert updates.settle() == ([Decided(sequence - 1, [applied(0, sequence)])], [])
    assert (updates.log.start, list(updates.log.entries)) == (0, [applied(0, 1), applied(0, 2)])


def test_there_is_room_for_as_many_tickets_as_updates_are_left() -> None:
    updates = Updates(Async(), num_replicas=3, num_shards=1)
    assert updates.has_room(0, math.inf)
    ticket, _ = give(updates, 0, 1)
    assert [updates.has_room(2, end) for end in (2, 3)] == [False, True]
    updates.unused(ticket)
    assert [updates.has_room(2, end) for end in (1, 2)] == [False, True]


@pytest.mark.parametrize(("version", "staleness"), [(0, 2), (1, 1), (2, 0), (9, 0), (-1, 2)])
def test_staleness_counts_the_updates_since_the_pull(version: int, staleness: int) -> None:
    updates = Updates(Async(), num_replicas=2, num_shards=1)
    (late,) = give(updates, 0)
    for sequence in (1, 2):
        (ticket,) = give(updates, 1)
        updates.take(ticket, INCARNATION, sequence, updates.global_step)
        updates.settle()
    updates.take(late, INCARNATION, 1, version)
    updates.settle()
    assert updates.staleness == {0: staleness, 1: 0}


def test_a_push_is_no_staler_than_its_ticket() -> None:
    updates = Updates(Async(), num_replicas=2, num_shards=1)
    (early,) = give(updates, 1)
    updates.take(early, INCARNATION, 1, 0)
    updates.settle()
    (ticket,) = give(updates, 0)  # at step 1
    updates.take(ticket, INCARNATION, 1, 0)
    updates.settle()
    assert updates.staleness[0] == 0


def test_statistics_count_pushes_and_their_staleness() -> None:
    updates = Updates(Async(), num_replicas=3, num_shards=1)
    assert updates.statistics() == {"pushes": 0, "dropped_pushes": 0, "mean_staleness": 0, "max_staleness": 0}
    for ticket in give(updates, 0, 1, 2):
        updates.take(ticket, INCARNATION, 1, 0)
        updates.settle()
    (ticket,) = give(updates, 0)
    updates.take(ticket, INCARNATION, 2, 3)
    updates.settle()
    assert updates.statistics() == {"pushes": 4, "dropped_pushes": 0, "mean_staleness": 0.75, "max_staleness": 2}


def test_pushes_of_one_event_become_updates_one_after_the_other() -> None:
    updates = Updates(Async(), num_replicas=2, num_shards=1)
    for ticket in give(updates, 0, 1):
        updates.take(ticket, INCARNATION, 1, 0)
    assert updates.settle() == ([Decided(0, [applied(0, 1), applied(1, 1)])], [])
    assert (updates.global_step, updates.staleness) == (2, {0: 0, 1: 1})


def test_an_update_of_a_round_voids_the_tickets_that_were_given_for_it() -> None:
    updates = Updates(Sync(replicas_to_aggregate=2), num_replicas=3, num_shards=1)
    first, second, late = give(updates, 0, 1, 2)
    updates.take(first, INCARNATION, 1, 0)
    assert updates.settle() == ([Decided(0, [summed(0, 1)])], [])
    assert (updates.global_step, late.is_void) == (0, False)
    updates.take(second, INCARNATION, 1, 0)
    assert updates.settle() == ([Decided(1, [summed(1, 1), Entry.close(2)])], [late])
    assert (updates.global_step, late.is_void, updates.tickets) == (1, True, set())


def test_a_push_on_a_void_ticket_is_dropped_and_makes_no_update() -> None:
    updates = Updates(Sync(replicas_to_aggregate=1), num_replicas=2, num_shards=1)
    first, late = give(updates, 0, 1)
    updates.take(first, INCARNATION, 1, 0)
    updates.settle()
    updates.take(late, INCARNATION, 1, 0)
    assert updates.settle() == ([Decided(2, [entry(Decision.DROP, 1, 1)])], [])
    assert updates.settle() == ([], [])
    assert updates.global_step == 1
    assert updates.statistics()["dropped_pushes"] == 1
    assert updates.staleness == {0: 0}


def test_what_is_dropped_is_decided_before_what_is_new() -> None:
    updates = Updates(Sync(replicas_to_aggregate=1), num_replicas=2, num_shards=1)
    first, late = give(updates, 0, 1)
    updates.take(first, INCARNATION, 1, 0)
    updates.settle()
    (ticket,) = give(updates, 0)
    updates.take(ticket, INCARNATION, 2, 1)
    updates.take(late, INCARNATION, 1, 0)
    (decided,), void = updates.settle()
    assert decided == Decided(2, [entry(Decision.DROP, 1, 1), summed(0, 2), Entry.close(1)])
    assert void == []


def test_a_void_ticket_that_is_not_used_gives_nothing_back() -> None:
    updates = Updates(Sync(replicas_to_aggregate=1), num_replicas=2, num_shards=1)
    first, late = give(updates, 0, 1)
    updates.take(first, INCARNATION, 1, 0)
    updates.settle()
    give(updates, 1)
    updates.unused(late)
    assert len(updates.tickets) == 1
    assert not updates.has_room(1, math.inf), "its share of the round is given"


def test_a_round_is_closed_with_as_many_gradients_as_came() -> None:
    updates = Updates(Sync(replicas_to_aggregate=3), num_replicas=3, num_shards=1)
    for ticket in give(updates, 0, 1):
        updates.take(ticket, INCARNATION, 1, 0)
    updates.settle()
    assert updates.close() == ([Decided(2, [Entry.close(2)])], [])
    assert (updates.global_step, updates.close()) == (1, ([], []))


def test_fewer_living_replicas_need_fewer_gradients() -> None:
    updates = Updates(Sync(replicas_to_aggregate=2), num_replicas=2, num_shards=1)
    (ticket,) = give(updates, 0)
    updates.take(ticket, INCARNATION, 1, 0)
    updates.settle()
    updates.living(1)
    assert updates.settle() == ([Decided(1, [Entry.close(1)])], [])


def test_a_push_that_would_make_another_one_too_stale_waits() -> None:
    updates = Updates(BoundedStaleness(max_staleness=0), num_replicas=2, num_shards=1)
    assert not updates.holds_push_of(0)
    slow, quick = give(updates, 0, 1)
    updates.take(quick, INCARNATION, 1, 0)
    assert updates.settle() == ([], [])
    assert [updates.holds_push_of(replica) for replica in (0, 1)] == [False, True]
    updates.unused(slow)
    assert updates.settle() == ([Decided(0, [applied(1, 1)])], [])
    assert not updates.holds_push_of(1)
