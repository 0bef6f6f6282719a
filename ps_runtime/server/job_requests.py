"""Answers the requests about the job on ps-0, and keeps the replicas that wait for an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from psflow.ps_runtime.errors import ProtocolError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import (
    AFTER_OTHERS,
    IS_CLOSING,
    WITH_PARAMETERS,
    Body,
    Incarnation,
    Kind,
    Message,
    Purpose,
    Reply,
    refusal,
)
from psflow.ps_runtime.protocol.payloads import GRANT
from psflow.ps_runtime.server.instructions import (
    CHIEF,
    Decided,
    Expired,
    Granted,
    JobFinished,
    NoTicket,
    Peer,
    Refusal,
    SnapshotReady,
    replica_name,
)
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.shard import Shard

MAX_REASON_CHARS = 500
MAX_INCARNATIONS = 3
"""Incarnations that may end at one batch; the last of them ends the job."""

logger = logging.getLogger(__name__)


class Stream(Protocol):
    """An input that only one reader can read; a role implements it for `JobRequests`."""

    def want(self, index: int) -> None:
        """Read on, at least up to batch `index`; each batch arrives in `JobRequests.batch_read`. Does not block."""


class _Waiting(NamedTuple):
    """The connection of a replica that waits for its next ticket, and the encoder of parameters that come with it."""

    peer: int
    parameters: Callable[[], Body] | None = None


class JobRequests:
    """Answers requests about the job, at once or when the job can."""

    def __init__(self, job: Job, stream: Stream | None, shard: Shard) -> None:
        self.job = job
        self._shard = shard
        self.checkpoint_step = -1
        self.absent: dict[int, Incarnation] = {}
        """Replicas whose connection broke, by its number; the role declares them lost after a while."""
        self.gone: set[int] = set()
        """Replicas whose last incarnation is over."""
        self._stream = stream
        self._stream_error: str | None = None
        self._stream_end: int | None = None
        self._batches: dict[int, bytes] = {}
        self._connections: dict[int, int] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._fetching: dict[int, int] = {}
        self._watching: dict[int, int] = {}
        self._saver: int | None = None
        self.kinds: Mapping[Kind, Callable[[int, Peer, Message], Iterable[Reply]]] = {
            Kind.NEXT: self._next,
            Kind.STOP: self._stop,
            Kind.FETCH: self._fetch,
            Kind.INPUT_ENDED: self._input_ended,
            Kind.JOB_STATE: self._state,
            Kind.OPEN: self._open,
            Kind.AWAIT_SNAPSHOT: self._await_snapshot,
            Kind.REQUEST_SNAPSHOT: self._request_snapshot,
            Kind.RESUME: self._resume,
            Kind.COMMITTED: self._committed,
            Kind.WATCH: self._watch,
        }

    # Called by the handler

    def admit(self, peer: int, sender: Peer) -> tuple[int, list[Reply]]:
        """Let a training replica join, or rejoin by another connection."""
        sequence = self.job.join(sender.replica, sender.incarnation)
        self._connections[sender.replica] = peer
        self.gone.discard(sender.replica)
        self._come_back(sender.replica)
        self.job.away(sender.replica, sender.incarnation)
        former = self._waiting.pop(sender.replica, None)
        return sequence, [*_turned_away(None if former is None else former.peer, sender), *self.due()]

    def take(
        self, peer: int, sender: Peer, message: Message, num_examples: int, parameters: Callable[[], Body] | None
    ) -> bool:
        """Accept a push; return False for a repeat. Either way `peer` waits for its next ticket, and any `parameters`.

        The flags of a ticket request say how many other tickets its sender holds.
        """
        num_known = message.flags & ~WITH_PARAMETERS
        records = self.job.push(
            sender.replica, sender.incarnation, message.sequence, num_examples, message.version, num_known
        )
        self._waiting[sender.replica] = _Waiting(peer, parameters)
        if records is None:
            return False
        for index in range(records.start, records.stop) if self._stream is not None else ():
            self._batches.pop(index, None)
        return True

    def lost(self, replica: int, incarnation: int) -> list[Reply]:
        """Record that an incarnation of a replica is over: it did not reconnect."""
        self.job.lost(replica, incarnation)
        return self._over(replica, incarnation)

    def tick(self, secs: float) -> list[Reply]:
        """Record that time has passed, as far as this ps was able to receive messages.

        Raises WaitTimeoutError if three incarnations of replicas have ended at the same records, because they took too
        long.
        """
        fetching = {replica for replica, peer in self._connections.items() if peer in self._fetching}
        replies: list[Reply] = []
        for expired in self.job.tick(secs, fetching):
            _report_expired(expired)
            replies += self._over(expired.replica, expired.incarnation)
        return replies

    def left(self, replica: int, incarnation: int) -> list[Reply]:
        """Record that an incarnation of a replica is over: it has left."""
        self.job.left(replica, incarnation)
        return self._over(replica, incarnation)

    def disconnected(self, peer: int, sender: Peer) -> list[Reply]:
        """Record that a connection is gone. A training replica may reconnect."""
        self._fetching.pop(peer, None)
        self._watching.pop(peer, None)
        if peer == self._saver:
            self._saver = None
        if sender.purpose is Purpose.TRAIN and self._connections.get(sender.replica) == peer:
            del self._connections[sender.replica]
            self._waiting.pop(sender.replica, None)
            self.job.away(sender.replica, sender.incarnation)
            if self.job.replicas.get(sender.replica) == sender.incarnation:
                self.absent[peer] = sender.incarnation_key
        return self.due()

    def due(self) -> list[Reply]:
        """Return the replies that are due now."""
        replies: list[Reply] = []
        for instruction in self.job.due(saver_waits=self._saver is not None):
            match instruction:
                case Decided(start, entries):
                    self._shard.settle(start, entries)
                case Granted(replica, step, records, staleness, log):
                    body = GRANT.pack(step, records.epoch, records.start, records.stop, staleness) + log
                    self._answer(replica, Message(Kind.GRANT, step=step, flags=self._closing, body=body), replies)
                case NoTicket(replica, step, log):
                    self._answer(replica, Message(Kind.DONE, step=step, flags=self._closing, body=log), replies)
                case JobFinished(replica, step):
                    self._answer(replica, Message(Kind.FINISHED, step=step), replies)
                case SnapshotReady(snapshot, is_final):
                    assert self._saver is not None
                    kind = Kind.FINAL_SNAPSHOT_DUE if is_final else Kind.SNAPSHOT_DUE
                    replies.append((self._saver, Message.of(kind, snapshot.to_facts(), step=snapshot.step)))
                    self._saver = None
        return [*replies, *self._news()]

    # Events of the reader

    def batch_read(self, index: int, batch: bytes) -> list[Reply]:
        """Take a batch of the stream."""
        if not self.job.input.of(CHIEF).was_used(index):
            self._batches[index] = batch
        return self._fetched()

    def stream_ended(self, num_batches: int) -> list[Reply]:
        """Record that the stream has ended."""
        self._stream_end = num_batches
        self.job.end_stream(num_batches)
        return [*self._fetched(), *self.due()]

    def stream_failed(self, error: str) -> list[Reply]:
        """Record that the stream cannot be read further."""
        self._stream_error = error
        return self._fetched()

    # Messages

    def _next(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_train(message)
        self.job.ask(sender.replica, sender.incarnation, message.flags)
        self._waiting[sender.replica] = _Waiting(peer)
        return self.due()

    def _stop(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_train(message)
        reason = str(message.json().get("reason", ""))[:MAX_REASON_CHARS] or f"{sender.name} asked to stop"
        self.job.return_tickets(sender.replica, sender.incarnation)
        if message.flags == AFTER_OTHERS:
            self.job.stop_after_others(sender.replica, reason)
        else:
            self.job.stop(reason)
        self._waiting[sender.replica] = _Waiting(peer)
        return self.due()

    def _fetch(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_train(message)
        index = message.step
        if self._stream is None or index < 0:
            raise ProtocolError(sender.name, f"FETCH of batch {index}, but the input of this job has no such batch")
        self.job.must_live(sender.replica, sender.incarnation)
        position = self.job.input.of(sender.replica)
        if position.was_used(index) or not position.was_handed_out(index):
            raise Refusal("batch", f"batch {index} of the input is not for {sender.name}")
        self._stream.want(index)
        self._fetching[peer] = index
        return self._fetched()

    def _input_ended(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_train(message)
        spec = self.job.input_spec
        if not spec.is_stream or spec.has_one_reader or message.step < 0:
            raise ProtocolError(
                sender.name, f"INPUT_ENDED after {message.step} batches, but it reads no stream of this job for itself"
            )
        self.job.end_private_stream(sender.replica, sender.incarnation, message.step)
        return [(peer, Message(Kind.DONE)), *self.due()]

    def _state(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        return [(peer, Message.of(Kind.DONE, self.job.state().to_facts()))]

    def _open(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        self.job.open()
        return [(peer, Message(Kind.DONE, step=self.job.global_step)), *self.due()]

    def _await_snapshot(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        self.job.forget_saver()  # this saver does not know of the snapshot under way, or its connection broke
        former, self._saver = self._saver, peer
        return [*_turned_away(former, sender), *self.due()]

    def _request_snapshot(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        self.job.request_snapshot()
        return [(peer, Message(Kind.DONE)), *self.due()]

    def _resume(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        self.job.resume(message.step)
        return [(peer, Message(Kind.DONE)), *self.due()]

    def _committed(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        self.checkpoint_step = max(self.checkpoint_step, message.step)
        self.job.committed(message.step)
        return [(peer, Message(Kind.DONE)), *self.due()]

    def _watch(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        self._watching[peer] = message.step
        return self._news()

    # Inside

    def _over(self, replica: int, incarnation: int) -> list[Reply]:
        self.absent = {peer: key for peer, key in self.absent.items() if key != (replica, incarnation)}
        if replica in self.job.replicas:
            return self.due()
        self.gone.add(replica)
        if (former := self._waiting.pop(replica, None)) is None:
            return self.due()
        reason = f"incarnation {incarnation} of {replica_name(replica)} is over"
        return [(former.peer, refusal("incarnation", reason)), *self.due()]

    @property
    def _closing(self) -> int:
        return IS_CLOSING if self.job.resting else 0

    def _answer(self, replica: int, message: Message, replies: list[Reply]) -> None:
        waiting = self._waiting.pop(replica, None)
        if waiting is None:
            return
        if waiting.parameters is not None and message.kind is Kind.GRANT:  # now a ticket is out, so no decision follows
            message.flags |= WITH_PARAMETERS
            message.version, message.tail = self._shard.version, waiting.parameters()
        replies.append((waiting.peer, message))

    def _come_back(self, replica: int) -> None:
        self.absent = {peer: key for peer, key in self.absent.items() if key[0] != replica}

    def _news(self) -> list[Reply]:
        """Notify the watchers of new checkpoints, and of the end."""
        if not self._watching:
            return []
        is_over = self.job.is_finished
        due = [peer for peer, seen in self._watching.items() if is_over or seen < self.checkpoint_step]
        for peer in due:
            del self._watching[peer]
        facts: dict[str, Any] = {"checkpoint": self.checkpoint_step, "is_finished": is_over}
        return [(peer, Message.of(Kind.DONE, facts)) for peer in due]

    def _fetched(self) -> list[Reply]:
        replies: list[Reply] = []
        for peer, index in list(self._fetching.items()):
            if index in self._batches:
                reply = Message(Kind.BATCH, step=index, body=self._batches[index])
            elif self._stream_error is not None:
                reply = refusal("input", self._stream_error)
            elif self._stream_end is not None and index >= self._stream_end:
                reply = Message(Kind.DONE)
            else:
                continue
            del self._fetching[peer]
            replies.append((peer, reply))
        return replies


def _turned_away(former: int | None, sender: Peer) -> list[Reply]:
    return [] if former is None else [(former, refusal("connection", f"{sender.name} has opened another connection"))]


def _report_expired(expired: Expired) -> None:
    """Log that an incarnation is over because of its deadline, or raise the error of the job."""
    name, records = replica_name(expired.replica), expired.records
    what = f"records {records.start} to {records.stop - 1} of epoch {records.epoch}"
    if expired.num_incarnations >= MAX_INCARNATIONS:
        subject = f"{name}, like {expired.num_incarnations - 1} incarnations of replicas before it,"
        remedy = "check how input_fn and model_fn handle these records, or raise step_deadline.max_secs"
        raise WaitTimeoutError(subject, f"push a gradient of {what}", expired.secs, remedy)
    logger.warning(
        "%s did not push a gradient of %s within %g s, and others wait: they go on without it, and it restarts "
        "when it notices",
        name,
        what,
        expired.secs,
    )
