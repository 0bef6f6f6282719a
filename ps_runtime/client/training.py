"""Implements the client of a training replica: pull, push, next batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.pulls import REPLY_TIMEOUT_SECS, PulledVariables, RowClient, Splits
from psflow.ps_runtime.client.push_writer import Gradients, PushWriter
from psflow.ps_runtime.client.shard_client import ShardClients
from psflow.ps_runtime.errors import InputError, NanGradientError, RefusedError
from psflow.ps_runtime.latencies import Latencies
from psflow.ps_runtime.protocol.message import (
    AFTER_OTHERS,
    BEGINS_AGAIN,
    IS_CLOSING,
    NO_BODY,
    WITH_PARAMETERS,
    Kind,
    Message,
)
from psflow.ps_runtime.protocol.payloads import GRANT, PushLayout
from psflow.ps_runtime.protocol.wire_codec import WireCodec
from psflow.ps_runtime.specs.input import RecordRange
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec

HOLD_TIMEOUT_SECS = 7200.0
GOOD_BYE_SECS = 5.0
MAX_REASON_CHARS = 300
"""Of a reason to stop; each may take 12 bytes, and a ps accepts 4096."""


class Grant(NamedTuple):
    """The permission for one push, and the batch to compute it on; `staleness` is that of the last push."""

    global_step: int
    records: RecordRange
    staleness: int


@dataclass(frozen=True, slots=True)
class JobEnd:
    """No more pushes: the job is finished."""

    global_step: int


class TrainingClient:
    """Pulls and pushes all shards of a model.

    Notes
    -----
    Not thread-safe. `variables` holds views that `pull` refreshes in place; with one worker training is deterministic.
    """

    def __init__(
        self,
        shards: ShardClients,
        model: ModelSpec,
        start_timeout_secs: float,
        hold_timeout_secs: float = HOLD_TIMEOUT_SECS,
        *,
        in_place: bool = False,
        states: Collection[int] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clients, self._shards = shards, tuple(shards)
        self._grant_timeout_secs = start_timeout_secs
        self._hold_timeout_secs = hold_timeout_secs
        layouts = place(model, len(shards))
        self._codecs = [
            WireCodec(shard.wire, x, PushLayout.of(x, len(model.optimizers), model.tables), states)
            for shard, x in zip(shards, layouts, strict=True)
        ]
        self._pulled = PulledVariables(shards, model, layouts, self._codecs, in_place=in_place)
        splits = Splits(len(shards))
        self._writers = [PushWriter(x, model, splits) for x in layouts]
        self._others = [i for i, x in enumerate(layouts) if i and (x.nbytes or model.tables)]
        self._has_buffers = len(shards) == 1 and not model.tables
        self._sequence = shards[0].sequence
        self._num_tickets = 0
        self._global_step = 0
        """As of the last answer of ps-0."""
        self._log = b""
        """Decisions about pushes that other ps may not have received yet."""
        self._is_told = True
        self._rows_asked = False
        self.is_closing = False
        """Whether another replica has left its loop, and the job ends once all others have."""
        self._clock = clock
        self._asking_secs = 0.0
        """Of the last pull or push that was started."""
        self._fresh_until = 0.0
        """Until then the parameters of the last answer have been here for less time than asking for them takes."""
        self.pulls, self.pushes = Latencies(), Latencies()
        """How long this replica has waited for each; a push includes its answer, which brings the next ticket."""
        self.rows = RowClient(shards, model.tables, splits, self._codecs)
        """The rows of the model's tables."""
        self.variables: Mapping[str, NDArray[Any]] = self._pulled.variables

    def pull(self) -> tuple[int, ...]:
        """Refresh `variables`, one version of each shard; return the versions. Blocks."""
        self.start_pull()
        return self.finish_pull()

    def start_pull(self, rows: Mapping[str, NDArray[np.int64]] | None = None) -> None:
        """Request the parameters, and rows of unique ids of some tables; send nothing else before `finish_pull`.

        Parameters that came with the ticket, not long ago, are not requested again.
        """
        began_at = self._clock()
        if began_at > self._fresh_until:
            self._pulled.drop()
        self._rows_asked = bool(rows)
        self._is_told = True
        if rows:
            self.rows.start(rows, self._log)
        else:
            self.rows.forget()
            self._pulled.start(self._log)
        self._asking_secs = self._clock() - began_at

    def finish_pull(self) -> tuple[int, ...]:
        """Refresh `variables`, and keep the requested rows; return the version of each shard. Blocks."""
        began_at = self._clock()
        if self._rows_asked:
            self.rows.finish()
            self._pulled.start(self._log, has_log=True)  # beside the ids
        self._pulled.finish()
        self.pulls.add(self._asking_secs + self._clock() - began_at)
        return tuple(self._pulled.versions)

    def gradient_buffers(self) -> Mapping[str, NDArray[Any]]:
        """Return places to make gradients of variables in, so that the next push need not copy them.

        They are valid until that push, as no other request meanwhile has a body: so there are none with several ps,
        which receive decisions, or with tables, whose ids are sent to pull their rows.
        """
        if not self._has_buffers:
            return {}
        return self._writers[0].buffers(self._shards[0].connection)

    def push(self, gradients: Gradients, learning_rates: Sequence[float], num_examples: int) -> Grant | JobEnd:
        """Push one gradient of what was pulled last, and wait for the answer. Blocks."""
        self.start_push(gradients, learning_rates, num_examples, tuple(self._pulled.versions))
        answer = self.finish_push()
        assert answer is not None
        return answer

    def start_push(
        self, gradients: Gradients, learning_rates: Sequence[float], num_examples: int, versions: Sequence[int]
    ) -> None:
        """Push one gradient: to the other shards first, then to ps-0, which decides on it.

        Blocks until the other shards have it, but not for ps-0; no other request to ps-0 before `finish_push`.

        Raises NanGradientError if a gradient is not finite. No ps has got any of them then; the ticket can be returned
        by `stop`.
        """
        began_at = self._clock()
        if not self._is_told:
            self._send_decisions()
        sequence = self._sequence + 1
        messages = {}
        for index in (*self._others, 0):
            writer = self._writers[index]
            push = writer.write(self._shards[index].connection, gradients, learning_rates, num_examples)
            if (found := writer.non_finite(push)) is not None:
                raise NanGradientError(self._clients.name, *found, self._global_step)
            body = self._codecs[index].encode_push(push)
            messages[index] = Message(Kind.PUSH, sequence=sequence, version=versions[index], body=body)
        sent = [index for index in self._others if not self._shards[index].deposit(messages[index])]
        for index in sent:
            self._shards[index].send(messages[index])
        for index in sent:
            self._shards[index].receive("take the push", REPLY_TIMEOUT_SECS)
        self._num_tickets -= 1
        messages[0].flags = self._num_tickets
        if not self._num_tickets and self._pulled.may_come_with_ticket:
            messages[0].flags |= WITH_PARAMETERS
        self._shards[0].send(messages[0])
        self._asking_secs = self._clock() - began_at

    def finish_push(self) -> Grant | JobEnd | None:
        """Wait for the answer to the push: the next ticket, or the end; None if there is only the ticket in hand."""
        began_at = self._clock()
        answer = self._answer("grant the next ticket")
        self._sequence += 1
        now = self._clock()
        push_secs = self._asking_secs + now - began_at
        self._fresh_until = now + push_secs
        self.pushes.add(push_secs)
        return answer

    def next_grant(self) -> Grant | JobEnd:
        """Request a ticket when holding none: at the start, or when a stream ended. Blocks."""
        self._num_tickets = 0
        answer = self.further_grant("grant the first ticket")
        assert answer is not None
        return answer

    def progress(self) -> tuple[int, bool]:
        """Return the global_step of the job, and whether it is over. Only before the first ticket. Blocks."""
        reply = self._shards[0].request(Message(Kind.STATISTICS), "report its counters", REPLY_TIMEOUT_SECS).json()
        return reply["job"]["global_step"], reply["job"]["phase"] == "finished"

    def further_grant(self, what: str = "grant a further ticket") -> Grant | JobEnd | None:
        """Request another ticket; None if there is none now. Blocks only when holding none."""
        self._shards[0].send(Message(Kind.NEXT, flags=self._num_tickets))
        return self._answer(what)

    def stop(self, reason: str, *, after_others: bool = False) -> JobEnd | Grant:
        """Return the tickets and ask the job to end, at once or when all other replicas have left. Blocks until then.

        Others may be in a loop of the user, which takes arbitrarily long.
        """
        self._num_tickets = 0
        message = Message.of(Kind.STOP, {"reason": str(reason)[:MAX_REASON_CHARS]})
        if after_others:
            message.flags, self._grant_timeout_secs = AFTER_OTHERS, math.inf
        self._shards[0].send(message)
        answer = self._answer("end the job")
        assert answer is not None
        return answer

    def fetch(self, index: int) -> bytes | None:
        """Fetch batch `index` of a stream, in memory of its own; None if the stream ended before it. Blocks.

        Raises InputError if the input_fn failed.
        """
        message = Message(Kind.FETCH, step=index)
        try:
            reply = self._shards[0].request(message, "send a batch of the input", self._hold_timeout_secs)
        except RefusedError as error:
            if error.code == "input":
                raise InputError((error.reason,)) from error
            raise
        return bytes(reply.body) if reply.kind is Kind.BATCH else None  # rows are pulled while it is in use

    def end_input(self, num_batches: int) -> None:
        """Report to ps-0 that the private stream of this replica has ended after `num_batches`. Blocks."""
        self._shards[0].request(Message(Kind.INPUT_ENDED, step=num_batches), "take the end", REPLY_TIMEOUT_SECS)

    def leave(self, *, begins_again: bool = False) -> None:
        """Report to every ps that this incarnation is over; a ps that is gone is not an error. Not within a step."""
        flags = BEGINS_AGAIN if begins_again else 0
        for shard in self._shards:
            shard.say_last(Message(Kind.LEAVE, flags=flags), GOOD_BYE_SECS)

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return self._clients.statistics() | {
            "pushes": self._sequence,
            "latency": {"pull": self.pulls.to_facts(), "push": self.pushes.to_facts()},
            "versions": list(self._pulled.versions),
            "rows_pulled": self.rows.num_pulled,
        }

    def _send_decisions(self) -> None:
        """Send the decisions of ps-0 to the other ps, as a pull does, too."""
        for index in self._others:
            self._shards[index].send(Message(Kind.PULL, flags=NO_BODY, body=self._log))
        for index in self._others:
            self._shards[index].receive("take the decisions", REPLY_TIMEOUT_SECS)
        self._is_told = True

    def _answer(self, what: str) -> Grant | JobEnd | None:
        self._pulled.drop()
        reply = self._shards[0].receive(what, self._grant_timeout_secs, self._pulled.room)
        self._grant_timeout_secs = self._hold_timeout_secs
        self._global_step = reply.step
        self.is_closing = bool(reply.flags & IS_CLOSING)
        if reply.kind is Kind.FINISHED:
            return JobEnd(reply.step)
        if reply.flags & WITH_PARAMETERS:
            self._pulled.carry(reply)
            self._log = b""  # no other ps needs one
        else:
            self._log = bytes(reply.body[0 if reply.kind is Kind.DONE else GRANT.size :])
        self._is_told = False
        if reply.kind is Kind.DONE:
            return None
        step, epoch, start, stop, staleness = GRANT.unpack_from(reply.body)
        self._num_tickets += 1
        return Grant(step, RecordRange(epoch, start, stop), staleness)
