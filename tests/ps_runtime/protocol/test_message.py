from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.errors import IncarnationOverError, ProtocolError, RefusedError
from psflow.ps_runtime.protocol.message import (
    HEADER,
    IN_MAILBOX,
    MAX_JSON_BYTES,
    NO_BODY,
    NO_REPLICA,
    REPLY_IN_SECOND_HALF,
    SECOND_HALF,
    Kind,
    Message,
    body_view,
    decode_header,
    encode_header,
    refusal,
    refused_error,
)
from psflow.ps_runtime.protocol.payloads import MAX_ROWS

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_the_header_holds_every_field():
    message = Message(Kind.PUSH, 1, 2, 3, 4, -5, 6, 10)
    data = encode_header(message, 8)
    assert len(data) == HEADER.size == 56
    assert decode_header(data) == (message, 8)


@pytest.mark.parametrize(("kind", "is_reply"), [(Kind.STATISTICS, False), (Kind.DONE, True), (Kind.REFUSED, True)])
def test_requests_and_replies_are_told_apart(kind, is_reply):
    assert kind.is_reply == is_reply


def test_the_numbers_on_the_wire_are_those_of_the_protocol_page():
    rows = re.findall(r"^\| ([A-Z_, ]+) \| ([0-9, ]+) \|", PAGE.read_text(), re.MULTILINE)
    told = [pair for names, numbers in rows for pair in zip(names.split(", "), numbers.split(", "), strict=True)]
    assert {name: int(number) for name, number in told} == {kind.name: kind.value for kind in Kind}
    assert (IN_MAILBOX, SECOND_HALF, REPLY_IN_SECOND_HALF, NO_BODY, NO_REPLICA) == (
        0x8000,
        0x4000,
        0x2000,
        1,
        2**32 - 1,
    )


def test_the_bounds_of_what_is_sent_are_those_of_the_protocol_page():
    bounds = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE))
    assert bounds["SNAPSHOT, PULL, and the log of a PULL_ROWS"] == "16 MB"
    assert bounds["rows of one table in a PUSH or PULL_ROWS"].startswith(
        "4,194,304, and at most as many as the shard has"
    )
    assert (MAX_JSON_BYTES, MAX_ROWS) == (16 << 20, 4_194_304)


def test_what_is_left_out_of_a_message_is_zero():
    assert Message(Kind.NEXT) == Message(Kind.NEXT, 2**32 - 1, 0, 0, 0, 0, 0, 0, b"")


@pytest.mark.parametrize("body", [np.ones(3, bool), np.ones(3, np.float32), np.ones((), np.uint8)])
def test_a_body_is_flat_bytes_whatever_its_format(body):
    view = body_view(Message(Kind.PUSH, body=body.data))
    assert (view.format, view.ndim, len(view)) == ("B", 1, body.nbytes)


def test_a_body_counts_bytes_whatever_its_format():
    assert len(body_view(Message(Kind.PUSH, body=np.zeros((2, 3), np.float64).data))) == 48
    with pytest.raises(TypeError, match="contiguous"):
        body_view(Message(Kind.PUSH, body=np.zeros((4, 4), np.float32)[:, ::2].data))


def test_a_refusal_becomes_an_error():
    error = refused_error("ps-0", refusal("stale", "push again"))
    assert isinstance(error, RefusedError)
    assert (error.peer, error.code, error.reason) == ("ps-0", "stale", "push again")
    assert not isinstance(error, IncarnationOverError)


def test_the_refusal_of_a_life_that_is_over_is_an_error_of_its_own():
    error = refused_error("ps-0", refusal("incarnation", "another one goes on"))
    assert isinstance(error, IncarnationOverError)
    assert (error.peer, error.code, error.reason) == ("ps-0", "incarnation", "another one goes on")


@pytest.mark.parametrize("body", [b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_a_json_body_is_an_object(body):
    with pytest.raises(ProtocolError, match="the body of HELLO is not"):
        Message(Kind.HELLO, body=body).json()
