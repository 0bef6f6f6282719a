"""A client of a shard waits in slices, looks up between them, and comes back; told by a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from psflow.ps_runtime.client import shard_client as module
from psflow.ps_runtime.client.shard_client import (
    CONNECT_SECS,
    RECONNECT_SECS,
    RETRY_SECS,
    SLICE_SECS,
    Identity,
    ShardClient,
    ShardClients,
    never_stop,
)
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import BrokenPeerError, ClosedError, RefusedError, StoppedError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.specs.wire_format import WireFormat
from psflow.ps_runtime.transport.base import Connection

IDENTITY = Identity("job", "token", 7, "worker-1", Purpose.TRAIN, 2, 3)
NOW = 1000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def monotonic(self) -> float:
        return self.now

    def sleep(self, secs: float) -> None:
        self.now += secs

    @property
    def elapsed(self) -> float:
        return self.now - NOW


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "Deadline", partial(Deadline, clock=clock.monotonic))
    return clock


class Line(Connection):
    """Answers each request after so many seconds, or with an error."""

    peer = "ps-7 at nowhere"
    transport = "tcp"

    def __init__(
        self,
        clock: Clock,
        answer: Callable[[Message], Message | BaseException],
        delay_secs: float = 0.0,
        handshake_secs: float = 0.0,
    ) -> None:
        self._clock = clock
        self._answer = answer
        self._delay_secs = delay_secs
        self.sent: list[Message] = []
        self.is_closed = False
        self._due = 0.0
        self._is_shaken_at = clock.now + handshake_secs

    def send(self, message: Message) -> None:
        assert self._clock.now >= self._is_shaken_at, "nothing is said before the handshake"
        self.sent.append(message)
        self._due = self._clock.now + self._delay_secs

    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:
        wait_secs = self._due - self._clock.now
        if wait_secs > timeout_secs:
            self._clock.now += timeout_secs
            raise WaitTimeoutError(self.peer, "reply", timeout_secs)
        self._clock.now += max(wait_secs, 0.0)
        answer = self._answer(self.sent[-1])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def shake_hands(self, timeout_secs: float) -> None:
        if self._clock.now + timeout_secs < self._is_shaken_at:
            self._clock.now += timeout_secs
            raise WaitTimeoutError(self.peer, "complete the TLS handshake", timeout_secs)
        self._clock.now = max(self._clock.now, self._is_shaken_at)

    def share(self, timeout_secs: float) -> None:
        pass

    def outbox(self, nbytes: int) -> None:
        return None

    def keep(self) -> bool:
        return False

    def statistics(self) -> dict[str, int | str]:
        return {}

    def close(self) -> None:
        self.is_closed = True


def welcome(message: Message) -> Message:
    return Message(Kind.DONE, sequence=41 if message.kind is Kind.HELLO else message.sequence)


def slow_after_hello(clock: Clock, delay_secs: float) -> Line:
    line = Line(clock, welcome)
    send = line.send

    def slow_send(message: Message) -> None:
        line._delay_secs = 0.0 if message.kind is Kind.HELLO else delay_secs
        send(message)

    line.send = slow_send  # type: ignore[method-assign]
    return line


def opened(line: Line, check: Callable[[], None] = never_stop, **options: Any) -> ShardClient:
    shard = ShardClient(lambda timeout_secs: line, IDENTITY, check, **options)
    shard.open(5.0)
    return shard


class Check:
    """Counts, and raises at the n-th call."""

    def __init__(self, raises_at: int | None = None) -> None:
        self.count = 0
        self._raises_at = raises_at

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._raises_at:
            raise StoppedError("worker-1", "it was told to")


def test_hello_says_who_speaks_and_learns_what_the_ps_remembers(clock):
    line = Line(clock, welcome)
    shard = opened(line)
    (hello,) = line.sent
    assert (hello.kind, hello.replica, hello.incarnation, hello.digest) == (Kind.HELLO, 2, 3, 7)
    facts = {"job_id": "job", "token": "token", "name": "worker-1", "purpose": "train"}
    assert hello.json() == facts | {"wire": {"gradients": "float32", "parameters": "float32"}}
    assert (shard.sequence, shard.num_reconnects) == (41, 0)


def test_no_secret_is_in_the_text_of_an_identity():
    assert "token" not in repr(IDENTITY)


def test_every_request_is_signed(clock):
    line = Line(clock, welcome)
    opened(line).request(Message(Kind.PULL), "the parameters", 5.0)
    assert (line.sent[1].replica, line.sent[1].incarnation, line.sent[1].digest) == (2, 3, 7)


def test_a_wait_ends_in_time_and_says_what_for_and_for_whom(clock):
    shard = opened(slow_after_hello(clock, 60.0))
    with pytest.raises(WaitTimeoutError, match=r"^ps-7 at nowhere did not grant the next ticket within 7 s$"):
        shard.request(Message(Kind.NEXT), "grant the next ticket", 7.0)
    assert clock.elapsed == pytest.approx(7.0)


def test_a_short_wait_is_no_longer_than_asked(clock):
    shard = opened(slow_after_hello(clock, 60.0))
    with pytest.raises(WaitTimeoutError):
        shard.request(Message(Kind.WATCH), "news", 0.1)
    assert clock.elapsed == pytest.approx(0.1)


def test_a_role_that_is_told_to_end_does_so_within_two_slices_of_a_wait(clock):
    check = Check(raises_at=1)
    shard = opened(slow_after_hello(clock, 60.0), check)
    with pytest.raises(StoppedError, match="worker-1 was stopped: it was told to"):
        shard.request(Message(Kind.NEXT), "grant the next ticket", 50.0)
    assert clock.elapsed <= 2 * SLICE_SECS


def test_a_role_looks_up_also_where_no_wait_is_long(clock):
    check = Check()
    shard = opened(slow_after_hello(clock, 0.001), check)
    for _ in range(1000):
        shard.request(Message(Kind.PULL), "the parameters", 5.0)
    assert check.count == pytest.approx(clock.elapsed / SLICE_SECS, abs=1)


@pytest.mark.parametrize("part", ["delay_secs", "handshake_secs"])
def test_a_ps_may_take_its_time_to_let_a_role_in(clock, part):
    check = Check()
    waited: list[float] = []

    def dial(timeout_secs: float) -> Connection:
        waited.append(timeout_secs)
        return Line(clock, welcome, **{part: 300.0})  # it restores a large model

    ShardClient(dial, IDENTITY, check).open(600.0)
    assert clock.elapsed == pytest.approx(300.0)
    assert check.count >= 1000
    assert waited == [CONNECT_SECS]


def test_a_ps_that_never_lets_a_role_in_is_named(clock):
    line = Line(clock, welcome, delay_secs=300.0)
    with pytest.raises(WaitTimeoutError, match=r"^ps-7 at nowhere did not accept worker-1 within 20 s$"):
        ShardClient(lambda timeout_secs: line, IDENTITY, never_stop).open(20.0)
    assert line.is_closed


def test_a_refused_role_closes_its_connection(clock):
    line = Line(clock, lambda message: RefusedError("ps-7", "model", "another model"))
    with pytest.raises(RefusedError, match="another model"):
        opened(line)
    assert line.is_closed


# broken connections


def lines(*made: Line | BaseException) -> Callable[[float], Connection]:
    left = list(made)

    def dial(timeout_secs: float) -> Connection:
        line = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(line, BaseException):
            raise line
        return line

    return dial


def broken(clock: Clock) -> Line:
    return Line(clock, lambda m: welcome(m) if m.kind is Kind.HELLO else BrokenPeerError("ps-7", "the line went dead"))


def breaks_at_hello(clock: Clock, delay_secs: float = 0.0) -> Line:
    return Line(clock, lambda message: BrokenPeerError("ps-7", "the line went dead"), delay_secs)


def test_a_ps_that_is_away_at_first_is_found(clock):
    check = Check()
    away, restoring = BrokenPeerError("ps-7", "connection refused"), breaks_at_hello(clock, delay_secs=300.0)
    shard = ShardClient(lines(restoring, away, breaks_at_hello(clock), Line(clock, welcome)), IDENTITY, check)
    shard.open(600.0)
    assert restoring.is_closed
    assert (shard.sequence, shard.num_reconnects) == (41, 0)
    assert clock.elapsed == pytest.approx(300.0 + 3 * RETRY_SECS)


@pytest.mark.parametrize(
    ("timeout_secs", "reconnect_secs", "given_up_after_secs"),
    [(600.0, RECONNECT_SECS, RECONNECT_SECS), (5.0, RECONNECT_SECS, 5.0), (600.0, 0.0, 0.0)],
)
def test_a_ps_that_is_never_found_is_given_up(clock, timeout_secs, reconnect_secs, given_up_after_secs):
    shard = ShardClient(lines(BrokenPeerError("ps-7", "nobody")), IDENTITY, never_stop, reconnect_secs)
    with pytest.raises(BrokenPeerError, match="no connection to ps-7: nobody"):
        shard.open(timeout_secs)
    assert clock.elapsed == pytest.approx(given_up_after_secs)


def test_a_role_that_is_told_to_end_does_not_look_for_its_first_ps(clock):
    with pytest.raises(StoppedError):
        ShardClient(lines(BrokenPeerError("ps-7", "nobody")), IDENTITY, Check(raises_at=2)).open(600.0)
    assert clock.elapsed <= RETRY_SECS


def test_a_request_is_said_again_by_another_connection(clock):
    first, second = broken(clock), Line(clock, welcome)
    shard = ShardClient(lines(first, second), IDENTITY, never_stop)
    shard.open(5.0)
    assert shard.request(Message(Kind.PUSH, sequence=42), "grant the next ticket", 5.0).sequence == 42
    assert first.is_closed
    assert [m.kind for m in second.sent] == [Kind.HELLO, Kind.PUSH]
    assert shard.num_reconnects == 1


@pytest.mark.parametrize(("transports", "gradients"), [(("tcp", "unix"), "bfloat16"), (("unix", "tcp"), "float32")])
def test_a_request_is_said_again_in_the_format_in_which_it_was_made(clock, transports, gradients):
    first, second = broken(clock), Line(clock, welcome)
    first.transport, second.transport = transports
    shard = ShardClient(lines(first, second), replace(IDENTITY, wire=WireFormat("bfloat16")), never_stop)
    shard.open(5.0)
    shard.request(Message(Kind.PUSH, sequence=42), "grant the next ticket", 5.0)
    hellos = [m.json()["wire"] for line in (first, second) for m in line.sent if m.kind is Kind.HELLO]
    assert hellos == [{"gradients": gradients, "parameters": "float32"}] * 2
    assert shard.wire.gradients == gradients


def test_a_ps_that_is_away_for_a_moment_is_found_again(clock):
    away = BrokenPeerError("ps-7", "connection refused")
    shard = ShardClient(lines(broken(clock), away, away, Line(clock, welcome)), IDENTITY, never_stop)
    shard.open(5.0)
    assert shard.request(Message(Kind.PULL), "the parameters", 5.0).kind is Kind.DONE


def test_a_ps_that_stays_away_is_given_up_and_the_first_error_told(clock):
    check = Check()
    shard = ShardClient(lines(broken(clock), BrokenPeerError("ps-7", "connection refused")), IDENTITY, check)
    shard.open(5.0)
    with pytest.raises(BrokenPeerError, match="no connection to ps-7: the line went dead"):
        shard.request(Message(Kind.PULL), "the parameters", 5.0)
    assert RECONNECT_SECS <= clock.elapsed <= RECONNECT_SECS + 2 * RETRY_SECS
    assert check.count >= RECONNECT_SECS / RETRY_SECS


def test_a_role_that_is_told_to_end_does_not_look_for_a_ps(clock):
    shard = ShardClient(
        lines(broken(clock), BrokenPeerError("ps-7", "connection refused")), IDENTITY, Check(raises_at=3)
    )
    shard.open(5.0)
    with pytest.raises(StoppedError):
        shard.request(Message(Kind.PULL), "the parameters", 5.0)
    assert clock.elapsed <= 3 * RETRY_SECS


def test_a_client_with_no_time_to_reconnect_tries_once(clock):
    shard = ShardClient(lines(broken(clock), BrokenPeerError("ps-7", "connection refused")), IDENTITY, never_stop, 0.0)
    shard.open(5.0)
    with pytest.raises(BrokenPeerError, match="the line went dead"):
        shard.request(Message(Kind.WATCH), "news", 5.0)
    assert clock.elapsed == 0.0


def test_a_life_that_is_over_does_not_come_back(clock):
    refused = Line(
        clock,
        lambda message: RefusedError("ps-7", "incarnation", "incarnation 3 of worker-0 has ended; expected 4 or later"),
    )
    shard = ShardClient(lines(broken(clock), refused), IDENTITY, never_stop)
    shard.open(5.0)
    with pytest.raises(RefusedError, match="incarnation 3 of worker-0 has ended; expected 4 or later"):
        shard.request(Message(Kind.PULL), "the parameters", 5.0)


# the end


@pytest.mark.parametrize("error", [BrokenPeerError("ps-7", "gone"), RefusedError("ps-7", "x", "y")])
def test_last_words_need_no_listener(clock, error):
    shard = opened(Line(clock, lambda m: welcome(m) if m.kind is Kind.HELLO else error))
    shard.say_last(Message(Kind.LEAVE), 5.0)
    assert clock.elapsed == 0.0


def test_last_words_wait_for_an_answer_but_not_for_ever(clock):
    opened(slow_after_hello(clock, 60.0)).say_last(Message(Kind.LEAVE), 5.0)
    assert clock.elapsed == pytest.approx(5.0)


def test_a_closed_link_says_so(clock):
    line = Line(clock, welcome)
    shard = opened(line)
    shard.close()
    shard.close()
    assert line.is_closed
    with pytest.raises(ClosedError, match="the connection of worker-1 is closed"):
        shard.send(Message(Kind.PULL))


def test_links_that_cannot_all_be_opened_are_all_closed(clock):
    good = Line(clock, welcome)

    def away(timeout_secs: float) -> Connection:
        raise BrokenPeerError("ps-1", "connection refused")

    with pytest.raises(BrokenPeerError, match="ps-1"), ShardClients([lambda _: good, away], IDENTITY, never_stop, 5.0):
        pass
    assert good.is_closed


def test_one_request_goes_to_every_ps_before_any_answer_is_awaited(clock):
    first, second = slow_after_hello(clock, 3.0), slow_after_hello(clock, 3.0)
    with ShardClients([lambda _: first, lambda _: second], IDENTITY, never_stop, 5.0) as shards:
        shards.request_all(Message(Kind.SNAPSHOT), "to copy a snapshot", 5.0)
        assert clock.elapsed == pytest.approx(3.0)
        assert shards.transport == "tcp"
        wire = {"gradients": "float32", "parameters": "float32"}
        assert shards.statistics() == {"shards": [{"transport": "tcp", "wire": wire, "reconnects": 0}] * 2}


# a ps without room


def full(clock: Clock, code: str = "full") -> Line:
    return Line(clock, lambda message: RefusedError("ps-7", code, "this ps has 4 connections, its maximum"))


def test_a_ps_that_is_full_for_a_moment_is_asked_again(clock):
    check = Check()
    first, second = full(clock), full(clock, "late")
    shard = ShardClient(lines(first, second, Line(clock, welcome)), IDENTITY, check)
    shard.open(5.0)
    assert (first.is_closed, second.is_closed, shard.num_reconnects) == (True, True, 0)
    assert check.count >= 2


def test_who_comes_back_to_a_full_ps_asks_again(clock):
    shard = ShardClient(lines(broken(clock), full(clock), Line(clock, welcome)), IDENTITY, never_stop)
    shard.open(5.0)
    assert shard.request(Message(Kind.PULL), "the parameters", 5.0).kind is Kind.DONE


def test_a_ps_that_stays_full_is_told_in_time(clock):
    shard = ShardClient(lines(full(clock)), IDENTITY, never_stop)
    with pytest.raises(RefusedError, match="this ps has 4 connections, its maximum"):
        shard.open(5.0)
    assert 5.0 <= clock.elapsed <= 5.0 + SLICE_SECS
