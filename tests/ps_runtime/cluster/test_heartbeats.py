"""Heartbeats: what they say of a role, and which roles are silent for too long; without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from psflow.ps_runtime.cluster.heartbeats import Hang, Heartbeat, HeartbeatTimeouts, heartbeat_of, pulse_shown
from psflow.ps_runtime.cluster.incarnations import Member
from psflow.ps_runtime.roles.context import Pulse
from psflow.ps_runtime.specs.roles import RoleId

PS = Member(RoleId.parse("ps-0"), 65536, "tcp://h:1")
CHIEF = Member(RoleId.parse("chief-0"), 65536, "tcp://h:2")
TIMEOUT_SECS = 30.0


def seconds_until_hang(heartbeats: list[Heartbeat], member: Member = PS) -> tuple[float, list[Hang]]:
    """Return when a life hangs whose heartbeats come one each 5 s, the last of them for ever."""
    timeouts = HeartbeatTimeouts()
    for look in range(100):
        if hangs := timeouts.look(5.0, {member: heartbeats[min(look, len(heartbeats) - 1)]}, TIMEOUT_SECS):
            return 5.0 * look, hangs
    return float("inf"), []


def test_a_process_without_heartbeats_hangs_after_the_timeout() -> None:
    assert seconds_until_hang([Heartbeat(1.0, None)], CHIEF) == (30.0, [Hang(CHIEF, "answer")])
    assert seconds_until_hang([Heartbeat(1.0, 5), Heartbeat(2.0, 6)]) == (35.0, [Hang(PS, "answer")])


def test_a_process_whose_clock_is_set_back_has_a_heartbeat_all_the_same() -> None:
    late, early = Heartbeat(1e9, None), Heartbeat(1.0, None)
    assert seconds_until_hang([late] * 6 + [early] * 6 + [late])[0] == 90.0


def test_a_thread_that_does_nothing_hangs_though_its_process_answers() -> None:
    beats = [Heartbeat(float(i), min(i, 4)) for i in range(100)]
    assert seconds_until_hang(beats) == (50.0, [Hang(PS, "serve")])


def test_a_thread_that_serves_or_need_not_serve_never_hangs() -> None:
    assert seconds_until_hang([Heartbeat(float(i), i) for i in range(100)]) == (float("inf"), [])
    assert seconds_until_hang([Heartbeat(float(i), None) for i in range(100)]) == (float("inf"), [])


def test_nobody_knows_of_the_thread_of_a_silent_process() -> None:
    quiet = [Heartbeat(0.0, 7)] * 6
    beats = [*quiet, *(Heartbeat(float(i), 7) for i in range(1, 6)), Heartbeat(9.0, 8)]
    assert seconds_until_hang(beats) == (85.0, [Hang(PS, "answer")])


def test_time_begins_anew_for_a_life_that_hangs_and_for_another_one() -> None:
    timeouts = HeartbeatTimeouts()
    stands = {PS: Heartbeat(1.0, None), CHIEF: Heartbeat(1.0, None)}
    looks = [timeouts.look(10.0, stands, TIMEOUT_SECS) for _ in range(9)]
    assert [len(hangs) for hangs in looks] == [0, 0, 0, 2, 0, 0, 0, 2, 0]
    assert timeouts.look(10.0, {}, TIMEOUT_SECS) == []
    assert timeouts.look(300.0, stands, TIMEOUT_SECS) == []  # they are new
    assert [hang.member for hang in timeouts.look(300.0, stands, TIMEOUT_SECS)] == [PS, CHIEF]


SERVER, OTHER = (Member(RoleId.parse(f"ps-{i}"), 65536, "tcp://h:1") for i in range(2))


def heartbeat(worker: Any, member: Member) -> Heartbeat:
    """Return what a scheduler would hear now."""
    metrics = {name: metric(worker) for name, metric in worker.metrics.items()}
    return heartbeat_of({"last_seen": 5.0, "metrics": metrics}, "topic", member)


def test_each_role_shows_its_own_pulse_as_long_as_it_runs() -> None:
    worker: Any = SimpleNamespace(metrics={"cpu": lambda worker: 3}, loop=SimpleNamespace(add_callback=lambda f: f()))
    before, pulse = worker.metrics, Pulse()
    with pulse_shown(worker, "topic", SERVER.role, SERVER.incarnation, pulse):
        assert heartbeat(worker, SERVER) == Heartbeat(5.0, None), "it makes no rounds yet"
        with pulse.rounds():
            pulse.beat()
            assert heartbeat(worker, SERVER) == heartbeat(worker, SERVER) == Heartbeat(5.0, 1)
            assert heartbeat(worker, OTHER) == Heartbeat(5.0, None)
            assert heartbeat(worker, SERVER._replace(incarnation=65537)) == Heartbeat(5.0, None)
            with pulse.long_call():
                assert heartbeat(worker, SERVER) != heartbeat(worker, SERVER)
            assert heartbeat(worker, SERVER) == heartbeat(worker, SERVER)
        assert heartbeat(worker, SERVER) == Heartbeat(5.0, None)
    assert worker.metrics.keys() == {"cpu"}
    assert before.keys() == {"cpu"}, "the worker may be in the middle of it"
