import selectors
import socket

import pytest

from psflow.ps_runtime.transport import listeners
from psflow.ps_runtime.transport.listeners import SpinningSelector

AWAKE_SECS = 0.5


class CountingSelector(selectors.DefaultSelector):
    """Counts the waits that sleep, and those that only look, which take `look_secs` by its clock."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.look_secs = 0.00001
        self.num_sleeps = self.num_looks = 0
        self.on_look = lambda: None

    def select(self, timeout=None):
        if timeout == 0:
            self.num_looks += 1
            self.now += self.look_secs
            self.on_look()
            return super().select(0)
        self.num_sleeps += 1
        if not (ready := super().select(0)):
            self.now += timeout
        return ready


@pytest.fixture
def selector(monkeypatch):
    with CountingSelector() as selector:
        monkeypatch.setattr(listeners.time, "monotonic", lambda: selector.now)
        yield selector


@pytest.fixture
def ends(selector):
    here, there = socket.socketpair()
    with here, there:
        selector.register(here, selectors.EVENT_READ, "a peer")
        yield here, there


def wait_shortly(waiting_, ends):
    """Wait for a message that is there already."""
    here, there = ends
    there.send(b"x")
    ((key, _),) = waiting_.select(1.0)
    assert key.data == "a peer"
    here.recv(1)


def test_the_first_wait_is_spent_asleep_and_the_one_after_a_short_one_awake(selector, ends):
    waits = SpinningSelector(selector, AWAKE_SECS)
    wait_shortly(waits, ends)
    assert (selector.num_sleeps, selector.num_looks) == (1, 0)
    selector.on_look = lambda: ends[1].send(b"x") if selector.num_looks == 10 else None
    assert waits.select(1.0)
    assert (selector.num_sleeps, selector.num_looks) == (1, 10)


def test_a_wait_is_awake_only_for_so_long_and_ends_in_time(selector, ends):
    waits = SpinningSelector(selector, 0.02)
    wait_shortly(waits, ends)
    assert waits.select(0.1) == []
    assert selector.now == pytest.approx(0.02 + 0.1, abs=2 * selector.look_secs)
    assert selector.num_sleeps == 2
    num_looks = selector.num_looks
    assert num_looks == pytest.approx(0.02 / selector.look_secs, abs=2)
    assert waits.select(0.001) == []
    assert selector.num_looks == num_looks, "the wait before was long, so this one is spent asleep"


def test_without_time_to_be_awake_every_wait_is_spent_asleep(selector, ends):
    waits = SpinningSelector(selector, 0.0)
    wait_shortly(waits, ends)
    wait_shortly(waits, ends)
    assert (selector.num_sleeps, selector.num_looks) == (2, 0)


def test_where_somebody_else_uses_the_core_waits_are_spent_asleep_for_a_while(selector, ends):
    selector.look_secs = 0.003  # the core was away between two looks
    waits = SpinningSelector(selector, AWAKE_SECS)
    wait_shortly(waits, ends)  # asleep
    for pause_secs in (0.01, 0.02, 0.04):
        num_looks = selector.num_looks
        wait_shortly(waits, ends)  # awake, and disturbed
        assert selector.num_looks == num_looks + 1
        selector.now += 0.9 * pause_secs
        wait_shortly(waits, ends)
        assert selector.num_looks == num_looks + 1, "in the pause"
        selector.now += 0.2 * pause_secs
    selector.look_secs = 0.00001
    for num_looks in range(selector.num_looks, selector.num_looks + 5):
        assert selector.num_looks == num_looks, "awake each time: nobody disturbs any more"
        wait_shortly(waits, ends)
