"""What is noted of roles of which no event tells, without a cluster."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import role_monitor as module
from psflow.ps_runtime.cluster.hangs import RunningIncarnation
from psflow.ps_runtime.cluster.role_monitor import (
    END_TIMEOUT_SECS,
    LEAVE_TIMEOUT_SECS,
    LISTEN_TIMEOUT_SECS,
    RoleMonitor,
)
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import job_roles

PS, CHIEF, WORKER, EVALUATOR = job_roles(1, 1, evaluator=True)
LIFE = 65536


class Scene:
    """Roles that run, and a scheduler that lacks the Dask workers in `missing`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.missing: set[str] = set()
        self.looks: list[float] = []
        self.probed: list[RunningIncarnation] = []
        monkeypatch.setattr(module, "Presence", self.presence)
        monkeypatch.setattr(module, "Probe", lambda *given: SimpleNamespace(look=self.probe))
        self.supervisor = Supervisor([PS, CHIEF, WORKER, EVALUATOR], LIFE, 3, clock=lambda: self.now)
        for role in (PS, CHIEF, WORKER, EVALUATOR):
            self.supervisor.place(role, str(role))
            self.supervisor.start(role, LIFE)
            self.supervisor.listen(role, LIFE)
        self.monitor = self.new(30.0)

    def new(self, probe_timeout_secs: float) -> RoleMonitor:
        client: Any = SimpleNamespace(cluster=None)
        return RoleMonitor(client, "topic", self.supervisor, threading.Condition(), probe_timeout_secs)

    def presence(self, client: Any, look_secs: float) -> Any:
        self.looks.append(look_secs)
        return SimpleNamespace(missing=lambda slots: self.missing & slots, workers={})

    def probe(self, incarnations: list[RunningIncarnation], workers: Any) -> None:
        self.probed = incarnations


def test_all_who_run_are_probed_and_who_is_missing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.monitor.look()
    assert scene.probed == [RunningIncarnation(role, LIFE, str(role)) for role in (PS, CHIEF, WORKER, EVALUATOR)]
    scene.missing = {str(EVALUATOR)}
    scene.monitor.look()
    assert scene.supervisor.waiting() == [EVALUATOR]
    scene.monitor.look()
    assert [running.role for running in scene.probed] == [PS, CHIEF, WORKER]


@pytest.mark.parametrize(("timeout_secs", "look_secs"), [(30.0, 5.0), (3000.0, 5.0), (6.0, 1.0)])
def test_there_are_six_looks_within_the_timeout(
    monkeypatch: pytest.MonkeyPatch, timeout_secs: float, look_secs: float
) -> None:
    scene = Scene(monkeypatch)
    scene.new(timeout_secs)
    assert scene.looks[-1] == look_secs


def test_a_hang_is_why_a_life_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    assert scene.monitor._record_hang(RunningIncarnation(PS, LIFE, str(PS)), "it did not answer for 30 s")
    assert scene.supervisor.waiting() == []
    scene.missing = {str(PS)}
    scene.monitor.look()
    [loss] = scene.supervisor.losses(PS)
    assert str(loss.error) == "ps-0 failed: it did not answer for 30 s"


def test_a_worker_that_hangs_after_training_is_named_and_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(monkeypatch)
    scene.supervisor.finish(CHIEF, LIFE, {})
    scene.monitor.look()
    assert WORKER not in [running.role for running in scene.probed], "nobody goes on without it"
    assert (scene.supervisor.to_end(), caplog.messages) == ([], [])
    scene.now = END_TIMEOUT_SECS
    for _ in range(2):
        scene.monitor.look()
    assert scene.supervisor.to_end() == [WORKER]
    [said] = caplog.messages
    assert said.startswith("worker-0 on the Dask worker worker-0 did not end within 60 s after the end of training; ")


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_life_that_is_over_hangs_no_more(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    scene = Scene(monkeypatch)
    if is_lost:
        scene.supervisor.lose_slots({str(PS)})
    else:
        scene.supervisor.leave(PS, LIFE)
    assert not scene.monitor._record_hang(RunningIncarnation(PS, LIFE, str(PS)), "it did not answer for 30 s")


def test_a_later_ps_that_does_not_begin_to_listen_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.supervisor.lose_slots({str(PS)})
    scene.supervisor.leave(CHIEF, LIFE)
    scene.supervisor.fail(CHIEF, LIFE, StoppedError("chief-0", "it was cancelled"))
    scene.supervisor.leave(WORKER, LIFE)
    scene.supervisor.start(PS, scene.supervisor.place(PS, "new"))
    scene.now = LISTEN_TIMEOUT_SECS - 1
    scene.monitor.look()
    assert scene.supervisor.due() == []  # who trains waits for it
    scene.now = LISTEN_TIMEOUT_SECS
    with pytest.raises(WaitTimeoutError, match=r"^ps-0 did not start listening within 300 s: check its log "):
        scene.monitor.look()


def test_a_chief_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.supervisor.lose_slots({str(PS)})
    scene.monitor.look()
    scene.now = LEAVE_TIMEOUT_SECS
    with pytest.raises(WaitTimeoutError, match=r"^chief-0 did not end within 300 s: training rolls back to "):
        scene.monitor.look()
