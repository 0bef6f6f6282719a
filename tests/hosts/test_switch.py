"""The switch in user space delays, drops and loses what it should; so a scene on it is about such a network."""

from __future__ import annotations

import pytest

from tests.hosts.figures import secs_of_rounds
from tests.hosts.rig import Rig
from tests.hosts.switch import UNSEEN_BYTES, Direction, Link

FRAME = bytes(1000 - UNSEEN_BYTES)
"""Takes a second at 8,000 bit/s."""
ROUND_BYTES = 1_000_000

pytestmark = pytest.mark.piece(number=11)


def test_a_frame_waits_for_those_before_it_and_then_travels() -> None:
    cable = Direction(Link(bits_per_sec=8000, delay_secs=10), 0)
    cable.send(FRAME, 100.0)
    cable.send(FRAME, 100.0)
    assert [len(list(cable.arrived(now))) for now in (110.9, 111.1, 111.9, 112.1)] == [0, 1, 0, 1]


def test_a_frame_is_dropped_where_the_queue_is_full() -> None:
    cable = Direction(Link(bits_per_sec=8000, queue_bytes=2000), 0)
    for _ in range(9):
        cable.send(FRAME, 100.0)
    assert len(list(cable.arrived(200.0))) == 3  # one that leaves, and two that wait
    cable.send(FRAME, 200.0)
    assert len(list(cable.arrived(202.0))) == 1


def test_some_frames_are_lost_and_with_one_seed_the_same() -> None:
    def arrived() -> list[bytes]:
        cable = Direction(Link(loss=0.25), 7)
        for number in range(1000):
            cable.send(bytes([number % 256]), float(number))
        return list(cable.arrived(2000.0))

    assert 700 < len(arrived()) < 800
    assert arrived() == arrived()


@pytest.mark.parametrize("rig", [Link(delay_secs=0.02)], indirect=True)
def test_a_round_of_two_questions_takes_four_delays(rig: Rig) -> None:
    assert min(secs_of_rounds(rig, 1000)) >= 4 * 0.02


@pytest.mark.parametrize("rig", [Link(bits_per_sec=1e8)], indirect=True)
def test_bytes_take_the_time_that_the_rate_gives_them(rig: Rig) -> None:
    assert min(secs_of_rounds(rig, ROUND_BYTES)) >= 2 * ROUND_BYTES * 8 / 1e8
