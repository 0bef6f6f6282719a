"""The phases of a job and their events, when a snapshot is due, and what every shard receives with it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from psflow.ps_runtime.protocol.job_state import Entry, Snapshot
from psflow.ps_runtime.server.instructions import Phase, Refusal
from psflow.ps_runtime.server.snapshot_protocol import TRANSITIONS, SnapshotEvent, SnapshotProtocol

STEP = 4
CUT = Snapshot(STEP, {}, {}, 0)
DOCS = Path(__file__).parents[3] / "docs" / "protocol.md"

# "same" is an event that changes nothing, "-" one that is refused
TABLE = """
.                     RESTORE OPEN          REQUEST_SNAPSHOT           TICKETS_USED AWAIT_SNAPSHOT
OPENING               same    TRAINING      OPENING_SNAPSHOT_REQUESTED -            same
OPENING_SNAPSHOT_REQUESTED same    SNAPSHOT_REQUESTED same                  -            same
TRAINING              -       same          SNAPSHOT_REQUESTED         SNAPSHOT_DUE      same
SNAPSHOT_REQUESTED         -       same          same                  SNAPSHOT_DUE      same
SNAPSHOT_DUE               -       same          same                  -            same
SNAPSHOT_ANNOUNCED         -       same          same                  -            SNAPSHOT_DUE
SNAPSHOT_COPIED            -       same          same                  -            SNAPSHOT_DUE
FINAL_SNAPSHOT_ANNOUNCED   -       same          same                  -            SNAPSHOT_DUE
FINAL_SNAPSHOT_COPIED      -       same          same                  -            SNAPSHOT_DUE
DRAINED               -       same          same                  -            SNAPSHOT_DUE
FINISHED              -       same          same                  -            -

.                     ANNOUNCE      ANNOUNCE_FINAL      SNAPSHOT         RESUME   FINISH
OPENING               -             -                   -                -        -
OPENING_SNAPSHOT_REQUESTED -             -                   -                -        -
TRAINING              -             -                   -                -        -
SNAPSHOT_REQUESTED         -             -                   -                -        -
SNAPSHOT_DUE               SNAPSHOT_ANNOUNCED FINAL_SNAPSHOT_ANNOUNCED -                -        -
SNAPSHOT_ANNOUNCED         -             -                   SNAPSHOT_COPIED       TRAINING -
SNAPSHOT_COPIED            -             -                   same             TRAINING -
FINAL_SNAPSHOT_ANNOUNCED   -             -                   FINAL_SNAPSHOT_COPIED DRAINED  -
FINAL_SNAPSHOT_COPIED      -             -                   same             DRAINED  -
DRAINED               -             -                   -                -        FINISHED
FINISHED              -             -                   -                -        same
"""

WAYS = {
    Phase.OPENING: "",
    Phase.OPENING_SNAPSHOT_REQUESTED: "REQUEST_SNAPSHOT",
    Phase.TRAINING: "OPEN",
    Phase.SNAPSHOT_REQUESTED: "OPEN REQUEST_SNAPSHOT",
    Phase.SNAPSHOT_DUE: "OPEN TICKETS_USED",
    Phase.SNAPSHOT_ANNOUNCED: "OPEN TICKETS_USED ANNOUNCE",
    Phase.SNAPSHOT_COPIED: "OPEN TICKETS_USED ANNOUNCE SNAPSHOT",
    Phase.FINAL_SNAPSHOT_ANNOUNCED: "OPEN TICKETS_USED ANNOUNCE_FINAL",
    Phase.FINAL_SNAPSHOT_COPIED: "OPEN TICKETS_USED ANNOUNCE_FINAL SNAPSHOT",
    Phase.DRAINED: "OPEN TICKETS_USED ANNOUNCE_FINAL RESUME",
    Phase.FINISHED: "OPEN TICKETS_USED ANNOUNCE_FINAL RESUME FINISH",
}
"""The events that lead to each phase, all at step 0."""

REASONS = {
    "RESTORE": "a restore is possible only at the start",
    "TICKETS_USED": "no snapshot can be due",
    "AWAIT_SNAPSHOT": "no further snapshot comes",
    "ANNOUNCE": "no snapshot can be announced",
    "ANNOUNCE_FINAL": "no final snapshot can be announced",
    "SNAPSHOT": "no snapshot of step 4 is due",
    "RESUME": "no snapshot of step 4 is under way",
    "FINISH": "the job cannot finish yet",
}

CELLS = []
for _block in TABLE.strip().split("\n\n"):
    (_, *_events), *_rows = (line.split() for line in _block.splitlines())
    CELLS += [(Phase[row[0]], event, cell) for row in _rows for event, cell in zip(_events, row[1:], strict=True)]


def say(snapshots, event, step=STEP, global_step=STEP, snapshot=CUT):
    match SnapshotEvent[event]:
        case SnapshotEvent.RESTORE:
            snapshots.restore(step)
        case SnapshotEvent.OPEN:
            snapshots.open()
        case SnapshotEvent.REQUEST_SNAPSHOT:
            snapshots.request_snapshot()
        case SnapshotEvent.TICKETS_USED:
            snapshots.tickets_used(step, is_done=True)
        case SnapshotEvent.AWAIT_SNAPSHOT:
            snapshots.await_snapshot()
        case SnapshotEvent.ANNOUNCE:
            snapshots.announce(snapshot, is_final=False)
        case SnapshotEvent.ANNOUNCE_FINAL:
            snapshots.announce(snapshot, is_final=True)
        case SnapshotEvent.SNAPSHOT:
            snapshots.snapshot(step, global_step)
        case SnapshotEvent.RESUME:
            snapshots.resume(step, global_step)
        case SnapshotEvent.FINISH:
            snapshots.finish()


def cuts_in(phase, max_steps=None, save_steps=None):
    snapshots = SnapshotProtocol(max_steps, save_steps)
    for event in WAYS[phase].split():
        say(snapshots, event, 0, 0)
    assert snapshots.phase is phase
    return snapshots


# the table


def test_the_table_has_every_phase_and_every_event():
    assert {(phase, event) for phase, event, _ in CELLS} == {(p, e.name) for p in Phase for e in SnapshotEvent}
    assert TRANSITIONS.keys() == set(Phase)


@pytest.mark.parametrize(("phase", "event", "cell"), CELLS, ids=lambda value: getattr(value, "name", value))
def test_an_event_leads_where_the_table_says_or_is_refused(phase, event, cell):
    snapshots = cuts_in(phase)
    if cell != "-":
        say(snapshots, event)
        assert snapshots.phase is (phase if cell == "same" else Phase[cell])
        return
    before = repr(vars(snapshots))
    with pytest.raises(Refusal, match=REASONS[event]) as refused:
        say(snapshots, event)
    assert refused.value.code == "phase"
    assert str(phase) in refused.value.reason
    assert repr(vars(snapshots)) == before


def test_the_protocol_page_shows_the_table():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \| (.+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE)
    rows = [row for row in rows if row[0] in Phase.__members__]
    assert {name: meaning for name, meaning, *_ in rows} == {phase.name: str(phase) for phase in Phase}
    for name, _, leads_to, changes_nothing in rows:
        shown = dict(re.findall(r"([A-Z_]+): `([A-Z_]+)`", leads_to))
        shown |= dict.fromkeys(re.findall(r"[A-Z_]+", changes_nothing), name)
        assert shown == {event.name: phase.name for event, phase in TRANSITIONS[Phase[name]].items()}, name


# when a snapshot is due


@pytest.mark.parametrize(
    ("phase", "save_steps", "step", "is_done", "is_due"),
    [
        (Phase.TRAINING, 4, 3, False, False),
        (Phase.TRAINING, 4, 4, False, True),
        (Phase.TRAINING, None, 4, False, False),
        (Phase.TRAINING, None, 3, True, True),
        (Phase.SNAPSHOT_REQUESTED, None, 3, False, True),
    ],
)
def test_a_cut_is_due_at_multiples_when_it_is_requested_and_at_the_end(phase, save_steps, step, is_done, is_due):
    snapshots = cuts_in(phase, save_steps=save_steps)
    snapshots.tickets_used(step, is_done=is_done)
    assert snapshots.phase is (Phase.SNAPSHOT_DUE if is_due else phase)


@pytest.mark.parametrize(
    ("max_steps", "save_steps", "step", "last"),
    [
        (None, None, 0, math.inf),
        (7, None, 0, 7),
        (None, 3, 0, 3),
        (7, 3, 2, 3),
        (7, 3, 3, 6),
        (7, 3, 6, 7),
        (9, 3, 8, 9),
    ],
)
def test_no_ticket_is_given_beyond_the_next_cut_or_the_end(max_steps, save_steps, step, last):
    restored = SnapshotProtocol(max_steps, save_steps)
    restored.restore(step)
    assert restored.last_ticket_step == last
    resumed = cuts_in(Phase.SNAPSHOT_ANNOUNCED, max_steps, save_steps)
    resumed.resume(step, step)
    assert resumed.last_ticket_step == last


# the step of a snapshot


@pytest.mark.parametrize("phase", [Phase.SNAPSHOT_ANNOUNCED, Phase.SNAPSHOT_COPIED, Phase.FINAL_SNAPSHOT_ANNOUNCED])
@pytest.mark.parametrize("event", ["SNAPSHOT", "RESUME"])
@pytest.mark.parametrize("step", [STEP - 1, STEP + 1])
def test_what_concerns_a_cut_of_another_step_is_refused(phase, event, step):
    snapshots = cuts_in(phase)
    before = repr(vars(snapshots))
    with pytest.raises(Refusal, match=f"no snapshot of step {step} is .*; the job is at step 4, waiting for the saver"):
        say(snapshots, event, step)
    assert repr(vars(snapshots)) == before


@pytest.mark.parametrize("way", ["", "REQUEST_SNAPSHOT", "TICKETS_USED"])
def test_a_resume_that_is_repeated_changes_nothing(way):
    snapshots = cuts_in(Phase.SNAPSHOT_COPIED)
    assert snapshots.resume(STEP, STEP)
    for event in way.split():
        say(snapshots, event)
    before = repr(vars(snapshots))
    assert not snapshots.resume(STEP, STEP + 3)
    assert repr(vars(snapshots)) == before


def test_a_resume_ends_a_second_cut_of_the_same_step():
    snapshots = cuts_in(Phase.SNAPSHOT_ANNOUNCED)
    for event in ["RESUME", "REQUEST_SNAPSHOT", "TICKETS_USED", "ANNOUNCE"]:
        say(snapshots, event)
    assert snapshots.resume(STEP, STEP)
    assert snapshots.phase is Phase.TRAINING


def test_the_final_cut_is_resumed_from_once():
    snapshots = cuts_in(Phase.FINAL_SNAPSHOT_COPIED)
    assert snapshots.resume(STEP, STEP)
    assert not snapshots.resume(STEP, STEP)
    assert snapshots.phase is Phase.DRAINED


# the log


@pytest.mark.parametrize(
    ("way", "num_heard"),
    [
        ("ANNOUNCE SNAPSHOT", 0),
        ("ANNOUNCE SNAPSHOT RESUME", 5),
        ("ANNOUNCE_FINAL SNAPSHOT RESUME", 5),
        ("ANNOUNCE RESUME", 0),
        ("ANNOUNCE SNAPSHOT AWAIT_SNAPSHOT ANNOUNCE RESUME", 0),
    ],
)
def test_every_shard_has_heard_the_log_of_a_cut_that_it_copied(way, num_heard):
    snapshots = cuts_in(Phase.SNAPSHOT_DUE)
    for event in way.split():
        say(snapshots, event, snapshot=Snapshot(STEP, {}, {}, 0, log_start=2, log=[Entry.close(1)] * 3))
    assert snapshots.num_heard == num_heard


# what a new life of the chief goes on with


@pytest.mark.parametrize(
    ("way", "is_copied"),
    [
        ("ANNOUNCE SNAPSHOT", False),
        ("ANNOUNCE SNAPSHOT RESUME", True),
        ("ANNOUNCE_FINAL SNAPSHOT RESUME", True),
        ("ANNOUNCE_FINAL SNAPSHOT RESUME AWAIT_SNAPSHOT ANNOUNCE_FINAL", True),
        ("ANNOUNCE RESUME", False),
        ("ANNOUNCE SNAPSHOT AWAIT_SNAPSHOT ANNOUNCE RESUME", False),
    ],
)
def test_a_cut_that_every_shard_has_copied_is_kept_until_it_is_committed(way, is_copied):
    snapshots = cuts_in(Phase.SNAPSHOT_DUE)
    for event in way.split():
        say(snapshots, event)
    assert snapshots.uncommitted is (CUT if is_copied else None)
    snapshots.committed(STEP - 1)
    assert snapshots.uncommitted is (CUT if is_copied else None)
    snapshots.committed(STEP)
    assert snapshots.uncommitted is None
    snapshots.committed(STEP)
    assert snapshots.uncommitted is None
