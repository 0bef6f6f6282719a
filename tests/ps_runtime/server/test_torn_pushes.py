"""Whatever dies when, every shard holds exactly the committed pushes of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.protocol.payloads import GRANT
from psflow.ps_runtime.server.instructions import Phase
from psflow.ps_runtime.specs import layout
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

MODEL = ModelSpec(
    (
        VariableSpec("table", (7, 2), "float32", 0),
        VariableSpec("bias", (3,), "float64", 0),
        VariableSpec("scale", (), "float32", 0),
        VariableSpec("fixed", (2,), "float32", None),
    ),
    (GradientDescent(learning_rate=1.0).config(),),
)
REPLICAS = st.integers(0, 2)
START = {v.name: np.full(v.shape, 100, v.dtype) for v in MODEL.variables}


@dataclass
class Replica:
    """A life of a training replica, as its own memory has it."""

    incarnation: int
    connections: list[int]
    acknowledged: int = 0
    log: bytes = b""
    """What came with its last ticket."""
    ticket: bool = False
    at: int = 0
    """The shard that the push under way goes to next; 0 is the last."""
    awaits: bool = False
    """Whether ps-0 holds an answer for it."""
    last: dict[int, Message] = field(default_factory=dict)


class TornPushes(RuleBasedStateMachine):
    def __init__(self, servers_of, saved_as):
        super().__init__()
        self.servers_of, self.saved_as = servers_of, saved_as
        self.patch = patch.object(layout, "MIN_PIECE_BYTES", 8)  # so that small variables are split too
        self.patch.start()

    def teardown(self):
        self.patch.stop()

    @initialize(num_ps=st.integers(1, 3))
    def begin(self, num_ps):
        self.saved = {}
        self.newest = dict.fromkeys(range(3), 0)
        self.committed: dict[tuple[int, int], int] = {}
        self.values = {name: value.copy() for name, value in START.items()}
        self.step = 0
        self.start(num_ps)
        for ps in range(num_ps):
            self.ask_chief(ps, Message(Kind.INITIALIZE, body=self.servers.arena_of(ps, START).data))
        assert self.ask_chief(0, Message(Kind.OPEN)).step == 0

    def start(self, num_ps):
        self.num_ps = num_ps
        self.servers = self.servers_of(MODEL, num_ps, InputSpec(50, num_epochs=None), saved=self.saved)
        self.replicas: dict[int, Replica] = {}
        self.held = [{} for _ in range(num_ps)]
        self.torn = 0
        self.history = [dict(self.values)]
        self.saver = [self.servers.connect() for _ in range(num_ps)]
        for ps, peer in enumerate(self.saver):
            assert self.servers.send(ps, peer, self.servers.hello(Purpose.SAVE, 0, self.newest[0])).kind is Kind.DONE
        self.chief_incarnation = self.newest[0]

    def ask_chief(self, ps, message):
        message = self.servers.signed(message, 0, self.chief_incarnation)
        reply = self.servers.send(ps, self.saver[ps], message)
        assert reply is None or reply.kind is not Kind.REFUSED, reply
        return reply

    def send(self, index, ps, message):
        replica = self.replicas[index]
        message = self.servers.signed(message, index, replica.incarnation)
        replica.last[ps] = message
        return self.hear(index, ps, self.servers.send(ps, replica.connections[ps], message))

    def hear(self, index, ps, reply):
        """Let the replica learn from an answer of ps-0."""
        replica = self.replicas[index]
        assert reply is None or reply.kind is not Kind.REFUSED, reply
        if ps == 0 and reply is not None and reply.kind is Kind.GRANT:
            if replica.last[0].kind is Kind.PUSH:
                replica.acknowledged = replica.last[0].sequence
            replica.ticket, replica.awaits, replica.at = True, False, 1 % self.num_ps
            replica.log = bytes(reply.body[GRANT.size :])
        return reply

    def hear_what_was_held(self):
        for index, replica in self.replicas.items():
            reply = self.servers.inbox.pop((0, replica.connections[0]), None)
            if reply is not None:
                self.hear(index, 0, reply)

    # what replicas do

    @rule(index=REPLICAS)
    def a_new_life(self, index):
        """Come anew; the connections of the life before are noticed to be broken later, or never."""
        self.newest[index] += 1
        replica = Replica(self.newest[index], [self.servers.connect() for _ in range(self.num_ps)])
        former = self.replicas.pop(index, None)
        self.replicas[index] = replica
        for ps, peer in enumerate(replica.connections):
            hello = self.servers.hello(replica=index, incarnation=replica.incarnation)
            reply = self.servers.send(ps, peer, hello)
            assert (reply.kind, reply.sequence) == (Kind.DONE, 0)
        self.committed[index, replica.incarnation] = 0
        if former is not None:
            self.servers.inbox.pop((0, former.connections[0]), None)
            for ps, message in former.last.items():
                with pytest.raises(ProtocolError, match=r"a newer connection of \S+ has replaced this one"):
                    self.servers.send(ps, former.connections[ps], message)
            for ps, peer in enumerate(former.connections):
                self.servers.disconnect(ps, peer)
        self.hear_what_was_held()

    @rule(index=REPLICAS, num_messages=st.integers(1, 7), data=st.data())
    def train(self, index, num_messages, data):
        """Push on, shard by shard, and stop anywhere."""
        if index not in self.replicas:
            self.a_new_life(index)
        self.ask(index)
        for _ in range(num_messages):
            self.push_to_the_next_shard(index, data)

    def ask(self, index):
        if not self.replicas[index].ticket and not self.replicas[index].awaits:
            self.replicas[index].awaits = True
            self.send(index, 0, Message(Kind.NEXT))
            self.hear_what_was_held()

    def push_to_the_next_shard(self, index, data):
        replica = self.replicas[index]
        if not replica.ticket:
            return
        ps, sequence = replica.at, replica.acknowledged + 1
        key = (index, replica.incarnation)
        if ps == 1 or self.num_ps == 1:
            for other in range(self.num_ps):
                self.pull(index, other)
            self.draw_gradients(replica, data)
        body = self.servers.push_body(ps, replica.gradients)
        if ps:
            self.held[ps][key] = sequence
            replica.at = (ps + 1) % self.num_ps
        else:
            replica.ticket, replica.awaits = False, True
            self.commit(key, sequence, replica.gradients)
        push = Message(Kind.PUSH, sequence=sequence, body=body)
        if ps and data.draw(st.booleans()):
            replica.last[ps] = self.servers.signed(push, index, replica.incarnation)
            self.servers.deposit(ps, replica.connections[ps], replica.last[ps])
        else:
            self.send(index, ps, push)
        self.hear_what_was_held()

    def draw_gradients(self, replica, data):
        names = [v.name for v in MODEL.variables if v.optimizer is not None]
        chosen = data.draw(st.sets(st.sampled_from(names)))
        size = data.draw(st.integers(1, 3))
        replica.gradients = {
            v.name: np.arange(1, 1 + np.prod(v.shape, dtype=int)).reshape(v.shape).astype(v.dtype) * size
            for v in MODEL.variables
            if v.name in chosen
        }

    def commit(self, key, sequence, gradients):
        self.committed[key] = sequence
        self.step += 1
        for name, gradient in gradients.items():
            self.values[name] = self.values[name] - gradient
        self.history.append(dict(self.values))

    @rule(index=REPLICAS, ps=st.integers(0, 2))
    def pull(self, index, ps):
        replica = self.replicas.get(index)
        if replica is None or ps >= self.num_ps or replica.awaits:
            return
        if not replica.ticket:
            return
        reply = self.send(index, ps, Message(Kind.PULL, body=replica.log if ps else b""))
        assert reply.kind is Kind.PARAMETERS

    @rule(index=REPLICAS, ps=st.integers(0, 2), old_is_noticed_first=st.booleans())
    def come_back_and_repeat(self, index, ps, old_is_noticed_first):
        """Lose a connection after the request went through, with or without its answer; say all of it again."""
        replica = self.replicas.get(index)
        if replica is None or ps >= self.num_ps or ps not in replica.last:
            return
        former, replica.connections[ps] = replica.connections[ps], self.servers.connect()
        if old_is_noticed_first:
            self.servers.disconnect(ps, former)
        hello = self.servers.hello(replica=index, incarnation=replica.incarnation)
        reply = self.servers.send(ps, replica.connections[ps], hello)
        assert reply.sequence == (self.committed[index, replica.incarnation] if ps == 0 else 0)
        if not old_is_noticed_first:
            with pytest.raises(ProtocolError, match=r"a newer connection of \S+ has replaced this one"):
                self.servers.send(ps, former, replica.last[ps])  # it was under way for long
            self.servers.disconnect(ps, former)
        repeated = replica.last[ps]
        if ps == 0 and repeated.kind is Kind.PUSH and repeated.sequence < self.committed[index, replica.incarnation]:
            return
        if ps == 0 and not replica.awaits and repeated.kind is not Kind.PULL:
            replica.ticket, replica.awaits = False, True
        self.send(index, ps, repeated)
        self.hear_what_was_held()

    @rule(index=REPLICAS)
    def die_for_good(self, index):
        replica = self.replicas.pop(index, None)
        if replica is not None:
            for ps, peer in enumerate(replica.connections):
                self.servers.disconnect(ps, peer)
            assert (index, replica.incarnation) in self.servers.job_requests.absent.values()
            self.servers.deliver(0, self.servers.job_requests.lost(index, replica.incarnation))
            self.hear_what_was_held()

    # what the chief does

    @rule()
    def snapshot(self):
        """Make a snapshot as soon as the tickets that are out allow it, and hold it against the truth."""
        self.ask_chief(0, Message(Kind.REQUEST_SNAPSHOT))
        self.hear_what_was_held()
        told = self.ask_chief(0, Message(Kind.AWAIT_SNAPSHOT))
        self.hear_what_was_held()
        if told is None:
            told = self.let_tickets_return()
        snapshot = Snapshot.from_facts(told.json())
        assert (told.kind, snapshot.step) == (Kind.SNAPSHOT_DUE, self.step)
        for ps in range(self.num_ps):
            assert self.ask_chief(ps, Message(Kind.SNAPSHOT, step=snapshot.step, body=told.body)).version == self.step
            self.torn += sum(sequence > self.committed[key] for key, sequence in self.held[ps].items())
            self.held[ps] = {}
        values = self.servers.variables(of_snapshot=True)
        for name, value in self.values.items():
            np.testing.assert_array_equal(values[name], value)
        assert sum(handler.shard.torn_pushes for handler in self.servers.handlers) == self.torn
        self.saved = {snapshot.step: self.saved_as(values, snapshot.to_facts())}
        self.saved_committed = dict(self.committed)
        self.ask_chief(0, Message(Kind.RESUME, step=snapshot.step))
        self.hear_what_was_held()

    def let_tickets_return(self):
        """Let those who hold a ticket, or were pushing, be lost: a snapshot waits for nobody else."""
        for index in list(self.replicas):
            self.die_for_good(index)
        return self.servers.inbox.pop((0, self.saver[0]))

    @rule(num_ps=st.integers(1, 3))
    def restore(self, num_ps):
        """Lose everything; go on from the last snapshot on another number of ps."""
        if not self.saved:
            return
        (step, saved), *_ = self.saved.items()
        self.newest = {index: incarnation + 1 for index, incarnation in self.newest.items()}
        self.committed = dict(self.saved_committed)
        self.values = {name: value.copy() for name, value in saved.variables.items()}
        self.step = step
        self.start(num_ps)
        for ps in range(num_ps):
            assert self.ask_chief(ps, Message(Kind.RESTORE, step=step)).kind is Kind.DONE
        assert self.ask_chief(0, Message(Kind.OPEN)).step == step
        restored = self.servers.variables()
        for name, value in self.values.items():
            np.testing.assert_array_equal(restored[name], value)

    @invariant()
    def ps_0_holds_what_is_committed(self):
        job, ps_0 = self.servers.job, self.servers.handlers[0].shard
        assert job.global_step == ps_0.version == self.step
        np.testing.assert_array_equal(ps_0.arrays.arena, self.servers.arena_of(0, self.values))

    @invariant()
    def every_shard_has_made_the_same_updates_in_the_same_order(self):
        for ps, handler in enumerate(self.servers.handlers):
            behind = self.step - handler.shard.version
            assert 0 <= behind < len(self.history)
            values = self.history[len(self.history) - 1 - behind]
            np.testing.assert_array_equal(handler.shard.arrays.arena, self.servers.arena_of(ps, values))

    @invariant()
    def who_is_connected_is_not_absent(self):
        sequences = {(index, replica.incarnation) for index, replica in self.replicas.items()}
        assert not sequences & set(self.servers.job_requests.absent.values())

    @invariant()
    def nobody_waits_without_need(self):
        if self.servers.job.phase is Phase.TRAINING:
            assert not any(replica.awaits for replica in self.replicas.values())


def test_every_shard_holds_exactly_the_committed_pushes_of_a_cut(servers_of, saved_as):
    run_state_machine_as_test(
        lambda: TornPushes(servers_of, saved_as),
        settings=settings(max_examples=settings().max_examples * 2, stateful_step_count=20, report_multiple_bugs=False),
    )
