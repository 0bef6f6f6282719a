"""When a ps gives a replica up, and when it leaves; told by a clock of its own."""

from __future__ import annotations

from typing import Any

import pytest

from psflow.ps_runtime.client.shard_client import Identity
from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.roles import ps as module
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.ps import LINGER_SECS, LOST_AFTER_SECS, LOST_LINGER_SECS, MAX_TICK_SECS, SLICE_SECS
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

SGD = GradientDescent(learning_rate=1.0)
MODEL = ModelSpec((VariableSpec("w", (), "float32", 0),), (SGD.config(),))


class Server:
    """A server and a clock: things happen at the seconds they are planned for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.plan: list[tuple[float, Any]] = []
        self.posted: list[Any] = []

    def monotonic(self) -> float:
        return self.now

    def run_once(self, timeout_secs: float) -> None:
        self.now += timeout_secs
        for event in self.posted:
            event()
        self.posted.clear()
        while self.plan and self.plan[0][0] <= self.now:
            self.plan.pop(0)[1]()

    def post(self, event: Any) -> None:
        self.posted.append(event)


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr(module, "time", server)
    return server


@pytest.fixture
def handler():
    job = Job(InputSpec(100), None, None)
    shard = Shard(place(MODEL, 1)[0], [SGD])
    return PsHandler(JobKey("job", "token", MODEL.digest, 8), shard, None, JobRequests(job, None, shard))


def join(handler, connection, replica=1, incarnation=3):
    hello = Identity("job", "token", MODEL.digest, f"worker-{replica}", Purpose.TRAIN, replica, incarnation).hello()
    assert [reply.kind for _, reply in handler.handle(connection, hello)] == [Kind.DONE]


def leave(handler, connection, replica=1):
    handler.handle(connection, Message(Kind.LEAVE, replica, 3, digest=MODEL.digest))


def serve(server, handler, until, num_replicas=1):
    """Serve until the clock says `until`; return when the ps left by itself, or None."""

    def check():
        if server.now >= until:
            raise StoppedError("ps-0", "the time is over")

    try:
        module._serve(server, handler, RoleContext(RoleId(Role.PS, 0), 1, check, print), num_replicas)
    except StoppedError:
        return None
    return server.now


def test_a_replica_that_does_not_come_back_is_given_up(server, handler):
    join(handler, 1)
    seen = []
    server.plan = [
        (1.0, lambda: handler.disconnected(1)),
        (1.0 + LOST_AFTER_SECS - SLICE_SECS, lambda: seen.append(handler.job_requests.job.replicas)),
    ]
    serve(server, handler, until=1 + LOST_AFTER_SECS + 3 * SLICE_SECS)
    assert seen == [{1: 3}]
    assert handler.job_requests.job.replicas == {}
    assert handler.job_requests.absent == {}


def test_a_replica_that_comes_back_in_time_is_not(server, handler):
    join(handler, 1)
    back_at = LOST_AFTER_SECS - 2.0
    server.plan = [(1.0, lambda: handler.disconnected(1)), (back_at, lambda: join(handler, 2))]
    serve(server, handler, until=3 * LOST_AFTER_SECS)
    assert handler.job_requests.job.replicas == {1: 3}


def test_the_wait_begins_anew_with_each_connection_that_breaks(server, handler):
    join(handler, 1)
    at = LOST_AFTER_SECS - 2.0

    def come_and_go():
        join(handler, 2)
        handler.disconnected(2)

    seen = []
    server.plan = [
        (1.0, lambda: handler.disconnected(1)),
        (at, come_and_go),
        (at + LOST_AFTER_SECS - SLICE_SECS, lambda: seen.append(handler.job_requests.job.replicas)),
    ]
    serve(server, handler, until=at + LOST_AFTER_SECS + 3 * SLICE_SECS)
    assert seen == [{1: 3}]
    assert handler.job_requests.job.replicas == {}


def test_time_in_which_a_ps_was_stopped_is_not_that_of_its_replicas(server, handler):
    seen = []
    handler.job_requests.tick = lambda secs: seen.append(secs) or []

    def sleep():
        server.now += 3600

    server.plan = [(1.0, sleep)]
    serve(server, handler, until=3602.0)
    assert max(seen) == MAX_TICK_SECS
    assert sum(seen) == pytest.approx(2.0, abs=2 * MAX_TICK_SECS)


def test_a_ps_serves_on_while_nobody_ends_the_job(server, handler):
    assert serve(server, handler, until=10_000.0) is None


def test_a_finished_ps_leaves_with_the_last_good_bye(server, handler):
    handler.is_finished = True
    for replica in (0, 1):
        join(handler, replica, replica)
    server.plan = [(1.0, lambda: leave(handler, 0, 0)), (2.0, lambda: leave(handler, 1, 1))]
    assert serve(server, handler, until=100.0, num_replicas=2) == pytest.approx(2.0, abs=2 * SLICE_SECS)


def test_a_finished_ps_waits_for_replicas_that_start_late(server, handler):
    handler.is_finished = True
    assert serve(server, handler, until=100.0) == pytest.approx(LINGER_SECS, abs=3 * SLICE_SECS)


def test_a_finished_ps_waits_for_a_replica_whose_connection_broke(server, handler):
    handler.is_finished = True
    join(handler, 1, 0)
    handler.disconnected(1)
    assert serve(server, handler, until=100.0) == pytest.approx(LINGER_SECS, abs=3 * SLICE_SECS)


def test_a_finished_ps_waits_a_moment_for_the_lost(server, handler):
    handler.is_finished = True
    join(handler, 1, 0)
    leave(handler, 1, 0)
    server.plan = [(2.0, lambda: handler.job_requests.lost(1, 3))]  # one that never came
    assert serve(server, handler, until=100.0, num_replicas=2) == pytest.approx(2.0, abs=2 * SLICE_SECS)


def test_a_finished_ps_waits_for_a_lost_replica_that_began_again(server, handler):
    handler.is_finished = True
    join(handler, 1, 0)
    handler.job_requests.lost(0, 3)
    join(handler, 2, 0, incarnation=4)
    assert serve(server, handler, until=100.0) == pytest.approx(LINGER_SECS, abs=3 * SLICE_SECS)


def test_another_finished_ps_waits_a_moment_for_those_that_have_gone(server):
    handler = PsHandler(JobKey("job", "token", MODEL.digest, 8), Shard(place(MODEL, 1)[0], [SGD]), None, None)
    handler.is_finished = True
    join(handler, 1, 0)
    leave(handler, 1, 0)
    join(handler, 2, 1)
    server.plan = [(0.5, lambda: handler.disconnected(2))]
    left_at = serve(server, handler, until=100.0, num_replicas=2)
    assert left_at == pytest.approx(LOST_LINGER_SECS, abs=2 * SLICE_SECS)


def test_a_ps_shows_that_it_serves_five_times_a_second(server, handler):
    context = RoleContext(RoleId(Role.PS, 0), 1, lambda: None, print)
    seen = []

    def look():
        with context.pulse.rounds():
            seen.append(context.pulse.read())
        if server.now >= 11:
            raise StoppedError("ps-0", "the time is over")

    server.plan = [(1.0, look), (11.0, look)]
    with pytest.raises(StoppedError):
        module._serve(server, handler, context, 1)
    assert seen[1] - seen[0] == pytest.approx(10 / SLICE_SECS, abs=1)
