"""Implements the client of one shard: authenticates, waits in slices, and reconnects when the connection breaks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import BrokenPeerError, ClosedError, RefusedError, TransportError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import NO_REPLICA, Kind, Message, Purpose
from psflow.ps_runtime.specs.wire_format import EXACT, WireFormat
from psflow.ps_runtime.transport.base import Connection

_T = TypeVar("_T")

SLICE_SECS = 0.05
"""Length of one wait before the role checks whether it should end: a stop waits for that."""
RETRY_SECS = 0.25
"""Between two attempts to reach a ps."""
CONNECT_SECS = 10.0
"""How long a ps may take to accept a connection, which the kernel does for it."""
RECONNECT_SECS = 10.0
"""How long a role tries to reach a ps again; shorter than the ps waits for it."""

FOR_A_MOMENT = ("full", "late")
"""Codes of refusals that do not concern the peer itself: it may be admitted when it asks again."""

Connect = Callable[[float], Connection]
"""Connects to one ps within so many seconds."""


def never_stop() -> None:
    """Do nothing: the check of a role that is never stopped."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender, as every HELLO states it."""

    job_id: str
    token: str = field(repr=False)
    digest: int
    name: str
    purpose: Purpose
    replica: int = NO_REPLICA
    incarnation: int = 0
    wire: WireFormat = EXACT
    """The format over TCP."""

    def hello(self, wire: WireFormat = EXACT) -> Message:
        """Return the first message of a connection whose bodies are in the format `wire`."""
        facts = {"job_id": self.job_id, "token": self.token, "name": self.name, "purpose": self.purpose}
        return self.sign(Message.of(Kind.HELLO, facts | {"wire": asdict(wire)}))

    def sign(self, message: Message) -> Message:
        """Put the sender into the header of `message`."""
        message.replica, message.incarnation, message.digest = self.replica, self.incarnation, self.digest
        return message


class ShardClient:
    """One shard, as a role sees it.

    Notes
    -----
    Not thread-safe. A request lost with a broken connection is sent again: each is idempotent on the ps.
    """

    def __init__(
        self,
        connect: Connect,
        identity: Identity,
        check: Callable[[], None],
        reconnect_secs: float = RECONNECT_SECS,
    ) -> None:
        self._connect = connect
        self._reconnect_secs = reconnect_secs
        self._identity = identity
        self._check = check
        self._checked_at = time.monotonic()
        self._connection: Connection | None = None
        self._sent: Message | None = None
        self._deposited: Message | None = None
        """A request without a reply that the ps may not have seen yet."""
        self._wire: WireFormat | None = None
        self.num_reconnects = -1
        self.sequence = 0

    def open(self, timeout_secs: float) -> None:
        """Connect, say HELLO and share memory if possible; `sequence` is the last push of this incarnation on the ps.

        A ps that is full for a moment, or that this role kept waiting, is asked again. So is one that does not listen,
        or whose connection breaks before it answers: if it is lost, the owner of the job soon ends this role, too.

        Raises
        ------
        WaitTimeoutError
            If the ps does not answer within `timeout_secs`: it may be restoring a large model.
        RefusedError
            If the ps does not admit this role.
        BrokenPeerError
            If no process listens there, or each connection breaks, for `reconnect_secs`.
        """
        deadline = Deadline(timeout_secs)
        away: Deadline | None = None
        while True:
            try:
                self._connection = self._say_hello(deadline)
                self.num_reconnects += 1
                return
            except RefusedError as error:
                if error.code not in FOR_A_MOMENT or deadline.has_passed:
                    raise
            except BrokenPeerError:
                away = away or Deadline(self._reconnect_secs)
                if away.has_passed or deadline.has_passed:
                    raise
            self._check()
            time.sleep(min(RETRY_SECS, deadline.remaining_secs))

    def _say_hello(self, deadline: Deadline) -> Connection:
        connection = self._connect(min(deadline.remaining_secs, CONNECT_SECS))
        try:
            self._await(connection.shake_hands, connection.peer, "complete the TLS handshake", deadline)
            if self._wire is None:  # it stays: the request under way is sent again over another transport as it is
                self._wire = self._identity.wire if connection.transport == "tcp" else EXACT
            connection.send(self._identity.hello(self._wire))
            what = f"accept {self._identity.name}"
            self.sequence = self._await(connection.receive, connection.peer, what, deadline).sequence
            self._await(connection.share, connection.peer, "share memory", deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def connection(self) -> Connection:
        """The present connection."""
        if self._connection is None:
            raise ClosedError(f"the connection of {self._identity.name}")
        return self._connection

    @property
    def wire(self) -> WireFormat:
        """The format of bodies: that of the job, if the first connection used TCP, else float32."""
        if self._wire is None:
            raise ClosedError(f"the connection of {self._identity.name}")
        return self._wire

    def send(self, message: Message) -> None:
        """Send a request; `receive` gets its reply."""
        self._sent = self._identity.sign(message)
        try:
            self.connection.send(self._sent)
        except BrokenPeerError as error:
            self._come_back(error)

    def deposit(self, message: Message) -> bool:
        """Leave a request without a reply for the ps to find before its next message; False if it must be sent.

        If the connection breaks before the next request is answered, it is repeated before that.
        """
        self._identity.sign(message)
        try:
            is_there = self.connection.deposit(message)
        except BrokenPeerError:
            return False  # sending it brings a new connection
        self._deposited = message if is_there else None
        return is_there

    def receive(self, what: str, timeout_secs: float, into: memoryview | None = None) -> Message:
        """Wait for the reply to the request under way.

        Raises WaitTimeoutError if the ps does not do `what`, such as ``"take the push"``, within `timeout_secs`.
        """
        deadline = Deadline(timeout_secs)
        while True:
            try:
                connection = self.connection
                reply = self._await(partial(connection.receive, into=into), connection.peer, what, deadline)
            except BrokenPeerError as error:
                self._come_back(error)
            except RefusedError:
                self._deposited = None
                raise
            else:
                self._deposited = None
                return reply

    def request(self, message: Message, what: str, timeout_secs: float, into: memoryview | None = None) -> Message:
        """Send a request and wait for its reply."""
        self.send(message)
        return self.receive(what, timeout_secs, into)

    def say_last(self, message: Message, timeout_secs: float) -> None:
        """Send a last message and wait for its reply; a ps that is gone by then is not an error."""
        with contextlib.suppress(TransportError, WaitTimeoutError):
            self.connection.request(self._identity.sign(message), timeout_secs)

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _await(self, attempt: Callable[[float], _T], whom: str, what: str, deadline: Deadline) -> _T:
        """Attempt in slices of time, with checks between them, and periodically also where no wait is long."""
        while True:
            now = time.monotonic()
            if now - self._checked_at >= SLICE_SECS:
                self._check()
                self._checked_at = now
            try:
                return attempt(min(SLICE_SECS, deadline.remaining_secs))
            except WaitTimeoutError:
                if deadline.has_passed:
                    raise WaitTimeoutError(whom, what, deadline.timeout_secs) from None

    def _come_back(self, error: BrokenPeerError) -> None:
        """Reconnect and repeat what is under way, or raise `error` when the ps stays away."""
        deadline = Deadline(self._reconnect_secs)
        self.connection.close()
        while True:
            self._check()
            try:
                self.open(timeout_secs=max(RETRY_SECS, deadline.remaining_secs))
                assert self._sent is not None
                if self._deposited is not None:
                    self.connection.send(self._deposited)
                    self._await(self.connection.receive, self.connection.peer, "take what was deposited", deadline)
                self.connection.send(self._sent)
                return
            except (BrokenPeerError, WaitTimeoutError):
                if deadline.has_passed:
                    raise error from None
                time.sleep(RETRY_SECS)


class ShardClients:
    """The clients of one role for all shards, in order."""

    def __init__(
        self, connect_functions: Sequence[Connect], identity: Identity, check: Callable[[], None], timeout_secs: float
    ) -> None:
        self.name = identity.name
        """The identity of the sender."""
        self._shards = [ShardClient(connect, identity, check) for connect in connect_functions]
        self._timeout_secs = timeout_secs

    def __enter__(self) -> Self:
        try:
            for shard in self._shards:
                shard.open(self._timeout_secs)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[ShardClient]:
        return iter(self._shards)

    def __getitem__(self, index: int) -> ShardClient:
        return self._shards[index]

    def request_all(self, message: Message, what: str, timeout_secs: float) -> list[Message]:
        """Send one request to every ps, then wait for all replies."""
        for shard in self._shards:
            shard.send(replace(message))
        return [shard.receive(what, timeout_secs) for shard in self._shards]

    def close(self) -> None:
        """End all connections. Idempotent."""
        for shard in self._shards:
            shard.close()

    @property
    def transport(self) -> str:
        """The transport in use; several, if the connections differ."""
        return "+".join(sorted({shard.connection.transport for shard in self._shards}))

    def bytes_moved(self) -> tuple[int, int]:
        """Return how many bytes the present connections have sent and received.

        Raises ClosedError while a connection is broken.
        """
        facts = [shard.connection.statistics() for shard in self._shards]
        return sum(int(f["bytes_out"]) for f in facts), sum(int(f["bytes_in"]) for f in facts)

    def statistics(self) -> dict[str, Any]:
        """Return the transport, the wire format and the number of reconnections of each shard, as plain data."""
        facts: list[Mapping[str, Any]] = [
            {
                "transport": shard.connection.transport,
                "wire": asdict(shard.wire),
                "reconnects": shard.num_reconnects,
            }
            for shard in self._shards
        ]
        return {"shards": facts}
