from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError, RefusedError
from psflow.ps_runtime.protocol.message import (
    HEADER,
    Kind,
    Message,
    body_view,
    decode_header,
    encode_header,
    refusal,
    refused_error,
)


def test_the_header_holds_every_field():
    message = Message(Kind.PUSH, 1, 2, 3, 4, -5, 6, 7)
    data = encode_header(message, 8)
    assert len(data) == HEADER.size == 56
    assert decode_header(data) == (message, 8)


@pytest.mark.parametrize(("kind", "is_reply"), [(Kind.STATISTICS, False), (Kind.DONE, True), (Kind.REFUSED, True)])
def test_requests_and_replies_are_told_apart(kind, is_reply):
    assert kind.is_reply == is_reply


def test_a_body_counts_bytes_whatever_its_format():
    assert len(body_view(Message(Kind.PUSH, body=np.zeros((2, 3), np.float64).data))) == 48
    with pytest.raises(TypeError, match="contiguous"):
        body_view(Message(Kind.PUSH, body=np.zeros((4, 4), np.float32)[:, ::2].data))


def test_a_refusal_becomes_an_error():
    error = refused_error("ps-0", refusal("stale", "push again"))
    assert isinstance(error, RefusedError)
    assert (error.peer, error.code, error.reason) == ("ps-0", "stale", "push again")


@pytest.mark.parametrize("body", [b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_a_json_body_is_an_object(body):
    with pytest.raises(ProtocolError, match="the body of HELLO is not"):
        Message(Kind.HELLO, body=body).json()
