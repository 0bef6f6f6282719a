"""Defines the messages between a role and a ps: a fixed header and raw bytes. Nothing is ever unpickled."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

from psflow.ps_runtime.errors import IncarnationOverError, ProtocolError, RefusedError

Body = bytes | bytearray | memoryview

MAGIC = b"psf1"
HEADER = struct.Struct("<4sHHIIQQqQQ")
"""magic, kind, flags, replica, incarnation, sequence, version, step, model digest, body length."""

IN_MAILBOX = 0x8000
"""Flag: the body lies in the mailbox of the connection, and only the header uses the socket."""
SECOND_HALF = 0x4000
"""Flag: in the second half of the tray."""
REPLY_IN_SECOND_HALF = 0x2000
"""Flag of a request: a reply body in the mailbox goes to the second half of the tray."""
TRANSPORT_FLAGS = IN_MAILBOX | SECOND_HALF | REPLY_IN_SECOND_HALF

MAX_JSON_BYTES = 16 * 1024 * 1024
NO_BODY = 1
"""Flag of a PULL whose sender reads the parameters itself."""
BEGINS_AGAIN = 1
"""Flag of a LEAVE of a replica that will have another incarnation."""
AFTER_OTHERS = 1
"""Flag of a STOP that takes effect once no other replica trains."""
IS_CLOSING = 1
"""Flag of a GRANT, or of a DONE in its place: a replica waits for the others to leave."""
WITH_PARAMETERS = 0x1000
"""Flag of a PUSH to ps-0 whose answer is to carry the parameters, and of the GRANT that carries them."""
NO_REPLICA = 0xFFFF_FFFF
"""`replica` of a peer that does not train: an evaluator, a watcher."""

Incarnation = tuple[int, int]
"""A replica and its incarnation."""

Room = Callable[[int], memoryview | None]
"""Returns memory for a body of the given number of bytes, or None."""


def no_room(nbytes: int) -> memoryview | None:
    """Return no memory."""
    return None


class Kind(IntEnum):
    """The request or the answer of a message."""

    # requests, from a role to a ps
    HELLO = 1
    PULL = 2
    PUSH = 3
    NEXT = 4
    FETCH = 5
    OPEN = 6
    INITIALIZE = 7
    RESTORE = 8
    AWAIT_SNAPSHOT = 9
    REQUEST_SNAPSHOT = 10
    SNAPSHOT = 11
    RESUME = 12
    WRITE = 13
    COMMITTED = 14
    WATCH = 15
    STOP = 16
    FINISH = 17
    LEAVE = 18
    STATISTICS = 19
    SHARE = 20
    PULL_ROWS = 21
    INPUT_ENDED = 22
    JOB_STATE = 23
    # replies, from a ps to a role
    DONE = 128
    PARAMETERS = 129
    GRANT = 130
    BATCH = 131
    SNAPSHOT_DUE = 132
    FINAL_SNAPSHOT_DUE = 133
    FINISHED = 134
    REFUSED = 135
    ROWS = 136

    @property
    def is_reply(self) -> bool:
        """Whether a ps sends it."""
        return self >= Kind.DONE


_KINDS = {int(kind): kind for kind in Kind}


@dataclass(slots=True)
class Message:
    """One message."""

    kind: Kind
    replica: int = NO_REPLICA
    incarnation: int = 0
    sequence: int = 0
    version: int = 0
    step: int = 0
    digest: int = 0
    flags: int = 0
    body: Body = b""
    room: Room = field(default=no_room, repr=False, compare=False)
    tail: Body = b""
    """The end of the body of a reply, sent behind `body` from where it lies; the peer receives one body."""
    is_deposited: bool = field(default=False, repr=False, compare=False)
    """Whether this request has no reply, and its body stays as it is until the sender's next request is answered."""

    def json(self) -> dict[str, Any]:
        """Parse the body as a JSON object.

        Raises ProtocolError if it is none.
        """
        try:
            value = json.loads(bytes(self.body) or b"{}")
        except (ValueError, RecursionError) as error:
            raise ProtocolError("peer", f"the body of {self.kind.name} is not JSON ({error})") from None
        if not isinstance(value, dict):
            raise ProtocolError("peer", f"the body of {self.kind.name} is not a JSON object")
        return value

    def with_body(self, body: Body) -> Message:
        """Return the same message with another body."""
        return Message(
            self.kind,
            self.replica,
            self.incarnation,
            self.sequence,
            self.version,
            self.step,
            self.digest,
            self.flags,
            body,
        )

    @classmethod
    def of(cls, kind: Kind, facts: Mapping[str, Any], **header: Any) -> Message:
        """Make a message whose body is a JSON object."""
        return cls(kind, body=json.dumps(facts).encode(), **header)


def body_view(message: Message) -> memoryview:
    """Return the body as a flat view of bytes, without a copy.

    Raises TypeError if the body is not C-contiguous.
    """
    body = message.body
    view = body if type(body) is memoryview else memoryview(body)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def whole_body(message: Message) -> memoryview:
    """Return body and tail as `body_view`; a copy if there is a tail.

    Raises TypeError if one of them is not C-contiguous.
    """
    body = body_view(message)
    return memoryview(b"".join((body, message.tail))) if message.tail else body


def encode_header(message: Message, num_body_bytes: int, transport_flags: int = 0) -> bytes:
    """Return the `HEADER.size` bytes that announce `message` and a body of `num_body_bytes`."""
    return HEADER.pack(
        MAGIC,
        message.kind,
        message.flags | transport_flags,
        message.replica,
        message.incarnation,
        message.sequence,
        message.version,
        message.step,
        message.digest,
        num_body_bytes,
    )


def decode_header(data: bytes | bytearray | memoryview) -> tuple[Message, int]:
    """Return the message that `data` announces, with an empty body, and the length of the body in bytes.

    Raises ProtocolError on a wrong magic or an unknown kind. The length is not checked here: only the handler knows its
    bounds.
    """
    magic, kind, flags, replica, incarnation, sequence, version, step, digest, length = HEADER.unpack(data)
    if magic != MAGIC:
        raise ProtocolError("peer", f"expected the magic {MAGIC!r}, got {magic!r}")
    known = _KINDS.get(kind)
    if known is None:
        raise ProtocolError("peer", f"unknown message kind {kind}")
    return Message(known, replica, incarnation, sequence, version, step, digest, flags), length


def refusal(code: str, reason: str) -> Message:
    """Return the reply that refuses a request: `code` is for programs, `reason` for the user."""
    return Message.of(Kind.REFUSED, {"code": code, "reason": reason})


def refused_error(peer: str, message: Message) -> RefusedError:
    """Return the error that a REFUSED reply of `peer` stands for.

    Raises ProtocolError if its body is not the JSON object that `refusal` makes.
    """
    facts = message.json()
    code, reason = str(facts.get("code", "refused")), str(facts.get("reason", "no reason given"))
    return (IncarnationOverError if code == "incarnation" else RefusedError)(peer, code, reason)


class Purpose(StrEnum):
    """The purpose of a connection."""

    TRAIN = "train"
    SAVE = "save"
    WATCH = "watch"


Reply = tuple[int, Message]
"""The addressee (the number of a connection), and the message."""


class Handler(Protocol):
    """The policy of a ps: events in, replies out. No sockets, no clock, no threads.

    It belongs to one server, which never reuses numbers of connections. An error other than ProtocolError ends the
    server.
    """

    def handle(self, peer: int, message: Message) -> Iterable[Reply]:
        """Handle a whole message of connection `peer`; return the replies that are due now, to any peer.

        Raises ProtocolError: the transport then refuses and disconnects the peer.
        """

    def disconnected(self, peer: int) -> Iterable[Reply]:
        """Record that connection `peer` is gone; return the replies that are due to others.

        Called once for each connection that `handle` was called for, unless the server itself was closed.
        """

    def max_body_bytes(self, peer: int, kind: Kind) -> int:
        """Return the largest body that a message of this kind may have from this peer now.

        Called before the body is read, so it must change nothing. May raise ProtocolError, as `handle`. Before a peer
        is authenticated it is 0 for all kinds but HELLO: no memory is shared with it then.
        """
