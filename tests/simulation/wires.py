"""What lies between a replica and a ps: connections that break, and messages that come late or twice.

Nothing waits: a reply that is held raises NotYet, and the same call is made again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, assert_never

from psflow.ps_runtime.client.push_writer import Gradients
from psflow.ps_runtime.client.shard_client import Identity, ShardClient, ShardClients, never_stop
from psflow.ps_runtime.client.training import Grant, JobEnd, TrainingClient
from psflow.ps_runtime.errors import BrokenPeerError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.transport.base import Connection

if TYPE_CHECKING:
    from tests.simulation.ps import PsProcess
    from tests.simulation.trainers import Trainer


class NotYet(Exception):  # noqa: N818  (nothing is wrong)
    """The reply is held; ask again later."""


class Fault(Enum):
    """What happens at a message."""

    DIES = "its sender is killed, and it is never sent"
    DIES_LATE = "its sender is killed, and it arrives later"
    REQUEST_LOST = "the connection breaks before it arrives"
    REPLY_LOST = "the connection breaks with the reply, whenever that comes"


@dataclass
class Trap:
    """A fault that waits for a message."""

    kind: Kind
    num_before: int
    """Messages of that kind that pass."""
    fault: Fault

    def springs_at(self, message: Message) -> bool:
        """Record a message; return whether the fault happens at it."""
        if message.kind is self.kind:
            self.num_before -= 1
        return self.num_before < 0


class Wire(Connection):
    """A connection of a trainer to a ps, with the faults that the trainer is to meet."""

    transport = "simulated"

    def __init__(self, trainer: Trainer, ps: PsProcess, *, trains: bool) -> None:
        if not ps.is_serving:
            raise BrokenPeerError(str(ps.role), "nobody listens there")
        self.peer = str(ps.role)
        self.ps = ps
        self.trains = trains
        self.inner = ps.server.connect(self.peer)
        self.late: Message | None = None
        """On its way when the sender died: it arrives before the end of the connection is seen."""
        self._trainer = trainer
        self._is_broken = self._loses_reply = False
        trainer.wires.append(self)

    def send(self, message: Message) -> None:
        self._check()
        trap = self._trainer.trap
        if trap is None or not trap.springs_at(message):
            self.deliver(message)
            return
        self._trainer.trap = None
        match trap.fault:
            case Fault.DIES | Fault.DIES_LATE:
                self.late = message if trap.fault is Fault.DIES_LATE else None
                self._trainer.die()
            case Fault.REQUEST_LOST:
                self.break_()
                self._check()
            case Fault.REPLY_LOST:
                self.deliver(message)
                self._loses_reply = True
            case unknown:
                assert_never(unknown)

    def deliver(self, message: Message) -> None:
        """Have a message arrive, now or late."""
        if not self.ps.is_serving:
            return
        if message.kind is Kind.PUSH:
            self.ps.note_push(self, self._trainer.key, message.sequence, self._trainer.pushing)
        elif message.kind is Kind.HELLO:
            self.ps.note_hello(self, self._trainer.key)
        elif message.kind is Kind.LEAVE:
            self.ps.note_end(self._trainer.key)
        elif message.kind is Kind.SNAPSHOT:
            self.ps.note_snapshot(message.step)
        self.inner.send(message)

    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:
        self._check()
        try:
            reply = self.inner.receive(0, into)
        except WaitTimeoutError:
            raise NotYet from None
        if self._loses_reply:
            self.break_()
            self._check()
        return reply

    def break_(self) -> None:
        """Have the connection break; the ps sees that later."""
        if not self._is_broken:
            self._is_broken = True
            self.ps.unseen.append(self)

    def close(self) -> None:
        self.break_()

    def shake_hands(self, timeout_secs: float) -> None:
        pass

    def share(self, timeout_secs: float) -> None:
        pass

    def outbox(self, nbytes: int) -> None:
        return None

    def keep(self) -> bool:
        return True

    def statistics(self) -> dict[str, int | str]:
        return self.inner.statistics()

    def _check(self) -> None:
        if self._is_broken or not self.ps.is_serving:
            raise BrokenPeerError(self.peer, "the line went dead")


class PatientShard(ShardClient):
    """A shard client that does not ask again for what it is waiting for, and that gives up on a dead ps at once.

    On one that lives it does not: a real one tries for seconds, in which no connection breaks as often as that.
    """

    def __init__(self, trainer: Trainer, ps: PsProcess, identity: Identity) -> None:
        trains = identity.purpose is Purpose.TRAIN
        super().__init__(lambda secs: Wire(trainer, ps, trains=trains), identity, never_stop, reconnect_secs=0)
        self.is_waiting = False
        self._ps = ps

    def _come_back(self, error: BrokenPeerError) -> None:
        while True:
            try:
                super()._come_back(error)
                return
            except BrokenPeerError:
                if not self._ps.is_serving:
                    raise

    def send(self, message: Message) -> None:
        if not self.is_waiting:
            super().send(message)

    def receive(self, what: str, timeout_secs: float, into: memoryview | None = None) -> Message:
        self.is_waiting = True
        try:
            reply = super().receive(what, timeout_secs, into)
        except NotYet:
            raise
        except BaseException:
            self.is_waiting = False
            raise
        self.is_waiting = False
        return reply


class PatientShards(ShardClients):
    """Those of all ps of a trainer."""

    def __init__(self, trainer: Trainer, all_ps: Sequence[PsProcess], identity: Identity) -> None:
        super().__init__((), identity, never_stop, timeout_secs=0)
        self._shards = [PatientShard(trainer, ps, identity) for ps in all_ps]


class PatientClient(TrainingClient):
    """A training client whose push may be made again while it is under way: it only looks for the answer then."""

    _is_pushing = False

    def start_push(
        self, gradients: Gradients, learning_rates: Sequence[float], num_examples: int, versions: Sequence[int]
    ) -> None:
        if not self._is_pushing:
            super().start_push(gradients, learning_rates, num_examples, versions)
            self._is_pushing = True

    def finish_push(self) -> Grant | JobEnd | None:
        answer = super().finish_push()
        self._is_pushing = False
        return answer
