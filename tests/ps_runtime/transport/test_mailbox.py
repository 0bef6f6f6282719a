"""Two trays, two halves each, and their bounds."""

from __future__ import annotations

import os

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import IN_MAILBOX, SECOND_HALF
from psflow.ps_runtime.transport.inbox import Mailbox, Tray

FIRST, SECOND = IN_MAILBOX, IN_MAILBOX | SECOND_HALF


@pytest.fixture
def tray() -> Tray:
    return Tray(np.zeros(100, np.uint8), np.zeros(100, np.uint8))


def test_bodies_take_turns_so_that_one_stays_while_the_next_is_made(tray):
    bodies = [bytes([n]) * 50 for n in range(3)]
    flags = [tray.put(memoryview(body)) for body in bodies[:2]]
    assert flags == [FIRST, SECOND]
    assert [bytes(tray.get(flag, 50)) for flag in flags] == bodies[:2]
    assert tray.put(memoryview(bodies[2])) == FIRST
    assert [bytes(tray.get(flag, 50)) for flag in flags] == [bodies[2], bodies[1]]


@pytest.mark.parametrize("turn", [0, 1])
def test_a_body_made_in_the_tray_is_not_copied(tray, turn):
    tray.turn = turn
    room = tray.room(80)
    assert tray.room(80) is room
    room[:] = b"r" * 80
    array = np.frombuffer(room, np.uint8)
    for body in (room, array.data):  # another view of the same memory is as good
        tray.turn = 0
        assert tray.put(body) == (SECOND if turn else FIRST)
        assert tray.turn == 1 - turn
    assert bytes(tray.get(FIRST, 80)) == (bytes(80) if turn else b"r" * 80)


def test_a_body_that_does_not_fit_goes_another_way(tray):
    assert tray.room(101) is None
    assert tray.put(memoryview(bytes(101))) == 0
    assert tray.turn == 0


def test_a_body_larger_than_the_tray_is_a_lie(tray):
    assert len(tray.get(SECOND, 100)) == 100
    for nbytes in (101, 2**63):
        with pytest.raises(ProtocolError, match=f"announced {nbytes} bytes in a mailbox of 100"):
            tray.get(FIRST, nbytes)


@pytest.mark.parametrize(("request_bytes", "reply_bytes"), [(5000, 1), (1, 5000), (0, 0), (1 << 34, 1 << 34)])
def test_both_ends_see_one_mailbox_and_its_parts_do_not_overlap(request_bytes, reply_bytes):
    ours = Mailbox.create(request_bytes, reply_bytes)
    theirs = Mailbox.attach(os.dup(ours.memory.fd), request_bytes, reply_bytes)
    parts = []
    for tray, other in ((ours.requests, theirs.requests), (ours.replies, theirs.replies)):
        for turn, flags in enumerate((FIRST, SECOND)):
            tray.turn = turn
            parts.append((tray.room(tray.nbytes), other.get(flags, other.nbytes)))
    for number, (part, _) in enumerate(parts):
        part[:1] = part[-1:] = bytes([number])[: len(part)]
    theirs.mark[0] = -1
    assert ours.mark[0] == -1
    for number, (_, seen) in enumerate(parts):
        assert set(bytes(seen[:1]) + bytes(seen[-1:])) <= {number}
    ours.close()
    theirs.close()


def test_a_mailbox_has_the_size_that_was_told():
    mailbox = Mailbox.create(5000, 5000)
    with pytest.raises(ValueError, match="expected"):
        Mailbox.attach(os.dup(mailbox.memory.fd), 5000, 50_000)
    mailbox.close()


def test_bodies_outlive_a_mailbox_that_is_closed():
    mailbox = Mailbox.create(5000, 0)
    room = mailbox.requests.room(5000)
    mailbox.close()
    room[:] = b"x" * 5000
    assert mailbox.requests.room(1) is None
    assert mailbox.mark[0] == 0
