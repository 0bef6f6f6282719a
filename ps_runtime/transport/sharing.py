"""Negotiates shared memory over a Unix socket: SHARE, answered with descriptors."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
import struct
from dataclasses import dataclass

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import IN_MAILBOX, SECOND_HALF, Kind, Message
from psflow.ps_runtime.transport.arena import HEADER_BYTES, Arena
from psflow.ps_runtime.transport.inbox import Mailbox
from psflow.ps_runtime.transport.reading import ArenaReader
from psflow.ps_runtime.transport.shared_memory import SharedMemory, why_no_shared_memory

_SIZES = struct.Struct("<QQQ")
"""Body of the answer: bytes of a request, of a reply, and of the arena with its header; 0 if it is not shared."""
_MOST = 2


@dataclass
class Shared:
    """The shared memory of a connection with its ps."""

    mailbox: Mailbox
    arena: ArenaReader | None
    _is_one_kept: bool = False

    def take_turns(self, flags: int) -> None:
        """Record that a reply has arrived: choose the halves of the trays for the next request and its reply."""
        self.mailbox.requests.turn = 0  # both halves are ours again; one of them is in the cache
        if flags & IN_MAILBOX and not self._is_one_kept:
            self.mailbox.replies.turn = 0 if flags & SECOND_HALF else 1

    def keep(self, flags: int) -> bool:
        """Reserve the half of the last reply until another one is kept; False if it is in none."""
        if not flags & IN_MAILBOX:
            return False
        self._is_one_kept = True
        self.mailbox.replies.turn = 0 if flags & SECOND_HALF else 1
        return True

    def close(self) -> None:
        """Release it. Idempotent."""
        self.mailbox.close()
        if self.arena is not None:
            self.arena.close()


def new_mailbox(request_bytes: int, arena: Arena | None, *, takes_deposits: bool) -> Mailbox:
    """Return a mailbox for requests of up to `request_bytes`, and for replies as large, or as the arena.

    Raises OSError if this machine has no shared memory to give, saying why.
    """
    reason = why_no_shared_memory()
    if reason:
        raise OSError(errno.ENOTSUP, reason)
    reply_bytes = max(request_bytes, 0 if arena is None else arena.bytes.size)
    return Mailbox.create(request_bytes, reply_bytes, takes_deposits=takes_deposits)


def what_is_shared(mailbox: Mailbox, arena: Arena | None) -> tuple[Message, list[int]]:
    """Return the answer to SHARE, and its descriptors."""
    sizes = mailbox.requests.nbytes, mailbox.replies.nbytes
    if arena is None or arena.memory is None:
        return Message(Kind.DONE, body=_SIZES.pack(*sizes, 0)), [mailbox.memory.fd]
    body = _SIZES.pack(*sizes, arena.memory.bytes.size)
    return Message(Kind.DONE, body=body), [mailbox.memory.fd, arena.memory.fd]


def take_over(reply: Message, descriptors: list[int]) -> Shared:
    """Map the memory of an answer to SHARE; used descriptors leave the list.

    Raises
    ------
    ProtocolError
        If it does not match the answer.
    OSError
        If it cannot be mapped.
    """
    if len(reply.body) != _SIZES.size:
        raise ProtocolError("peer", f"expected {_SIZES.size} bytes about its memory, got {len(reply.body)}")
    request_bytes, reply_bytes, arena_bytes = _SIZES.unpack(reply.body)
    expected = 2 if arena_bytes else 1
    if len(descriptors) != expected or 0 < arena_bytes < HEADER_BYTES:
        raise ProtocolError("peer", f"expected {expected} descriptors, got {len(descriptors)}")
    try:
        mailbox = Mailbox.attach(descriptors.pop(0), request_bytes, reply_bytes)
        with contextlib.ExitStack() as undo:
            undo.callback(mailbox.close)
            reader = None
            if arena_bytes:
                memory = SharedMemory.attach(descriptors.pop(0), arena_bytes, writable=False)
                reader = ArenaReader(memory, mailbox.mark)
            undo.pop_all()
    except ValueError as error:
        raise ProtocolError("peer", f"the memory that it sent does not match its answer: {error}") from error
    return Shared(mailbox, reader)


def no_sharing(peer: str, reason: str) -> str:
    """Return the fault of requesting shared memory where there is none."""
    return f"transport 'shm' was requested, but no memory can be shared with {peer}: {reason}"


class Descriptors:
    """Receives from a Unix socket, and keeps the accompanying descriptors."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.received: list[int] = []

    def recv_into(self, view: memoryview, nbytes: int, flags: int) -> int:
        """Receive as ``socket.recv_into`` does."""
        room = socket.CMSG_SPACE(_MOST * array.array("i").itemsize)
        received, messages, _, _ = self._socket.recvmsg_into([view], room, flags | socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in messages:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self.received.extend(fds)
        return received

    def close(self) -> None:
        """Close the received descriptors."""
        while self.received:
            os.close(self.received.pop())
