"""Applies messages to one ps: to its shard and, on ps-0, to the job. Events in, replies out."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from psflow.ps_runtime.errors import CheckpointError, InputError, ProtocolError
from psflow.ps_runtime.optimizers.averages import states_of
from psflow.ps_runtime.protocol.job_state import Snapshot, decode_entries
from psflow.ps_runtime.protocol.message import (
    BEGINS_AGAIN,
    MAX_JSON_BYTES,
    NO_BODY,
    NO_REPLICA,
    WITH_PARAMETERS,
    Body,
    Kind,
    Message,
    Purpose,
    Reply,
    refusal,
)
from psflow.ps_runtime.protocol.payloads import PushBuffer
from psflow.ps_runtime.protocol.wire_codec import WireCodec
from psflow.ps_runtime.server.instructions import Peer, Refusal, replica_name
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.wire_format import EXACT, WireFormat

MAX_CONTROL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class JobKey:
    """The credentials that a peer must have, and the number of replicas. TLS or the kernel keep the token secret."""

    job_id: str
    token: str
    digest: int
    num_replicas: int
    wire: WireFormat = EXACT
    """The format of replicas that connect by TCP."""


class Storage(Protocol):
    """Stores the checkpoints of a shard; a role implements it for the handler."""

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        """Fill the shard's snapshot arrays from the checkpoint of `step`; return the facts of the snapshot. Blocks.

        Raises CheckpointError or OSError if that fails.
        """

    def write(self, step: int, shard: Shard) -> None:
        """Start to write the shard's snapshot; `PsHandler.written` is called when that is done. Does not block."""


class PsHandler:
    """One ps."""

    def __init__(self, key: JobKey, shard: Shard, storage: Storage, job_requests: JobRequests | None) -> None:
        self.key = key
        self.shard = shard
        self.job_requests = job_requests
        self.is_finished = False
        self._is_watched = False
        """Whether an evaluator has ever joined."""
        self.left: set[int] = set()
        """Training replicas that have left."""
        self._codecs = {
            wire: WireCodec(wire, shard.layout, shard.push_layout, states_of(shard.optimizers))
            for wire in (EXACT, key.wire)
        }
        self._storage = storage
        self._peers: dict[int, Peer] = {}
        self._codec_of: dict[int, WireCodec] = {}
        self._newest: dict[tuple[Purpose, int], int] = {}
        """The last incarnation of each replica that has joined, to train or to save."""
        self._training: dict[int, int] = {}
        """The latest connection of each training replica."""
        self._pushes: dict[int, tuple[PushBuffer, ...]] = {}
        """The last two of each connection, which uses two buffers in turn."""
        self._writing: tuple[int, int | None] | None = None
        """The step that is being written, and the peer that waits for it."""
        self._written: tuple[int, Mapping[str, Any]] | None = None
        self._kinds: dict[Kind, Callable[[int, Peer, Message], Iterable[Reply]]] = {
            Kind.PULL: self._pull,
            Kind.PULL_ROWS: self._pull_rows,
            Kind.PUSH: self._push,
            Kind.INITIALIZE: self._initialize,
            Kind.RESTORE: self._restore,
            Kind.SNAPSHOT: self._snapshot,
            Kind.WRITE: self._write,
            Kind.FINISH: self._finish,
            Kind.LEAVE: self._leave,
            Kind.STATISTICS: self._statistics,
        }
        if job_requests is not None:
            self._kinds |= job_requests.kinds

    # Called by the transport

    def handle(self, peer: int, message: Message) -> Iterable[Reply]:
        """Handle a whole message of connection `peer`; return the replies that are due now, to any peer."""
        sender = self._peers.get(peer)
        try:
            if message.kind is Kind.HELLO:
                return self._hello(peer, message)
            if sender is None:
                raise ProtocolError("peer", f"{message.kind.name} before HELLO")
            sender.check(message, self.key.digest)
            if sender.purpose is Purpose.TRAIN and self._training.get(sender.replica) != peer:
                raise ProtocolError(
                    sender.name, f"a newer connection of {replica_name(sender.replica)} has replaced this one"
                )
            if sender.purpose is Purpose.SAVE:
                self._must_not_be_over(sender)
            method = self._kinds.get(message.kind)
            if method is None:
                raise ProtocolError(sender.name, f"this ps does not accept {message.kind.name}")
            if message.is_deposited and (message.kind is not Kind.PUSH or self.job_requests is not None):
                raise ProtocolError(sender.name, f"this ps does not accept {message.kind.name} as a deposit")
            return method(peer, sender, message)
        except Refusal as error:
            return [(peer, refusal(error.code, error.reason))]

    def disconnected(self, peer: int) -> Iterable[Reply]:
        """Record that connection `peer` is gone."""
        if self._writing is not None and self._writing[1] == peer:
            self._writing = (self._writing[0], None)
        self._pushes.pop(peer, None)
        self._codec_of.pop(peer, None)
        sender = self._peers.pop(peer, None)
        if sender is None:
            return []
        if self.job_requests is None:
            self.shard.keep(sender.incarnation_key)
            return []
        return self.job_requests.disconnected(peer, sender)

    def max_body_bytes(self, peer: int, kind: Kind) -> int:
        """Return the largest body that a message of this kind may have from this peer now."""
        if peer not in self._peers:
            return MAX_CONTROL_BYTES if kind is Kind.HELLO else 0
        if kind is Kind.PUSH:
            return self.shard.max_push_nbytes
        if kind is Kind.PULL_ROWS:
            return self.shard.max_rows_nbytes + MAX_JSON_BYTES  # a log may follow the ids
        if kind is Kind.INITIALIZE:
            return self.shard.layout.nbytes
        return MAX_JSON_BYTES if kind in (Kind.SNAPSHOT, Kind.PULL) else MAX_CONTROL_BYTES

    # Events of the role around it

    def written(self, step: int, written: Mapping[str, Any] | Refusal) -> Iterable[Reply]:
        """Record what was written of `step`, or the reason of a failure."""
        assert self._writing is not None
        assert self._writing[0] == step
        peer, self._writing = self._writing[1], None
        if isinstance(written, Refusal):
            reply = refusal(written.code, written.reason)
        else:
            self._written = (step, written)
            reply = Message.of(Kind.DONE, written)
        return [] if peer is None else [(peer, reply)]

    @property
    def gone(self) -> Collection[int]:
        """The training replicas that send nothing more unless they restart or reconnect."""
        if self.job_requests is not None:
            return self.job_requests.gone
        return {replica for replica, peer in self._training.items() if peer not in self._peers}

    def statistics(self) -> dict[str, Any]:
        """Return counters of the shard and, on ps-0, of the job."""
        job = {} if self.job_requests is None else {"job": self.job_requests.job.statistics()}
        counts = {"peers": len(self._peers), "is_watched": self._is_watched}
        return {**counts, "shard": self.shard.statistics()} | job

    # Messages that any ps accepts

    def _hello(self, peer: int, message: Message) -> Iterable[Reply]:
        if peer in self._peers:
            raise ProtocolError(self._peers[peer].name, "it sent a second HELLO")
        sender = Peer.of(message)
        facts = message.json()
        token = str(facts.get("token", "")).encode(errors="replace")  # JSON may hold half a surrogate pair
        if not hmac.compare_digest(token, self.key.token.encode()) or facts.get("job_id") != self.key.job_id:
            raise ProtocolError("peer", "its job id or token does not belong to this job")
        if message.digest != self.key.digest:
            raise Refusal("model", f"the model of {sender.name} differs from the one that this job trains")
        if sender.replica != NO_REPLICA and sender.replica >= self.key.num_replicas:
            reason = (
                f"it claims to be {replica_name(sender.replica)}, but this job has {self.key.num_replicas} replicas"
            )
            raise ProtocolError(sender.name, reason)
        if sender.wire not in self._codecs:
            raise Refusal("wire", f"{sender.name} uses {sender.wire}, but this job uses {self.key.wire}")
        sequence, replies = self._admit(peer, sender)
        self._peers[peer], self._codec_of[peer] = sender, self._codecs[sender.wire]
        if sender.purpose is Purpose.TRAIN:
            self._training[sender.replica] = peer
        return [(peer, Message(Kind.DONE, sequence=sequence)), *replies]

    def _admit(self, peer: int, sender: Peer) -> tuple[int, list[Reply]]:
        if sender.purpose is Purpose.WATCH:
            self._is_watched = True
            return 0, []
        self._must_not_be_over(sender)
        sequence, replies = 0, list[Reply]()
        if sender.purpose is Purpose.TRAIN and self.job_requests is not None:
            sequence, replies = self.job_requests.admit(peer, sender)
        self._newest[sender.purpose, sender.replica] = sender.incarnation
        return sequence, replies

    def _must_not_be_over(self, sender: Peer) -> None:
        """Refuse an incarnation of a replica that has a later one on this ps, for the same purpose."""
        if sender.incarnation < (newest := self._newest.get((sender.purpose, sender.replica), 0)):
            name = replica_name(sender.replica)
            raise Refusal(
                "incarnation", f"incarnation {sender.incarnation} of {name} has ended; expected {newest} or later"
            )

    def _pull(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        if not self.shard.is_ready:
            raise Refusal("phase", "the variables have no values yet")
        self._settle(sender, message.body)
        is_read = message.flags & NO_BODY
        body = b"" if is_read else self._codec_of[peer].encode_arena(self.shard.arrays.arena)
        return [(peer, Message(Kind.PARAMETERS, version=self.shard.version, body=body))]

    def _pull_rows(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        if not self.shard.is_ready:
            raise Refusal("phase", "the variables have no values yet")
        ids, end = self.shard.push_layout.rows.read_ids(np.frombuffer(message.body, np.uint8))
        self._settle(sender, message.body[end:])
        try:
            rows = self.shard.pull_rows(ids, message.room)
        except InputError as error:
            raise ProtocolError(sender.name, str(error)) from error
        body = self._codec_of[peer].encode_rows(rows, [len(some) for some in ids])
        return [(peer, Message(Kind.ROWS, version=self.shard.version, body=body))]

    def _settle(self, sender: Peer, log: Body) -> None:
        """Apply the decisions that a replica forwards; copy its own push if that still waits for one.

        The reply gives the memory of a deposited push back to the replica.
        """
        if sender.purpose is Purpose.TRAIN and self.job_requests is None:
            self.shard.settle(*decode_entries(log, self.shard.num_settled))
            self.shard.keep(sender.incarnation_key)

    def _push(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_train(message)
        push = self._views_of_push(peer, message.body)
        try:
            self.shard.check_rows(push)
        except InputError as error:
            raise ProtocolError(sender.name, str(error)) from error
        key = sender.incarnation_key
        if self.job_requests is None:
            self.shard.hold(key, message.sequence, message.version, push)
            if not message.is_deposited or self._codec_of[peer].narrows_gradients:
                self.shard.keep(key)  # its memory serves another message after this one
            return [] if message.is_deposited else [(peer, Message(Kind.DONE))]
        parameters = None
        if message.flags & WITH_PARAMETERS:
            parameters = partial(self._codec_of[peer].encode_arena, self.shard.arrays.arena)
        if self.job_requests.take(peer, sender, message, push.num_examples, parameters):
            self.shard.hold(key, message.sequence, message.version, push)
        replies = self.job_requests.due()
        self.shard.keep(key)
        return replies

    def _views_of_push(self, peer: int, body: Body) -> PushBuffer:
        """Return the views of a push: those of an earlier one where it lies in the same place."""
        codec = self._codec_of[peer]
        if codec.narrows_gradients:
            return codec.decode_push(body)
        if self.shard.tables:
            return PushBuffer(self.shard.push_layout, body)  # the facts of its rows belong to this push only
        known = self._pushes.get(peer, ())
        for push in known:
            if push.body is body:
                return push
        push = PushBuffer(self.shard.push_layout, body)
        self._pushes[peer] = (push, *known[:1])
        return push

    def _initialize(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        if len(message.body) != self.shard.layout.nbytes:
            raise ProtocolError(sender.name, f"expected {self.shard.layout.nbytes} bytes, got {len(message.body)}")
        if not self.shard.is_ready:
            self.shard.initialize(message.body)
        return [(peer, Message(Kind.DONE))]

    def _restore(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        if self.shard.is_ready:
            if self.shard.version != message.step:
                raise Refusal("phase", "a restore is possible only at the start; the variables have values already")
            return [(peer, Message(Kind.DONE))]
        try:
            facts = self._storage.load(message.step, self.shard)
            if self.job_requests is not None:
                self.job_requests.job.restore(Snapshot.from_facts(facts))
        except (CheckpointError, OSError, ValueError) as error:
            raise Refusal("checkpoint", str(error)) from error
        self.shard.restore(message.step)
        return [(peer, Message(Kind.DONE))]

    def _snapshot(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        try:
            snapshot = Snapshot.from_facts(message.json())
        except ValueError as error:
            raise ProtocolError(sender.name, str(error)) from error
        if self._writing is not None:
            raise Refusal("writing", f"the files of step {self._writing[0]} are still being written")
        if self.job_requests is not None:
            self.job_requests.job.copying(snapshot.step)
        self._written = None
        self.shard.snapshot(snapshot.log_start, snapshot.log, snapshot.step)
        return [(peer, Message(Kind.DONE, version=self.shard.version))]

    def _write(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        step = message.step
        if self.shard.snapshot_step != step:
            raise Refusal(
                "phase", f"there is no copy of step {step} to write; the last copied step is {self.shard.snapshot_step}"
            )
        if self._written is not None and self._written[0] == step:
            return [(peer, Message.of(Kind.DONE, self._written[1]))]
        is_new = self._writing is None
        self._writing = (step, peer)
        if is_new:
            self._storage.write(step, self.shard)
        return []

    def _finish(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        sender.must_be_chief(message)
        if self.job_requests is not None:
            self.job_requests.job.finish()
        self.is_finished = True
        return [(peer, Message(Kind.DONE)), *(self.job_requests.due() if self.job_requests is not None else ())]

    def _leave(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        done = [(peer, Message(Kind.DONE))]
        if sender.purpose is not Purpose.TRAIN:
            return done
        begins_again = message.flags == BEGINS_AGAIN
        if not begins_again:
            self.left.add(sender.replica)
        if self.job_requests is None:
            return done
        is_over = self.job_requests.lost if begins_again else self.job_requests.left
        return [*done, *is_over(sender.replica, sender.incarnation)]

    def _statistics(self, peer: int, sender: Peer, message: Message) -> Iterable[Reply]:
        return [(peer, Message.of(Kind.DONE, self.statistics()))]
