"""When a lost role gets a slot, and how long it is waited for one, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from psflow.ps_runtime.cluster import restarting as module
from psflow.ps_runtime.cluster.restarting import LOOK_SECS, NO_SLOT_SECS, Restarting
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CapacityError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId, job_roles

PS, CHIEF, WORKER, EVALUATOR = job_roles(1, 1, evaluator=True)


class Scene:
    """Roles of which the worker and the evaluator are lost, slots that somebody may free, and a clock by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, host: str | None = None) -> None:
        self.now = 0.0
        self.free: list[str] = []
        self.hosts: list[str | None] = []
        self.submitted: list[tuple[RoleId, str]] = []
        monkeypatch.setattr(module, "Deadline", lambda secs: Deadline(secs, lambda: self.now))
        monkeypatch.setattr(module, "admission", self.admission)
        self.supervisor = Supervisor([PS, CHIEF, WORKER, EVALUATOR], 1, 3)
        for role in (PS, CHIEF, WORKER, EVALUATOR):
            self.supervisor.place(role, str(role))
        self.supervisor.lose_slots({str(WORKER), str(EVALUATOR)})
        self.restarting = Restarting(None, self.supervisor, self.submit, host)  # type: ignore[arg-type]

    @contextmanager
    def admission(self, client: Any, num_roles: int, policy: Any, check: Any) -> Iterator[list[str]]:
        assert (num_roles, policy.waits_for_slots) == (1, False)
        self.hosts.append(policy.host)
        if not self.free:
            raise CapacityError(1, 0, "the cluster")
        yield [self.free.pop(0)]

    def submit(self, role: RoleId, slot: str) -> None:
        self.supervisor.place(role, slot)
        self.submitted.append((role, slot))

    def look(self) -> None:
        self.now += LOOK_SECS
        self.restarting.place(lambda: None)


def test_who_was_lost_first_among_the_roles_gets_the_first_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "10.0.0.1")
    scene.look()
    assert scene.submitted == []
    scene.free = ["a"]
    scene.restarting.place(lambda: None)  # too early for another look
    assert scene.submitted == []
    scene.look()
    assert scene.submitted == [(WORKER, "a")]
    scene.free = ["b", "c"]
    scene.look()
    scene.look()
    assert scene.submitted == [(WORKER, "a"), (EVALUATOR, "b")]
    assert set(scene.hosts) == {"10.0.0.1"}


def test_one_look_places_one_role_as_the_next_may_be_shown_the_same_slot_still(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.free = ["a", "a"]  # the scheduler has not heard of the first role when it is asked again
    scene.look()
    assert scene.submitted == [(WORKER, "a")]
    scene.free = ["b"]
    scene.look()
    assert scene.submitted == [(WORKER, "a"), (EVALUATOR, "b")]


def test_roles_with_places_of_their_own_begin_there_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    places: dict[RoleId, str] = {EVALUATOR: "e"}
    scene.restarting = Restarting(None, scene.supervisor, scene.submit, None, places.get)  # type: ignore[arg-type]
    scene.free = ["a"]
    scene.look()
    assert scene.submitted == [(EVALUATOR, "e")]
    places[WORKER] = "w"
    scene.look()
    assert scene.submitted == [(EVALUATOR, "e"), (WORKER, "w")]
    assert scene.free == ["a"]


def test_a_slot_is_waited_for_as_long_as_others_are_there_and_a_minute_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    for _ in range(3 * int(NO_SLOT_SECS)):
        scene.look()
    for role in (PS, CHIEF):
        scene.supervisor.finish(role, 1, {})
    for _ in range(int(NO_SLOT_SECS)):
        scene.look()
    with pytest.raises(WaitTimeoutError, match=r"^evaluator-0 did not find a free slot to begin again within 60 s"):
        scene.look()
