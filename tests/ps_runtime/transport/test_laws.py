"""The laws of `psflow.ps_runtime.transport.base`, for every transport."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from psflow.ps_runtime.errors import BrokenPeerError, ClosedError, ProtocolError, RefusedError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import HEADER, Kind, Message

SECS = 200.0
BIG = 8 * 1024 * 1024


@pytest.mark.parametrize("size", [0, 1000, 10_000])
def test_header_and_body_arrive_as_they_were_sent(ps, size):
    sent = Message(Kind.STATISTICS, 3, 2, 2**64 - 1, 17, -5, 2**63, 6, b"x" * size)
    reply = ps.connect().request(sent, SECS)
    assert (reply.kind, reply.replica, reply.incarnation, reply.sequence) == (Kind.DONE, 3, 2, 2**64 - 1)
    assert (reply.version, reply.step, reply.digest, reply.flags) == (17, -5, 2**63, 6)
    assert bytes(reply.body) == b"x" * size


def test_an_array_travels_as_its_bytes(ps):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    reply = ps.connect().request(Message(Kind.STATISTICS, body=array.data), SECS)
    np.testing.assert_array_equal(np.frombuffer(reply.body, np.float32), array.ravel())


def test_a_message_may_have_no_body(ps):
    assert len(ps.connect().request(Message(Kind.STATISTICS), SECS, memoryview(bytearray(0))).body) == 0


def test_a_body_of_the_right_length_goes_into_the_buffer_given(ps):
    connection = ps.connect()
    for split in (False, True):
        into = memoryview(bytearray(16))
        if split:
            connection.send(Message(Kind.PULL))
            reply = connection.receive(SECS, into)
        else:
            reply = connection.request(Message(Kind.PULL), SECS, into)
        assert reply.body is into
        assert bytes(into) == b"\1" * 16


def test_a_body_of_another_length_leaves_the_buffer_alone(ps):
    into = memoryview(bytearray(15))
    reply = ps.connect().request(Message(Kind.PULL), SECS, into)
    assert bytes(reply.body) == b"\1" * 16
    assert bytes(into) == bytes(15)


def test_the_body_of_a_reply_stays_until_the_next_reply(ps):
    connection = ps.connect()
    first = connection.request(Message(Kind.STATISTICS, body=b"a" * 10_000), SECS).body
    connection.send(Message(Kind.STATISTICS, body=b"b" * 10_000))
    ps.probe.wait_for(lambda: len(ps.probe.seen) == 2)
    ps.settle()
    assert bytes(first) == b"a" * 10_000
    assert bytes(connection.receive(SECS).body) == b"b" * 10_000


@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_reply_that_was_kept_stays_until_another_is(ps, size):
    connection = ps.connect()

    def ask(letter):
        return connection.request(Message(Kind.STATISTICS, body=letter * size), SECS).body

    kept, letter = ask(b"a"), b"a"
    if not connection.keep():
        return  # so who asked has to copy it
    for number in range(8):
        body = ask(b"%d" % number)
        assert bytes(kept) == letter * size
        assert bytes(body) == b"%d" % number * size
        if number % 3 == 2:
            assert connection.keep()
            kept, letter = body, b"%d" % number


def test_what_shares_memory_and_what_has_a_body_for_each_reply_can_keep_one(ps):
    connection = ps.connect()
    connection.request(Message(Kind.STATISTICS, body=b"a" * 10_000), SECS)
    assert connection.keep() == (ps.kind in ("in-process", "shm"))


@pytest.mark.parametrize("size", [100, 10_000, BIG])
@pytest.mark.parametrize("has_place", [False, True])
def test_a_reply_may_end_with_bytes_of_another_place(ps, size, has_place):
    end = np.arange(size, dtype=np.uint32).view(np.uint8)
    ps.probe.handle = lambda peer, message: [(peer, Message(Kind.GRANT, step=7, body=b"begin", tail=end.data))]
    into = memoryview(bytearray(5 + end.nbytes)) if has_place else None
    connection = ps.connect()
    reply = connection.request(Message(Kind.PUSH), SECS, into)
    assert (reply.kind, reply.step, bytes(reply.body)) == (Kind.GRANT, 7, b"begin" + end.tobytes())
    assert (reply.body is into) == has_place
    assert connection.statistics()["bytes_in"] >= HEADER.size + 5 + end.nbytes


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_body_may_be_made_in_the_room_of_its_request(ps, size):
    def made(peer, message):
        room = message.room(size)
        assert (room is None) == (ps.kind != "shm")
        body = bytearray(size) if room is None else room
        body[:] = bytes(message.body[:1]) * size
        return [(peer, Message(Kind.DONE, body=body))]

    ps.probe.handle = made
    connections = [ps.connect(), ps.connect()]
    for letter in (b"a", b"b", b"c", b"d"):
        for connection in connections:
            connection.send(Message(Kind.PUSH, body=letter))
        assert [bytes(connection.receive(SECS).body) for connection in connections] == [letter * size] * 2


def test_the_body_of_a_request_may_change_once_it_is_sent(ps):
    connection, other = ps.connect(), ps.connect()
    body = bytearray(b"a" * 10_000)
    connection.send(Message(Kind.AWAIT_SNAPSHOT, body=body))
    body[:] = b"b" * 10_000
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    other.request(Message(Kind.COMMITTED), SECS)
    connection.receive(SECS)
    assert ps.probe.seen[0][2] == b"a" * 10_000


# law 1: one request under way


def test_a_second_request_waits_for_the_first_reply(ps):
    connection = ps.connect()
    connection.send(Message(Kind.AWAIT_SNAPSHOT))
    with pytest.raises(ProtocolError, match="this role broke the protocol: it sent a request before it received"):
        connection.send(Message(Kind.PULL))


def test_only_who_asks_gets_an_answer(ps):
    with pytest.raises(ProtocolError, match="waits for a reply but has sent no request"):
        ps.connect().receive(SECS)


# law 2: one event at a time, whole and bounded


def test_many_connections_at_once(ps):
    errors: list[BaseException] = []

    def talk(name: int) -> None:
        try:
            with ps.connect() as connection:
                for turn in range(20):
                    body = bytes([name, turn]) * (1 + 997 * turn)
                    assert bytes(connection.request(Message(Kind.STATISTICS, body=body), SECS).body) == body
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=talk, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECS)
    assert errors == []
    assert len(ps.probe.seen) == 80


def test_a_body_beyond_the_limit_never_reaches_the_handler(ps):
    ps.probe.limit = 100
    connection, other = ps.connect(), ps.connect()
    with pytest.raises(RefusedError, match=r"announced 8388608 bytes as the body of PUSH, at most 100 are allowed"):
        connection.request(Message(Kind.PUSH, body=bytes(BIG)), SECS)
    assert bytes(other.request(Message(Kind.STATISTICS, body=b"y" * 100), SECS).body) == b"y" * 100
    assert [kind for _, kind, _ in ps.probe.seen] == [Kind.STATISTICS]
    assert ps.probe.gone == []


def test_big_bodies_both_ways(ps):
    connection = ps.connect()
    body = np.random.default_rng(1).bytes(BIG)
    for _ in range(2):
        into = memoryview(bytearray(BIG))
        assert connection.request(Message(Kind.STATISTICS, body=body), SECS, into).body is into
        assert into == body


# law 3: held replies


def test_a_held_reply_comes_with_a_later_event_of_another(ps):
    waiting, other = ps.connect(), ps.connect()
    waiting.send(Message(Kind.AWAIT_SNAPSHOT))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    assert other.request(Message(Kind.COMMITTED), SECS).kind is Kind.DONE
    assert waiting.receive(SECS).step == 12


def test_a_waiting_thread_is_woken_by_a_posted_event(ps):
    connection = ps.connect()
    into = memoryview(bytearray(16))
    replies: list[Message] = []
    request = Message(Kind.AWAIT_SNAPSHOT)
    thread = threading.Thread(target=lambda: replies.append(connection.request(request, SECS, into)))
    thread.start()
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    ps.server.post(ps.probe.release)
    thread.join(SECS)
    assert replies[0].body is into
    assert bytes(into) == b"\1" * 16


def test_a_reply_is_still_there_after_a_timeout(ps):
    connection = ps.connect()
    connection.send(Message(Kind.AWAIT_SNAPSHOT))
    with pytest.raises(WaitTimeoutError, match=r"^ps-0.* did not reply within 0.002 s$"):
        connection.receive(0.002, memoryview(bytearray(16)))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    ps.server.post(ps.probe.release)
    assert connection.receive(SECS).kind is Kind.SNAPSHOT_DUE
    assert connection.request(Message(Kind.PULL), SECS).kind is Kind.PARAMETERS


def test_an_event_may_post_another(ps):
    connection = ps.connect()
    connection.send(Message(Kind.AWAIT_SNAPSHOT))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    order: list[str] = []

    def second():
        order.append("second")
        return ps.probe.release()

    def first():
        ps.server.post(second)
        order.append("first")
        return []

    ps.server.post(first)
    assert connection.receive(SECS).kind is Kind.SNAPSHOT_DUE
    assert order == ["first", "second"]


def test_a_held_reply_for_a_peer_that_left_is_dropped(ps):
    leaving, other = ps.connect(), ps.connect()
    leaving.send(Message(Kind.AWAIT_SNAPSHOT))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    leaving.close()
    ps.probe.wait_for(lambda: len(ps.probe.gone) == 1)
    assert other.request(Message(Kind.COMMITTED), SECS).kind is Kind.DONE


# law 4: a reply's body is copied or sent before the next event


def test_a_reply_does_not_change_with_the_arena(ps):
    ps.probe.arena = bytearray(b"\1" * BIG)
    slow, other = ps.connect(), ps.connect()
    slow.send(Message(Kind.PULL))
    ps.probe.wait_for(lambda: len(ps.probe.seen) == 1)
    other.request(Message(Kind.PUSH, body=b"\2"), SECS)
    assert ps.probe.arena[:1] == b"\2"
    assert bytes(slow.receive(SECS).body) == b"\1" * BIG


# law 5: who breaks the protocol is refused, disconnected, and changes nothing


def test_a_refusal_is_an_answer_and_the_connection_goes_on(ps):
    connection = ps.connect()
    with pytest.raises(RefusedError, match=r"ps-0.* refused: worker 7 is no replica") as caught:
        connection.request(Message(Kind.NEXT), SECS)
    assert caught.value.code == "unknown-replica"
    assert connection.request(Message(Kind.PULL), SECS).kind is Kind.PARAMETERS
    assert ps.probe.gone == []


@pytest.mark.parametrize("kind", [Kind.FETCH, Kind.PARAMETERS])
def test_a_peer_that_breaks_the_protocol_is_disconnected(ps, kind):
    connection, other = ps.connect(), ps.connect()
    connection.request(Message(Kind.PULL), SECS)
    with pytest.raises(RefusedError, match=r"FETCH is not for now|PARAMETERS is not a request") as caught:
        connection.request(Message(kind), SECS)
    assert caught.value.code == "protocol"
    with pytest.raises(BrokenPeerError, match="no connection to ps-0"):
        connection.request(Message(Kind.PULL), SECS)
    ps.probe.wait_for(lambda: len(ps.probe.gone) == 1)
    assert other.request(Message(Kind.PULL), SECS).kind is Kind.PARAMETERS
    connection.close()
    assert other.request(Message(Kind.PULL), SECS).kind is Kind.PARAMETERS
    assert len(ps.probe.gone) == 1
    assert ps.server.statistics()["refused"] == 1


# the end of connections and servers


def test_the_handler_hears_once_of_each_peer_that_it_knew(ps):
    silent, known, staying = ps.connect(), ps.connect(), ps.connect()
    known.request(Message(Kind.PULL), SECS)
    staying.send(Message(Kind.AWAIT_SNAPSHOT))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    silent.close()
    known.close()
    known.close()
    assert staying.receive(SECS).kind is Kind.SNAPSHOT_DUE  # due to others when `known` left
    assert ps.probe.gone == [ps.probe.seen[0][0]]


def test_a_closed_connection_says_so(ps):
    connection = ps.connect()
    connection.close()
    connection.close()
    with pytest.raises(ClosedError, match=r"the connection to ps-0.* is closed"):
        connection.send(Message(Kind.PULL))
    with pytest.raises(ClosedError, match="is closed"):
        connection.receive(SECS)


def test_a_closed_server_breaks_its_connections_and_tells_the_handler_nothing(ps):
    connection = ps.connect()
    connection.request(Message(Kind.PULL), SECS)
    connection.send(Message(Kind.AWAIT_SNAPSHOT))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    ps.close()
    ps.server.close()
    for _ in range(2):
        with pytest.raises(BrokenPeerError, match=r"no connection to ps-0.*: it"):
            connection.receive(SECS)
    with pytest.raises(ClosedError, match="the server of a ps is closed"):
        ps.server.post(lambda: [])
    with pytest.raises(BrokenPeerError):
        ps.connect()
    assert ps.probe.gone == []


def test_a_bug_of_the_handler_ends_the_server(ps):
    culprit, waiting = ps.connect(), ps.connect()
    waiting.send(Message(Kind.AWAIT_SNAPSHOT))
    ps.probe.wait_for(lambda: len(ps.probe.held) == 1)
    with pytest.raises((ZeroDivisionError, BrokenPeerError)) as caught:
        culprit.request(Message(Kind.STOP), SECS)
    with pytest.raises(BrokenPeerError):
        waiting.receive(SECS)
    ps.close()
    error = caught.value if ps.kind == "in-process" else ps.error
    assert isinstance(error, ZeroDivisionError)


def test_statistics_count_both_ways(ps):
    connection = ps.connect()
    ps.settle()
    told_before, seen_before = connection.statistics(), ps.server.statistics()
    connection.request(Message(Kind.STATISTICS, body=b"1" * 5000), SECS)
    connection.request(Message(Kind.PULL), SECS)
    ps.settle()
    told, seen = connection.statistics(), ps.server.statistics()
    assert (told["transport"], seen["connections"], seen["accepted"], seen["refused"]) == (ps.kind, 1, 1, 0)
    told_more = {key: told[key] - told_before[key] for key in ("requests", "bytes_out", "bytes_in")}
    assert told_more == {
        "requests": 2,
        "bytes_out": 2 * HEADER.size + 5000,
        "bytes_in": 2 * HEADER.size + 5000 + 16,
    }
    seen_more = {key: seen[key] - seen_before[key] for key in ("messages", "bytes_in", "bytes_out")}
    assert seen_more == {"messages": 2, "bytes_in": told_more["bytes_out"], "bytes_out": told_more["bytes_in"]}
