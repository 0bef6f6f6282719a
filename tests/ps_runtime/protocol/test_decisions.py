"""What a decision about a push means, and how it travels."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.job_state import Decision, Entry, EntryLog, JobState, Snapshot, decode_entries

ENTRIES = [Entry(Decision.APPLY, 0, 5, 1), Entry(Decision.SUM, 2**32 - 1, 7, 2**64 - 1), Entry.close(1)]


@pytest.fixture
def log() -> EntryLog:
    """A log whose first entry has place 7."""
    log = EntryLog(7)
    log.extend(ENTRIES)
    return log


@pytest.mark.parametrize(
    ("decision", "makes_update"),
    [(Decision.APPLY, True), (Decision.SUM, False), (Decision.CLOSE, True), (Decision.DROP, False)],
)
def test_an_applied_push_and_a_closed_round_make_an_update(decision: Decision, makes_update: bool) -> None:
    assert Entry(decision, 0, 5, 1).makes_update is makes_update


@pytest.mark.parametrize(
    ("known", "start", "entries"),
    [(0, 7, ENTRIES), (7, 7, ENTRIES), (8, 8, ENTRIES[1:]), (9, 9, ENTRIES[2:]), (10, 10, []), (11, 10, [])],
)
def test_a_shard_reads_of_a_log_what_it_does_not_know(
    log: EntryLog, known: int, start: int, entries: list[Entry]
) -> None:
    assert decode_entries(log.encode(), known) == (start, entries)


@pytest.mark.parametrize(
    ("known", "start", "entries"),
    [(0, 7, ENTRIES), (6, 7, ENTRIES), (7, 7, ENTRIES), (9, 9, ENTRIES[2:]), (10, 10, [])],
)
def test_a_log_forgets_what_every_shard_knows_and_grows_on(
    log: EntryLog, known: int, start: int, entries: list[Entry]
) -> None:
    log.forget(known)
    assert (log.start, log.entries, log.end) == (start, entries, 10)
    log.extend([Entry.close(2)])
    assert log.end == 11
    assert decode_entries(log.encode()) == (start, [*entries, Entry.close(2)])


def test_a_body_of_nothing_tells_of_no_decision() -> None:
    assert decode_entries(b"") == (0, [])
    assert decode_entries(EntryLog(7).encode()) == (7, [])


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[:7], lambda data: data + b"\5" * 20])
def test_what_is_no_log_breaks_the_protocol(log: EntryLog, change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ProtocolError, match="not entries of a log"):
        decode_entries(change(log.encode()))


@pytest.mark.parametrize("snapshot", [None, Snapshot(20, {(0, 1): 4}, {}, 80, log=[])])
def test_the_state_of_a_job_survives_its_message(snapshot: Snapshot | None) -> None:
    state = JobState(is_open=True, is_finished=False, uncommitted=snapshot)
    assert JobState.from_facts(json.loads(json.dumps(state.to_facts()))) == state
