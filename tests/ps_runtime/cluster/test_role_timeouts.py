"""What becomes of roles that do not do in time what they do next, without a cluster."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.cluster.role_timeouts import (
    END_TIMEOUT_SECS,
    LEAVE_TIMEOUT_SECS,
    LISTEN_TIMEOUT_SECS,
    START_TIMEOUT_SECS,
    enforce_timeouts,
)
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import job_roles
from tests.failing_slots import lose_slots

ROLES = PS, CHIEF, WORKER, EVALUATOR = job_roles(1, 1, evaluator=True)
LIFE = 65536


class Scene:
    """Roles that run, and a clock by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.supervisor = Supervisor(ROLES, LIFE, 3, clock=lambda: self.now)
        for role in ROLES:
            self.supervisor.start(role, self.supervisor.place(role, str(role)))
            self.supervisor.listen(role, LIFE)

    def look(self) -> None:
        enforce_timeouts(self.supervisor)


def test_a_worker_that_hangs_after_training_is_named_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.supervisor.finish(CHIEF, LIFE, {})
    scene.look()
    assert (scene.supervisor.to_end(), caplog.messages) == ([], [])
    scene.now = END_TIMEOUT_SECS
    for _ in range(2):
        scene.look()
    assert scene.supervisor.to_end() == [WORKER]
    [said] = caplog.messages
    assert said.startswith("worker-0 on the Dask worker worker-0 did not end within 60 s after the end of training; ")


def test_a_later_life_that_does_not_start_is_lost() -> None:
    scene = Scene()
    lose_slots(scene.supervisor, {str(WORKER)})
    scene.supervisor.place(WORKER, "new")
    scene.now = START_TIMEOUT_SECS - 1
    scene.look()
    assert scene.supervisor.waiting() == []
    scene.now = START_TIMEOUT_SECS
    scene.look()
    assert scene.supervisor.waiting() == [WORKER]


def test_a_later_ps_that_does_not_begin_to_listen_is_given_up() -> None:
    scene = Scene()
    lose_slots(scene.supervisor, {str(PS)})
    scene.supervisor.leave(CHIEF, LIFE)
    scene.supervisor.fail(CHIEF, LIFE, StoppedError("chief-0", "it was cancelled"))
    scene.supervisor.leave(WORKER, LIFE)
    scene.supervisor.start(PS, scene.supervisor.place(PS, "new"))
    scene.now = LISTEN_TIMEOUT_SECS - 1
    scene.look()
    assert scene.supervisor.due() == []  # who trains waits for it
    scene.now = LISTEN_TIMEOUT_SECS
    with pytest.raises(WaitTimeoutError, match=r"^ps-0 did not start listening within 300 s: check its log "):
        scene.look()


def test_a_chief_that_does_not_end_is_given_up() -> None:
    scene = Scene()
    lose_slots(scene.supervisor, {str(PS)})
    scene.look()
    scene.now = LEAVE_TIMEOUT_SECS
    with pytest.raises(WaitTimeoutError, match=r"^chief-0 did not end within 300 s: training rolls back to "):
        scene.look()
