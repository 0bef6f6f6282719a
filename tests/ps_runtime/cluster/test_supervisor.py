"""Lives of roles that are lost, return and fail, as plain events, without a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.cluster.incarnations import HOUR_SECS, UserFault
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import (
    BrokenPeerError,
    ClosedError,
    IncarnationOverError,
    InterruptedLoopError,
    RefusedError,
    RoleFailedError,
    RoleLostError,
    StoppedError,
    WaitTimeoutError,
)
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from tests.failing_slots import hang, lose_slots

PS, CHIEF, WORKER, OTHER, EVALUATOR = job_roles(1, 2, evaluator=True)
FIRST = 65536


@dataclass
class Scene:
    """A supervisor whose roles have all started, each on a Dask worker of its own name, at a time that stands still."""

    max_restarts: int = 3
    rolls_back: bool = True
    now: float = 0.0
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        roles = [PS, CHIEF, WORKER, OTHER, EVALUATOR]
        self.supervisor = Supervisor(
            roles, FIRST, self.max_restarts, rolls_back=self.rolls_back, clock=lambda: self.now
        )
        for role in (PS, CHIEF, WORKER, OTHER, EVALUATOR):
            self.begin(role, str(role))

    def begin(self, role: RoleId, slot: str) -> int:
        """Place a life and have it start; return its incarnation."""
        incarnation = self.supervisor.place(role, slot)
        self.supervisor.start(role, incarnation)
        if role.role is Role.PS:
            self.supervisor.listen(role, incarnation)
        return incarnation

    def leave(self, *roles: RoleId) -> None:
        """Have recalled first lives end."""
        for role in roles:
            self.supervisor.fail(role, FIRST, StoppedError(str(role), "it was cancelled"))
            self.supervisor.leave(role, FIRST)

    def errors(self) -> dict[RoleId, str]:
        """Return what has failed."""
        return {role: str(error) for role, error in self.supervisor.errors()}


@pytest.mark.parametrize("role", [WORKER, OTHER, EVALUATOR])
def test_a_lost_worker_or_evaluator_waits_for_a_slot_and_begins_a_later_life(role: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(role)})
    assert (supervisor.waiting(), scene.errors()) == ([role], {})
    assert role not in supervisor.slots()
    [loss] = supervisor.losses(role)
    assert (loss.incarnation, str(loss.error)) == (FIRST, f"{role} failed: its Dask worker {role} was lost")
    assert not loss.is_rollback
    assert (supervisor.to_end(), supervisor.due()) == ([role], [role])
    assert scene.begin(role, "elsewhere") == FIRST + 1
    assert supervisor.waiting() == []
    assert supervisor.slots()[role] == "elsewhere"


@pytest.mark.parametrize("role", [PS, CHIEF])
def test_where_there_is_no_checkpoint_a_lost_ps_or_chief_is_what_the_job_fails_of(role: RoleId) -> None:
    supervisor = (scene := Scene(rolls_back=False)).supervisor
    lose_slots(supervisor, {str(role)})
    assert supervisor.waiting() == []
    assert scene.errors() == {role: f"{role} failed: its Dask worker {role} was lost"}
    assert isinstance(supervisor.error(role), RoleLostError)


@pytest.mark.parametrize("lost", [PS, CHIEF])
def test_with_a_ps_or_the_chief_all_training_goes_back_and_the_ps_begin_first(lost: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    others = [role for role in (PS, CHIEF, WORKER, OTHER) if role != lost]
    lose_slots(supervisor, {str(lost)})
    assert supervisor.to_end() == [PS, CHIEF, WORKER, OTHER]
    assert (supervisor.waiting(), supervisor.due(), supervisor.is_training) == ([lost], [], False)
    assert sorted(supervisor.busy_slots()) == sorted(map(str, others))
    assert all(loss.is_rollback for role in others for loss in supervisor.losses(role))
    assert str(supervisor.losses(WORKER)[0].error).endswith(f"rolls back to the last checkpoint, as {lost} was lost")
    scene.leave(*[role for role in others if role is not OTHER])  # it is in a long step
    assert supervisor.due() == [PS]
    supervisor.start(PS, supervisor.place(PS, "new"))
    assert supervisor.due() == []
    supervisor.listen(PS, FIRST + 1)
    assert supervisor.due() == [CHIEF, WORKER]
    scene.leave(OTHER)
    assert supervisor.due() == [CHIEF, WORKER, OTHER]
    for role in (CHIEF, WORKER, OTHER):
        assert scene.begin(role, "elsewhere") == FIRST + 1
    assert (supervisor.to_end(), supervisor.is_training, supervisor.all_started()) == ([], True, True)
    assert (supervisor.losses(EVALUATOR), scene.errors()) == ([], {})


def test_a_recalled_life_may_be_lost_end_fail_or_never_have_started() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(WORKER)})
    supervisor.place(WORKER, "slow")
    lose_slots(supervisor, {str(CHIEF)})
    assert supervisor.waiting() == [CHIEF, WORKER]  # whose life was cancelled before it began
    supervisor.fail(OTHER, FIRST, ClosedError("ps-0"))
    supervisor.finish(OTHER, FIRST, {})
    assert (scene.errors(), supervisor.reports()) == ({}, {})
    lose_slots(supervisor, {str(OTHER), str(PS)})
    assert supervisor.due() == [PS]
    assert [len(supervisor.losses(role)) for role in (PS, CHIEF, WORKER, OTHER)] == [1, 1, 2, 1]


def test_a_role_placed_while_a_ps_is_lost_is_recalled_at_once() -> None:
    supervisor = Supervisor([PS, CHIEF], FIRST, 3)
    supervisor.listen(PS, supervisor.place(PS, "a"))
    lose_slots(supervisor, {"a"})
    supervisor.place(CHIEF, "b")  # by who starts the job, and has not heard
    assert supervisor.to_end() == [PS, CHIEF]
    supervisor.fail(CHIEF, FIRST, StoppedError("chief-0", "it was cancelled"))
    assert (supervisor.waiting(), supervisor.due()) == ([PS, CHIEF], [PS])


@pytest.mark.parametrize("is_slot_lost", [False, True])
def test_a_worker_that_had_ended_begins_again_with_the_others(is_slot_lost: bool) -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.finish(WORKER, FIRST, {})
    if is_slot_lost:
        lose_slots(supervisor, {str(WORKER)})
    else:
        supervisor.leave(WORKER, FIRST)
    lose_slots(supervisor, {str(PS)})
    assert not supervisor.has_ended(WORKER)
    assert supervisor.waiting() == [PS, WORKER]
    assert scene.errors() == {}


def test_a_ps_or_a_chief_that_does_not_leave_is_told_of() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(PS)})
    scene.leave(WORKER)
    scene.now = 300.0
    assert supervisor.late_to_leave(300.1) == []
    assert supervisor.late_to_leave(300) == [CHIEF]


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_chief_that_leaves_before_it_is_heard_of_may_have_come_to_the_end(leaves_first: bool) -> None:
    supervisor = (scene := Scene()).supervisor
    if leaves_first:
        supervisor.leave(CHIEF, FIRST)
    lose_slots(supervisor, {str(PS)})
    supervisor.leave(CHIEF, FIRST)
    assert supervisor.due() == []
    supervisor.finish(CHIEF, FIRST, {"exit": "finished"})
    assert supervisor.is_trained
    assert (supervisor.waiting(), scene.errors()) == ([], {})


def test_a_worker_placed_while_the_chief_is_lost_is_recalled_at_once() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(WORKER)})
    lose_slots(supervisor, {str(CHIEF)})
    supervisor.place(WORKER, "elsewhere")
    assert WORKER in supervisor.to_end()
    assert scene.errors() == {}


def test_workers_without_a_life_are_missing_once_the_others_train_again() -> None:
    supervisor = (scene := Scene()).supervisor
    assert supervisor.missing_workers() == []
    lose_slots(supervisor, {str(PS)})
    assert supervisor.missing_workers() == []
    scene.leave(CHIEF, WORKER)
    for role in (PS, CHIEF):
        scene.begin(role, "new")
    assert supervisor.missing_workers() == [(WORKER, FIRST), (OTHER, FIRST)]
    scene.begin(WORKER, "new")
    assert supervisor.missing_workers() == [(OTHER, FIRST)]


def test_a_role_that_was_let_go_holds_nobody_up() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(EVALUATOR), str(PS)})
    supervisor.finish(CHIEF, FIRST, {})
    scene.now = 1000.0
    assert supervisor.late_to_leave(300) == []
    assert supervisor.due() == [EVALUATOR]


@pytest.mark.parametrize("lost", [PS, CHIEF])
def test_once_the_chief_has_come_to_its_end_nobody_goes_back(lost: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    if lost is PS:
        supervisor.finish(CHIEF, FIRST, {})
        lose_slots(supervisor, {str(PS)})
    else:  # it is told late
        lose_slots(supervisor, {str(WORKER)})
        lose_slots(supervisor, {str(PS)})
        supervisor.finish(CHIEF, FIRST, {})
        assert supervisor.has_ended(OTHER)
    assert supervisor.has_ended(PS)
    assert (supervisor.waiting(), scene.errors(), list(supervisor.reports())) == ([], {}, [CHIEF])


def test_a_dask_worker_takes_all_its_lives_with_it() -> None:
    supervisor = Scene().supervisor
    lose_slots(supervisor, {str(WORKER), str(EVALUATOR), "of nobody"})
    assert supervisor.waiting() == [WORKER, EVALUATOR]
    lose_slots(supervisor, {str(WORKER)})  # told twice
    assert len(supervisor.losses(WORKER)) == 1


def test_what_a_past_life_says_does_nothing() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(WORKER)})
    supervisor.fail(WORKER, FIRST, StoppedError("worker-0", "it was cancelled"))
    supervisor.finish(WORKER, FIRST, {"late": True})
    supervisor.start(WORKER, FIRST)
    assert (scene.errors(), supervisor.reports(), supervisor.waiting()) == ({}, {}, [WORKER])
    scene.begin(WORKER, "elsewhere")
    supervisor.leave(WORKER, FIRST)
    assert WORKER in [running.role for running in supervisor.running()]
    assert not supervisor.is_current(WORKER, FIRST)
    assert supervisor.is_current(WORKER, FIRST + 1)


def test_a_life_that_starts_twice_was_lost_in_between() -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.start(WORKER, FIRST)
    assert supervisor.waiting() == [WORKER]
    supervisor.start(PS, FIRST)
    assert (supervisor.waiting(), scene.errors()) == ([PS, WORKER], {})


@pytest.mark.parametrize("role", [PS, CHIEF, WORKER, EVALUATOR])
def test_an_error_of_psflow_ends_the_job(role: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.step(CHIEF, FIRST)
    supervisor.fail(role, FIRST, ValueError("of model_fn"))
    lose_slots(supervisor, {str(role)})
    assert (scene.errors(), supervisor.waiting()) == ({role: "of model_fn"}, [])


FAULT = UserFault("OSError at input.py:7", "OSError('away') at input.py:7")


@pytest.mark.parametrize("role", [CHIEF, WORKER, EVALUATOR])
def test_the_second_fault_of_a_kind_ends_the_job(role: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.step(CHIEF, FIRST)
    supervisor.fail(role, FIRST, OSError("away"), FAULT)
    assert (scene.errors(), supervisor.waiting()) == ({}, [role])
    assert supervisor.losses(role)[0].error.error == FAULT.sentence
    supervisor.fail(role, scene.begin(role, "elsewhere"), ValueError("x"), UserFault("ValueError at input.py:9", "x"))
    assert (scene.errors(), supervisor.waiting()) == ({}, [role])
    supervisor.fail(role, scene.begin(role, "elsewhere"), OSError("gone"), FAULT._replace(sentence="gone"))
    assert (scene.errors(), supervisor.waiting()) == ({role: "gone"}, [])


def test_each_role_has_a_first_fault_of_a_kind() -> None:
    supervisor = (scene := Scene()).supervisor
    for role in (WORKER, OTHER, EVALUATOR):
        supervisor.fail(role, FIRST, OSError("away"), FAULT)
    assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER, OTHER, EVALUATOR])


def test_a_chief_whose_file_system_is_away_before_any_step_begins_again_once() -> None:
    supervisor = (scene := Scene()).supervisor
    fault = FAULT._replace(is_of_system=True)
    supervisor.fail(CHIEF, FIRST, OSError("away"), fault)
    assert (scene.errors(), [loss.rolls_back for loss in supervisor.losses(CHIEF)]) == ({}, [True])
    for role in (PS, WORKER, OTHER):
        supervisor.fail(role, FIRST, StoppedError(str(role), "it was cancelled"))
        supervisor.leave(role, FIRST)
    for role in (PS, CHIEF, WORKER, OTHER):
        scene.begin(role, str(role))
    supervisor.fail(CHIEF, FIRST + 1, OSError("away"), fault)
    assert scene.errors() == {CHIEF: "away"}


def test_a_fault_that_leaves_nobody_to_go_on_ends_the_job() -> None:
    for role, has_stepped, max_restarts in [(PS, True, 3), (CHIEF, False, 3), (WORKER, True, 0)]:
        supervisor = (scene := Scene(max_restarts)).supervisor
        if has_stepped:
            supervisor.step(CHIEF, FIRST)
        supervisor.fail(role, FIRST, OSError("away"), FAULT)
        assert scene.errors() == {role: "away"}


@pytest.mark.parametrize("rolls_back", [True, False])
def test_with_a_first_fault_of_a_chief_that_nobody_can_follow_training_goes_back(rolls_back: bool) -> None:
    supervisor = Supervisor([PS, CHIEF], FIRST, 3, rolls_back=rolls_back, takes_over=False)
    for role in (PS, CHIEF):
        supervisor.start(role, supervisor.place(role, str(role)))
        supervisor.listen(role, FIRST)
    supervisor.step(CHIEF, FIRST)
    supervisor.fail(CHIEF, FIRST, OSError("away"), FAULT)
    if rolls_back:
        assert (supervisor.errors(), supervisor.to_end(), supervisor.waiting()) == ([], [PS, CHIEF], [CHIEF])
    else:
        assert [str(error) for _, error in supervisor.errors()] == ["away"]


def test_with_a_first_fault_of_the_chief_after_training_has_gone_back_it_goes_back_once_more() -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.step(CHIEF, FIRST)
    lose_slots(supervisor, {str(role) for role in (PS, CHIEF, WORKER, OTHER)})
    for role in (PS, CHIEF, WORKER, OTHER):
        scene.begin(role, str(role))
    supervisor.fail(CHIEF, FIRST + 1, OSError("away"), FAULT)  # before a step is made
    assert [(loss.error.error, loss.rolls_back) for loss in supervisor.losses(CHIEF)[1:]] == [(FAULT.sentence, True)]
    assert (scene.errors(), supervisor.to_end()) == ({}, [PS, CHIEF, WORKER, OTHER])
    for role in (PS, WORKER, OTHER):
        supervisor.fail(role, FIRST + 1, StoppedError(str(role), "it was cancelled"))
        supervisor.leave(role, FIRST + 1)
    assert supervisor.due() == [PS]
    for role in (PS, CHIEF, WORKER, OTHER):
        scene.begin(role, str(role))
    supervisor.fail(CHIEF, FIRST + 2, OSError("away"), FAULT)
    assert scene.errors() == {CHIEF: "away"}


def test_a_chief_that_fails_before_any_step_was_made_ends_the_job_also_after_training_has_gone_back() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(PS), str(CHIEF)})
    for role in (PS, CHIEF):
        scene.begin(role, str(role))
    supervisor.fail(CHIEF, FIRST + 1, OSError("away"), FAULT)
    assert scene.errors() == {CHIEF: "away"}


def test_after_training_the_evaluator_alone_begins_again_after_a_fault() -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.finish(CHIEF, FIRST, {})
    supervisor.fail(EVALUATOR, FIRST, OSError("away"), FAULT)
    assert (scene.errors(), supervisor.waiting()) == ({}, [EVALUATOR])
    supervisor.fail(WORKER, FIRST, OSError("away"), FAULT)
    assert scene.errors() == {WORKER: "away"}


def test_a_fault_counts_as_a_loss() -> None:
    supervisor = (scene := Scene(max_restarts=1)).supervisor
    supervisor.fail(WORKER, FIRST, OSError("away"), FAULT)
    supervisor.fail(WORKER, scene.begin(WORKER, "elsewhere"), ValueError("x"), UserFault("another", "x"))
    assert scene.errors() == {WORKER: "x"}


@pytest.mark.parametrize(
    ("max_restarts", "words"),
    [(0, "was lost$"), (2, "; it was lost 3 times within an hour, cluster.max_restarts allows 2$")],
)
def test_too_many_losses_within_an_hour_end_the_job(max_restarts: int, words: str) -> None:
    supervisor = (scene := Scene(max_restarts)).supervisor
    for number in range(max_restarts):
        lose_slots(supervisor, {str(WORKER) if number == 0 else "again"})
        scene.begin(WORKER, "again")
    assert scene.errors() == {}
    lose_slots(supervisor, {"again" if max_restarts else str(WORKER)})
    assert supervisor.waiting() == []
    with pytest.raises(RoleFailedError, match=words):
        raise scene.supervisor.errors()[0][1]


def test_losses_of_an_hour_ago_count_no_more() -> None:
    supervisor = (scene := Scene(1)).supervisor
    lose_slots(supervisor, {str(WORKER)})
    scene.begin(WORKER, "again")
    scene.now = HOUR_SECS
    lose_slots(supervisor, {"again"})
    assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER])
    scene.begin(WORKER, "again")
    scene.now += HOUR_SECS - 1
    lose_slots(supervisor, {"again"})
    assert list(scene.errors()) == [WORKER]


def test_each_role_has_its_own_count() -> None:
    supervisor = (scene := Scene(1)).supervisor
    for role in (WORKER, OTHER, EVALUATOR):
        lose_slots(supervisor, {str(role)})
    assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER, OTHER, EVALUATOR])


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_once_training_is_over_a_lost_worker_is_let_go_and_the_evaluator_is_not(is_lost_first: bool) -> None:
    supervisor = (scene := Scene()).supervisor
    steps: list[Any] = [
        lambda: lose_slots(supervisor, {str(WORKER), str(EVALUATOR)}),
        lambda: supervisor.finish(CHIEF, FIRST, {"exit": "finished"}),
    ]
    for step in steps if is_lost_first else steps[::-1]:
        step()
    assert supervisor.waiting() == [EVALUATOR]
    assert supervisor.has_ended(WORKER)
    assert WORKER not in supervisor.reports()
    for role in (PS, OTHER):
        supervisor.finish(role, FIRST, {})
    assert not supervisor.all_ended()
    supervisor.finish(EVALUATOR, scene.begin(EVALUATOR, "elsewhere"), {})
    assert supervisor.all_ended()


def test_a_later_life_that_cannot_reach_the_ps_counts_as_lost() -> None:
    supervisor = (scene := Scene()).supervisor
    broken = ClosedError("ps-0")
    lose_slots(supervisor, {str(WORKER)})
    supervisor.fail(WORKER, scene.begin(WORKER, "elsewhere"), broken)
    assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER])
    supervisor.fail(OTHER, FIRST, broken)
    assert list(scene.errors()) == [OTHER]


def test_a_life_that_the_others_go_on_without_counts_as_lost() -> None:
    supervisor = (scene := Scene(max_restarts=0)).supervisor
    over = IncarnationOverError("ps-0", "incarnation", "it made no push within 1 s, and others waited for it")
    supervisor.fail(WORKER, FIRST, over)
    assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER])
    [loss] = supervisor.losses(WORKER)
    assert (str(loss.error), loss.in_order) == (f"worker-0 failed: {over}", False)
    supervisor.fail(WORKER, scene.begin(WORKER, "elsewhere"), over)
    assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER]), "the deadline of its batch decides, and no count"


@pytest.mark.parametrize("is_slot_lost_first", [False, True])
def test_a_worker_whose_loop_is_interrupted_is_lost_with_its_dask_worker_and_begins_again(
    is_slot_lost_first: bool,
) -> None:
    supervisor = (scene := Scene()).supervisor
    interrupted = InterruptedLoopError("worker-0", "it was interrupted (SIGINT)")
    if is_slot_lost_first:
        lose_slots(supervisor, {str(WORKER)})
    supervisor.fail(WORKER, FIRST, interrupted)
    if not is_slot_lost_first:  # it would restart in the process that leaves
        assert (supervisor.waiting(), supervisor.losses(WORKER)) == ([], [])
        assert WORKER not in [running.role for running in supervisor.running()]
        lose_slots(supervisor, {str(WORKER)})
    assert (supervisor.waiting(), supervisor.due(), scene.errors()) == ([WORKER], [WORKER], {})
    [loss] = supervisor.losses(WORKER)
    assert (str(loss.error), loss.in_order) == ("worker-0 failed: its Dask worker worker-0 was lost", False)


def test_a_recalled_worker_whose_loop_is_interrupted_begins_again() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(PS)})
    supervisor.fail(WORKER, FIRST, InterruptedLoopError("worker-0", "it was interrupted (SIGINT)"))
    supervisor.leave(WORKER, FIRST)
    assert (supervisor.waiting(), scene.errors()) == ([PS, WORKER], {})


def test_a_chief_whose_loop_is_interrupted_ends_the_job() -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.fail(CHIEF, FIRST, InterruptedLoopError("chief-0", "it was terminated (SIGTERM)"))
    assert scene.errors() == {CHIEF: "chief-0 was stopped: it was terminated (SIGTERM)"}


def test_a_worker_that_finds_no_ps_after_the_end_of_training_is_let_go() -> None:
    supervisor = (scene := Scene(max_restarts=0)).supervisor
    supervisor.finish(CHIEF, FIRST, {})
    supervisor.finish(PS, FIRST, {})
    supervisor.fail(WORKER, FIRST, ClosedError("ps-0"))  # it hung until then
    assert (scene.errors(), supervisor.waiting(), supervisor.has_ended(WORKER)) == ({}, [], True)
    supervisor.fail(EVALUATOR, FIRST, ClosedError("ps-0"))
    assert list(scene.errors()) == [EVALUATOR]


def test_a_worker_that_does_not_end_after_training_is_let_go() -> None:
    supervisor = (scene := Scene()).supervisor
    scene.now = 1000.0
    assert supervisor.abandoned_late(60) == {}, "training goes on"
    supervisor.finish(CHIEF, FIRST, {})
    supervisor.finish(PS, FIRST, {})
    supervisor.finish(OTHER, FIRST, {"steps": 7})
    scene.now += 59.9
    assert (supervisor.abandoned_late(60), supervisor.to_end()) == ({}, [])
    scene.now += 0.1
    assert (supervisor.abandoned_late(60), supervisor.abandoned_late(60)) == ({WORKER: str(WORKER)}, {})
    assert (supervisor.to_end(), supervisor.waiting(), scene.errors()) == ([WORKER], [], {})
    assert not supervisor.all_ended(), "the evaluator has as long as it needs"
    supervisor.finish(EVALUATOR, FIRST, {})
    assert supervisor.all_ended()
    late = "it did not end within 60 s after the end of training"
    assert supervisor.report(WORKER) == {"exit": "abandoned", "reason": late}
    assert supervisor.report(OTHER) == {"steps": 7}
    scene.leave(WORKER)
    assert WORKER not in [running.role for running in supervisor.running()]
    assert (supervisor.to_end(), scene.errors()) == ([], {})


@pytest.mark.parametrize("role", [CHIEF, WORKER])
def test_who_does_not_reach_the_ps_any_more_is_lost_and_who_never_did_fails(role: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    unreachable = BrokenPeerError("ps-0", "nobody listens there")
    supervisor.step(OTHER, FIRST)
    supervisor.step(role, FIRST)
    supervisor.fail(role, FIRST, unreachable)
    assert (scene.errors(), supervisor.waiting()) == ({}, [role])
    assert "nobody listens there" in str(supervisor.losses(role)[0].error)
    supervisor = (scene := Scene()).supervisor
    supervisor.step(OTHER, FIRST)
    supervisor.fail(role, FIRST, unreachable)
    assert scene.errors() == {role: str(unreachable)}
    supervisor = (scene := Scene()).supervisor
    supervisor.step(role, FIRST)
    supervisor.fail(role, FIRST, RefusedError("ps-0", "full", "it has no seat"))
    assert list(scene.errors()) == [role]


@pytest.mark.parametrize("late", [WaitTimeoutError("worker-0", "hand over its report", 30.0), ClosedError("ps-0")])
def test_a_worker_that_does_not_say_how_it_ended_is_let_go_once_training_is_over(late: Exception) -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.finish(CHIEF, FIRST, {})
    supervisor.fail(WORKER, FIRST, late)
    assert (scene.errors(), supervisor.has_ended(WORKER)) == ({}, True)
    supervisor.fail(EVALUATOR, FIRST, late)
    assert list(scene.errors()) == [EVALUATOR]


def test_a_life_is_outlived_once_the_others_train_again() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(PS)})
    assert not supervisor.is_outlived(WORKER)
    scene.leave(CHIEF)
    scene.begin(PS, "new")
    assert supervisor.is_outlived(WORKER)
    assert not supervisor.is_outlived(EVALUATOR)
    scene.begin(CHIEF, "new chief")
    assert not supervisor.is_outlived(CHIEF)


def closes(scene: Scene, incarnation: int) -> None:
    """Have a worker leave as its Dask worker is told to end: it says so, then it ends."""
    scene.supervisor.begin_shutdown(WORKER, incarnation)
    lose_slots(scene.supervisor, {scene.supervisor.slots()[WORKER]})


def stops(scene: Scene, incarnation: int) -> None:
    """Have a worker leave though its Dask worker does not end in the end."""
    scene.supervisor.begin_shutdown(WORKER, incarnation)
    scene.supervisor.fail(WORKER, incarnation, StoppedError("worker-0", "its Dask worker closes"))


def is_retired(scene: Scene, incarnation: int) -> None:
    """Have the Dask worker of a worker retired: it is gone before its role has said anything."""
    slot = scene.supervisor.slots()[WORKER]
    lose_slots(scene.supervisor, {slot}, in_order=True)
    scene.supervisor.begin_shutdown(WORKER, incarnation)
    lose_slots(scene.supervisor, {slot})


@pytest.mark.parametrize("leaves", [closes, stops, is_retired])
def test_who_leaves_in_order_begins_again_however_often(leaves: Callable[[Scene, int], None]) -> None:
    supervisor = (scene := Scene(max_restarts=0)).supervisor
    for number in range(5):
        leaves(scene, FIRST + number)
        assert (scene.errors(), supervisor.waiting()) == ({}, [WORKER])
        assert supervisor.losses(WORKER)[number].in_order
        scene.begin(WORKER, f"elsewhere {number}")
    lose_slots(supervisor, {"elsewhere 4"})
    assert scene.errors() == {WORKER: "worker-0 failed: its Dask worker elsewhere 4 was lost"}


def test_an_error_of_a_role_that_is_about_to_leave_is_an_error() -> None:
    supervisor = (scene := Scene()).supervisor
    supervisor.begin_shutdown(WORKER, FIRST - 1)  # of a past life
    supervisor.fail(OTHER, FIRST, StoppedError("worker-1", "it was cancelled"))
    supervisor.begin_shutdown(WORKER, FIRST)
    supervisor.fail(WORKER, FIRST, ValueError("of model_fn"))
    assert scene.errors() == {WORKER: "of model_fn", OTHER: "worker-1 was stopped: it was cancelled"}


def test_a_later_life_that_does_not_start_in_time_is_lost_and_a_first_one_is_waited_for_by_who_starts_the_job() -> None:
    scene = Scene()
    supervisor = Supervisor([PS, WORKER], FIRST, 3, clock=lambda: scene.now)
    supervisor.listen(PS, supervisor.place(PS, "a"))
    supervisor.start(WORKER, supervisor.place(WORKER, "b"))
    lose_slots(supervisor, {"b"})
    supervisor.place(WORKER, "c")
    scene.now = 59.9
    supervisor.lose_late(60)
    assert supervisor.waiting() == []
    scene.now = 60.0
    supervisor.lose_late(60)
    assert supervisor.waiting() == [WORKER]
    assert str(supervisor.losses(WORKER)[1].error) == "worker-0 failed: it did not start on c within 60 s"
    assert supervisor.errors() == []


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["place", "start", "listen", "step", "leave", "finish", "fail", "break", "lose", "hang", "depart"]
        ),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(0, 3))
def test_whatever_happens_no_role_has_two_ends_or_two_lives(events: Sequence[tuple[str, int, int]], limit: int) -> None:
    scene = Scene(limit)
    supervisor = scene.supervisor
    roles = [PS, CHIEF, WORKER, OTHER, EVALUATOR]
    ended: set[RoleId] = set()
    num_placed = Counter(roles)
    for what, index, running in events:
        role, incarnation = roles[index], FIRST + running
        match what:
            case "place" if role in supervisor.waiting():
                assert supervisor.place(role, f"{role} {running}") == FIRST + num_placed[role]
                num_placed[role] += 1  # of a life that is placed while a ps is missing there is no loss
            case "start":
                supervisor.start(role, incarnation)
            case "listen":
                supervisor.listen(role, incarnation)
            case "step":
                supervisor.step(role, incarnation)
            case "leave":
                supervisor.leave(role, incarnation)
            case "finish":
                supervisor.finish(role, incarnation, {})
            case "fail":
                supervisor.fail(role, incarnation, ValueError())
            case "break":
                supervisor.fail(role, incarnation, ClosedError("ps-0"))
            case "hang":
                supervisor.fail(role, incarnation, IncarnationOverError("ps-0", "incarnation", ""))
            case "depart":
                supervisor.begin_shutdown(role, incarnation)
            case "lose":
                lose_slots(supervisor, {f"{role} {running}", str(role)})
        if not any(not loss.is_rollback and r in (PS, CHIEF) for r in roles for loss in supervisor.losses(r)):
            assert ended <= {r for r in roles if supervisor.has_ended(r)}  # else they may restart
        assert set(supervisor.due()) <= set(supervisor.waiting())
        for one in roles:
            states = [one in supervisor.slots(), one in supervisor.waiting(), supervisor.has_ended(one)]
            assert states.count(True) == 1
            assert (supervisor.error(one) is None) or one not in supervisor.reports()
            counted = [loss for loss in supervisor.losses(one) if not (loss.is_rollback or loss.in_order)]
            assert len(counted) <= limit + 1
            assert [loss.incarnation for loss in supervisor.losses(one)] == sorted(
                {loss.incarnation for loss in supervisor.losses(one)}
            )
        ended = {r for r in roles if supervisor.has_ended(r)}


@pytest.mark.parametrize("role", [PS, CHIEF, EVALUATOR])
def test_a_life_that_hangs_is_lost_with_its_dask_worker_for_that_reason(role: RoleId) -> None:
    supervisor = (scene := Scene()).supervisor
    hang(supervisor, role, FIRST - 1, "of a past life")
    hang(supervisor, role, FIRST, "it did not answer for 30 s")
    assert (supervisor.waiting(), supervisor.losses(role)) == ([], [])
    lose_slots(supervisor, {str(role)})
    [loss] = supervisor.losses(role)
    assert (str(loss.error), loss.in_order) == (f"{role} failed: it did not answer for 30 s", False)
    assert (supervisor.waiting(), scene.errors()) == ([role], {})


def closes_its_worker(scene: Scene) -> None:
    """Have the Dask worker of a ps close as that of a role that leaves, which its nanny asks it for first."""
    scene.supervisor.begin_shutdown(PS, FIRST)
    lose_slots(scene.supervisor, {str(PS)})


def retires_its_worker(scene: Scene) -> None:
    """Have somebody retire the Dask worker of a ps."""
    lose_slots(scene.supervisor, {str(PS)}, in_order=True)


def fails(scene: Scene) -> None:
    """Have a ps that goes on find that it is to end, or that its peers are gone."""
    scene.supervisor.fail(PS, FIRST, ClosedError("ps-0"))


@pytest.mark.parametrize("ends", [closes_its_worker, retires_its_worker, fails])
def test_a_life_that_hangs_counts_as_lost_however_it_ends(ends: Callable[[Scene], None]) -> None:
    scene = Scene(max_restarts=0)
    hang(scene.supervisor, PS, FIRST, "it did not serve for 30 s")
    ends(scene)
    assert scene.errors() == {PS: "ps-0 failed: it did not serve for 30 s"}


def test_a_recalled_life_that_hangs_is_not_waited_for_once_its_dask_worker_is_gone() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(PS)})
    assert [running.role for running in supervisor.running()] == [CHIEF, WORKER, OTHER, EVALUATOR]
    hang(supervisor, CHIEF, FIRST, "it did not answer for 30 s")
    assert supervisor.due() == []
    lose_slots(supervisor, {str(CHIEF)})
    assert (supervisor.due(), scene.errors()) == ([PS], {})
    assert [loss.is_rollback for loss in supervisor.losses(CHIEF)] == [True]


def test_an_evaluator_that_never_came_is_placed_when_it_comes_and_no_job_lacks_it():
    supervisor = Supervisor([PS, CHIEF, EVALUATOR], FIRST, max_restarts=3)
    for role in (PS, CHIEF):
        supervisor.start(role, supervisor.place(role, str(role)))
        supervisor.listen(role, FIRST)
    supervisor.mark_unplaced(EVALUATOR)
    assert (supervisor.waiting(), supervisor.due(), supervisor.lacking()) == ([EVALUATOR], [EVALUATOR], [])
    supervisor.finish(CHIEF, FIRST, {})
    supervisor.finish(PS, FIRST, {})
    assert not supervisor.all_ended(), "the final checkpoint is to be evaluated"
    supervisor.start(EVALUATOR, supervisor.place(EVALUATOR, "late"))
    lose_slots(supervisor, {"late"})
    assert (supervisor.due(), supervisor.lacking()) == ([EVALUATOR], [EVALUATOR])
