"""Which lives are silent for too long, as plain heartbeats and seconds, without a cluster."""

from __future__ import annotations

from psflow.ps_runtime.cluster.hangs import Hang, Heartbeat, RunningIncarnation, Silence
from psflow.ps_runtime.specs.roles import RoleId

PS = RunningIncarnation(RoleId.parse("ps-0"), 65536, "tcp://h:1")
CHIEF = RunningIncarnation(RoleId.parse("chief-0"), 65536, "tcp://h:2")
TIMEOUT_SECS = 30.0


def seconds_until_hang(heartbeats: list[Heartbeat], running: RunningIncarnation = PS) -> tuple[float, list[Hang]]:
    """Return when a life hangs whose heartbeats come one each 5 s, the last of them for ever."""
    silence = Silence()
    for look in range(100):
        if hangs := silence.look(5.0, {running: heartbeats[min(look, len(heartbeats) - 1)]}, TIMEOUT_SECS):
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
    silence = Silence()
    stands = {PS: Heartbeat(1.0, None), CHIEF: Heartbeat(1.0, None)}
    looks = [silence.look(10.0, stands, TIMEOUT_SECS) for _ in range(9)]
    assert [len(hangs) for hangs in looks] == [0, 0, 0, 2, 0, 0, 0, 2, 0]
    assert silence.look(10.0, {}, TIMEOUT_SECS) == []
    assert silence.look(300.0, stands, TIMEOUT_SECS) == []  # they are new
    assert [hang.running for hang in silence.look(300.0, stands, TIMEOUT_SECS)] == [PS, CHIEF]
