"""When a lost role gets a slot, and how long it is waited for one, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from psflow.ps_runtime.cluster import restarter as module
from psflow.ps_runtime.cluster.placement import SLOT_TIMEOUT_SECS, FreeSlots
from psflow.ps_runtime.cluster.restarter import LOOK_SECS, SAY_AGAIN_SECS, Restarter
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId, job_roles
from tests.failing_slots import lose_slots

PS, CHIEF, WORKER, EVALUATOR = job_roles(1, 1, evaluator=True)


class Scene:
    """Roles of which the worker and the evaluator are lost, slots that somebody may free, and a clock manually."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, host: str | None = None) -> None:
        self.now = 0.0
        self.free: list[str] = []
        self.is_starting = False
        self.hosts: list[str | None] = []
        self.submitted: list[tuple[RoleId, str]] = []
        monkeypatch.setattr(module, "Deadline", lambda secs: Deadline(secs, lambda: self.now))
        monkeypatch.setattr(module, "free_now", self.free_now)
        monkeypatch.setattr(module, "await_taken", lambda client, free, chosen, check: None)
        self.supervisor = Supervisor([PS, CHIEF, WORKER, EVALUATOR], 1, 3, clock=self.clock)
        for role in (PS, CHIEF, WORKER, EVALUATOR):
            incarnation = self.supervisor.place(role, str(role))
            self.supervisor.start(role, incarnation)
            self.supervisor.listen(role, incarnation)
        lose_slots(self.supervisor, {str(WORKER), str(EVALUATOR)})
        self.restarter = Restarter(None, self.supervisor, self.submit, host, clock=self.clock)  # type: ignore[arg-type]

    @contextmanager
    def free_now(self, client: Any, check: Any, host: str | None, *, has_lock: bool) -> Iterator[FreeSlots | None]:
        self.hosts.append(host)
        yield None if self.is_starting and not has_lock else FreeSlots(list(self.free))

    def submit(self, role: RoleId, slot: str) -> None:
        self.supervisor.place(role, slot)
        self.submitted.append((role, slot))
        if slot in self.free:
            self.free.remove(slot)

    def clock(self) -> float:
        return self.now

    def look(self) -> None:
        self.now += LOOK_SECS
        self.restarter.place(lambda: None)


def lost(role: RoleId, secs: int) -> str:
    """Return what messages say of a role that was lost `secs` ago, with the Dask worker that is named like it."""
    return f"{role} was lost {secs} s ago, as its Dask worker {role} was lost"


def end_chief(supervisor: Supervisor) -> None:
    supervisor.fail(CHIEF, 1, StoppedError("chief-0", "it was cancelled"))
    supervisor.leave(CHIEF, 1)


def test_who_was_lost_first_among_the_roles_gets_the_first_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "10.0.0.1")
    scene.look()
    assert scene.submitted == []
    scene.free = ["a"]
    scene.restarter.place(lambda: None)  # too early for another look
    assert scene.submitted == []
    scene.look()
    assert scene.submitted == [(WORKER, "a")]
    scene.free = ["b", "c"]
    scene.look()
    scene.look()
    assert scene.submitted == [(WORKER, "a"), (EVALUATOR, "b")]
    assert set(scene.hosts) == {"10.0.0.1"}


def test_all_who_wait_are_placed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.free = ["a", "a", "b"]
    scene.look()
    assert scene.submitted == [(WORKER, "a"), (EVALUATOR, "b")]


def test_there_is_no_second_look_before_the_scheduler_knows_which_slots_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    supervisor = scene.supervisor
    lose_slots(supervisor, {str(PS)})
    end_chief(supervisor)
    scene.free = ["a", "b", "c", "d"]
    scene.restarter.place(lambda: None)
    assert scene.submitted == [(PS, "a")]
    supervisor.listen(PS, 2)
    scene.restarter.place(lambda: None)
    assert scene.submitted == [(PS, "a")]
    supervisor.start(PS, 2)
    scene.restarter.place(lambda: None)
    assert scene.submitted == [(PS, "a"), (CHIEF, "b"), (WORKER, "c"), (EVALUATOR, "d")]


def test_a_slot_whose_role_has_not_left_yet_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.supervisor = Supervisor([PS, CHIEF, WORKER], 1, 3)
    for role, slot in ((PS, "p"), (CHIEF, "c"), (WORKER, "w")):
        scene.supervisor.place(role, slot)
        scene.supervisor.listen(role, 1)
        scene.supervisor.start(role, 1)
    scene.restarter = Restarter(None, scene.supervisor, scene.submit, None)  # type: ignore[arg-type]
    lose_slots(scene.supervisor, {"p"})
    end_chief(scene.supervisor)
    scene.free = ["w"]  # as the scheduler has it: the task there was cancelled
    scene.look()
    assert scene.submitted == []
    scene.free = ["w", "c"]
    scene.look()
    assert scene.submitted == [(PS, "c")]


def test_a_slot_with_other_versions_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    options: Any = {"version_faults": lambda slots: {slot: f"{slot} is older" for slot in slots if slot == "a"}}
    scene.restarter = Restarter(None, scene.supervisor, scene.submit, None, clock=scene.clock, **options)  # type: ignore[arg-type]
    scene.free = ["a", "b"]
    scene.look()
    assert scene.submitted == [(WORKER, "b")]
    assert scene.restarter._reasons == f"a is older; {lost(EVALUATOR, 1)}; "


def test_roles_with_places_of_their_own_begin_there_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    places: dict[RoleId, str] = {EVALUATOR: "e"}
    scene.restarter = Restarter(None, scene.supervisor, scene.submit, None, places.get)  # type: ignore[arg-type]
    scene.free = ["a"]
    scene.look()
    assert scene.submitted == [(EVALUATOR, "e")]
    places[WORKER] = "w"
    scene.look()
    assert scene.submitted == [(EVALUATOR, "e"), (WORKER, "w")]
    assert scene.free == ["a"]


def test_a_slot_is_waited_for_as_long_as_others_are_there_and_five_minutes_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    for _ in range(3 * int(SLOT_TIMEOUT_SECS)):
        scene.look()
    for role in (PS, CHIEF):
        scene.supervisor.finish(role, 1, {})
    for _ in range(int(SLOT_TIMEOUT_SECS)):
        scene.look()
    words = (
        f"evaluator-0 did not begin on a free slot within 300 s: {lost(EVALUATOR, 1201)}; training is complete, and "
        "its checkpoints are kept; to evaluate the rest, resume the job, and add a Dask worker to the cluster, or end "
        "the tasks that take its threads or kill its processes"
    )
    with pytest.raises(WaitTimeoutError, match=f"^{words}$"):
        scene.look()


def test_the_five_minutes_begin_anew_once_nobody_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.free = ["e"]
    scene.restarter = Restarter(
        None,  # type: ignore[arg-type]
        scene.supervisor,
        scene.submit,
        None,
        clock=scene.clock,
        shortage=lambda: "" if scene.supervisor.is_trained else "it has too few workers",
    )
    scene.supervisor.place(WORKER, "w")
    scene.look()
    assert scene.submitted == [(EVALUATOR, "e")]
    scene.supervisor.start(EVALUATOR, 2)
    lose_slots(scene.supervisor, {"w"})
    scene.look()
    scene.supervisor.finish(CHIEF, 1, {})  # which lets the worker go
    for _ in range(int(SLOT_TIMEOUT_SECS)):
        scene.look()
    scene.supervisor.finish(PS, 1, {})
    lose_slots(scene.supervisor, {"e"})
    scene.look()
    assert scene.supervisor.waiting() == [EVALUATOR]


def test_without_a_ps_a_slot_is_waited_for_only_five_minutes_though_others_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    lose_slots(scene.supervisor, {str(PS)})
    end_chief(scene.supervisor)
    for _ in range(int(SLOT_TIMEOUT_SECS)):
        scene.look()
    with pytest.raises(WaitTimeoutError, match=r"^ps-0, chief-0, worker-0, evaluator-0 did not begin on a free"):
        scene.look()


def test_a_slot_is_waited_for_as_long_as_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.restarter = Restarter(None, scene.supervisor, scene.submit, None, slot_timeout_secs=20.0)  # type: ignore[arg-type]
    lose_slots(scene.supervisor, {str(PS)})
    end_chief(scene.supervisor)
    for _ in range(20):
        scene.look()
    with pytest.raises(WaitTimeoutError, match=r"^ps-0, .+ did not begin on a free slot within 20 s: ps-0 was lost"):
        scene.look()


def test_while_another_job_starts_no_slot_is_chosen_and_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(monkeypatch)
    lose_slots(scene.supervisor, {str(PS)})
    end_chief(scene.supervisor)
    scene.free, scene.is_starting = ["a"], True
    for _ in range(int(SLOT_TIMEOUT_SECS)):
        scene.look()
    assert scene.submitted == []
    why = "another job starts or rolls back on the cluster, and takes precedence until its roles have slots"

    def gone(secs: int) -> str:
        return "; ".join(lost(role, secs) for role in (PS, WORKER, EVALUATOR))

    assert (
        caplog.records[0]
        .getMessage()
        .endswith(f"on a free slot; {why}; {gone(31)}; let that job start first, or end it")
    )
    names = "ps-0, chief-0, worker-0, evaluator-0"
    reasons = f"{why}; {gone(301)}"
    words = (
        f"{names} did not begin on a free slot within 300 s: {reasons}; resume the job, and let that job start first"
    )
    with pytest.raises(WaitTimeoutError, match=f"^{words}, or end it$"):
        scene.look()
    scene.restarter.place(lambda: None, has_lock=True)  # too early for another look
    scene.now += LOOK_SECS
    scene.restarter.place(lambda: None, has_lock=True)
    assert scene.submitted == [(PS, "a")]


def test_with_too_few_workers_a_slot_is_waited_for_only_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    words = ["the job has 0 of the 1 workers that it needs (cluster.min_workers)"]
    scene.restarter = Restarter(
        None,  # type: ignore[arg-type]
        scene.supervisor,
        scene.submit,
        None,
        clock=scene.clock,
        shortage=lambda: words[0],
    )
    for _ in range(int(SLOT_TIMEOUT_SECS)):
        scene.look()
    words[0], there_again = "", words[0]
    scene.look()
    words[0] = there_again
    for _ in range(int(SLOT_TIMEOUT_SECS)):
        scene.look()
    found = r"worker-0, evaluator-0 did not begin on a free slot within 300 s: the job has 0 of the 1 workers that it"
    with pytest.raises(WaitTimeoutError, match=f"^{found}"):
        scene.look()


def test_slots_that_roles_are_about_to_take_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.free = ["a", "b"]
    scene.restarter.reserved = ["a"]
    scene.look()
    assert scene.submitted == [(WORKER, "b")]
    scene.restarter.reserved = ()
    scene.look()
    assert scene.submitted == [(WORKER, "b"), (EVALUATOR, "a")]


def test_it_is_said_now_and_then_whom_the_job_misses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(monkeypatch)
    scene.restarter = Restarter(None, scene.supervisor, scene.submit, None, lambda role: None, clock=scene.clock)  # type: ignore[arg-type]
    for _ in range(2 * int(SAY_AGAIN_SECS) + 1):
        scene.look()
    said = [record.getMessage() for record in caplog.records]
    who = "worker-0, evaluator-0: missing, waiting to begin in a process of its own"
    lines = [f"{who}; {lost(WORKER, secs)}; {lost(EVALUATOR, secs)}; start" for secs in (31, 61)]
    assert said == [f"{line} each of their processes again by its command" for line in lines]
