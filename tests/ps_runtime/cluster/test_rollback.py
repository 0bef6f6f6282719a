"""How long a job that goes back keeps others from its slots; without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest

from psflow.ps_runtime.cluster import rollback as module
from psflow.ps_runtime.cluster.rollback import KEEP_SECS, RollbackReservation
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError, StoppedError
from psflow.ps_runtime.specs.roles import RoleId, job_roles
from tests.failing_slots import lose_slots

PS, CHIEF, WORKER = job_roles(1, 1, evaluator=False)


class Scene:
    """Roles that train, a turn that another job may have, and a clock manually."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.is_others = False
        self.is_broken = False
        self.num_closed = 0
        monkeypatch.setattr(module, "Deadline", lambda secs: Deadline(secs, lambda: self.now))
        monkeypatch.setattr(module, "ClusterLock", lambda client, name: self)
        self.supervisor = Supervisor([PS, CHIEF, WORKER], 1, 3)
        for role in (PS, CHIEF, WORKER):
            self.begin(role)
        self.returning = RollbackReservation(None, self.supervisor)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.num_closed += 1

    def take(self, check: Callable[[], None]) -> bool:
        if self.is_broken:
            raise RoleFailedError("the Dask scheduler", "the connection to it broke")
        return not self.is_others

    def begin(self, role: RoleId) -> None:
        incarnation = self.supervisor.place(role, str(role))
        self.supervisor.start(role, incarnation)
        self.supervisor.listen(role, incarnation)

    def end(self, role: RoleId) -> None:
        error: Any = StoppedError(str(role), "it was cancelled")
        self.supervisor.fail(role, 1, error)
        self.supervisor.leave(role, 1)

    def has_lock(self) -> bool:
        self.returning.look(lambda: None)
        return self.returning.has_lock


def test_who_goes_back_has_the_turn_until_all_roles_have_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    assert not scene.has_lock()
    lose_slots(scene.supervisor, {str(PS)})
    assert scene.has_lock()
    for role in (CHIEF, WORKER):
        scene.end(role)
        assert scene.has_lock()
    for role in (PS, CHIEF):
        assert scene.has_lock()
        scene.begin(role)
    assert not scene.has_lock()
    assert scene.num_closed == 1


@pytest.mark.parametrize("lost", [CHIEF, WORKER])
def test_a_role_with_which_training_does_not_go_back_needs_no_turn(
    monkeypatch: pytest.MonkeyPatch, lost: RoleId
) -> None:
    scene = Scene(monkeypatch)
    scene.supervisor.step(CHIEF, 1)
    lose_slots(scene.supervisor, {str(lost)})
    assert scene.supervisor.waiting() == [lost]
    assert not scene.has_lock()


def test_who_finds_no_slot_lets_others_choose_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    lose_slots(scene.supervisor, {str(PS)})
    assert scene.has_lock()
    scene.now = KEEP_SECS
    assert not scene.has_lock()
    scene.now += 1
    assert not scene.has_lock()


def test_a_turn_of_another_job_is_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    lose_slots(scene.supervisor, {str(PS)})
    scene.is_others = True
    assert not scene.has_lock()
    scene.is_others, scene.is_broken = False, True
    assert not scene.has_lock()
    scene.is_broken = False
    assert scene.has_lock()
    scene.returning.close()
    scene.returning.close()
    assert scene.num_closed == 3
