"""A lost chief that restarts alone, and when training goes back with it, as plain events."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import ClosedError, RoleFailedError
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.failing_slots import lose_slots
from tests.ps_runtime.cluster.test_supervisor import CHIEF, EVALUATOR, FIRST, OTHER, PS, WORKER, Scene

OTHERS = [PS, WORKER, OTHER, EVALUATOR]


def open_scene(role: RoleId = WORKER, **given: int) -> Scene:
    """Return a scene in which a replica has made a step."""
    scene = Scene(**given)
    scene.supervisor.step(role, FIRST)
    return scene


@pytest.mark.parametrize("replica", [CHIEF, WORKER])
def test_a_lost_chief_of_a_job_that_makes_steps_begins_again_alone(replica: RoleId) -> None:
    supervisor = (scene := open_scene(replica)).supervisor
    lose_slots(supervisor, {str(CHIEF)})
    [loss] = supervisor.losses(CHIEF)
    assert (loss.is_rollback, loss.rolls_back, loss.in_order) == (False, False, False)
    assert (supervisor.to_end(), supervisor.waiting(), supervisor.due()) == ([CHIEF], [CHIEF], [CHIEF])
    assert all(supervisor.losses(role) == [] for role in OTHERS)
    assert sorted(str(running.role) for running in supervisor.running()) == sorted(map(str, OTHERS))
    assert not supervisor.is_training, "so it is waited for no longer than a ps"
    assert scene.begin(CHIEF, "elsewhere") == FIRST + 1
    assert supervisor.to_end() == []
    lose_slots(supervisor, {"elsewhere"})  # before it has made a step
    assert [loss.rolls_back for loss in supervisor.losses(CHIEF)] == [False, False]
    assert scene.errors() == {}


def test_with_a_chief_that_is_lost_before_the_first_step_training_goes_back() -> None:
    supervisor = Scene().supervisor
    supervisor.step(WORKER, FIRST - 1)  # of a past life
    lose_slots(supervisor, {str(CHIEF)})
    assert [loss.rolls_back for loss in supervisor.losses(CHIEF)] == [True]
    assert all(loss.is_rollback and not loss.rolls_back for role in (PS, WORKER) for loss in supervisor.losses(role))


def test_with_a_chief_whose_steps_depend_on_where_it_was_lost_training_goes_back() -> None:
    supervisor = Supervisor([PS, CHIEF], FIRST, 3, takes_over=False)
    for role in (PS, CHIEF):
        supervisor.start(role, supervisor.place(role, str(role)))
        supervisor.listen(role, FIRST)
    supervisor.step(CHIEF, FIRST)
    lose_slots(supervisor, {str(CHIEF)})
    assert supervisor.losses(CHIEF)[0].rolls_back
    assert supervisor.losses(PS)[0].is_rollback


def test_with_a_ps_training_goes_back_though_a_chief_waits_to_take_over() -> None:
    supervisor = (scene := open_scene()).supervisor
    lose_slots(supervisor, {str(CHIEF)})
    lose_slots(supervisor, {str(PS)})
    assert [loss.rolls_back for loss in supervisor.losses(PS)] == [True]
    assert supervisor.waiting() == [PS, CHIEF]
    assert supervisor.due() == [PS]
    scene.begin(PS, "a")
    assert CHIEF in supervisor.due()
    scene.begin(CHIEF, "b")
    scene.leave(WORKER, OTHER)
    lose_slots(supervisor, {"b"})
    assert [loss.rolls_back for loss in supervisor.losses(CHIEF)] == [False, True], "nobody has made a step since"
    assert supervisor.losses(PS)[1].is_rollback


def test_a_step_of_a_life_that_was_recalled_does_not_open_the_job_again() -> None:
    supervisor = (scene := open_scene()).supervisor
    lose_slots(supervisor, {str(PS)})
    supervisor.step(WORKER, FIRST)
    scene.leave(CHIEF)
    scene.begin(PS, "a")
    lose_slots(supervisor, {"elsewhere of the chief"})
    scene.begin(CHIEF, "b")
    supervisor.step(WORKER, FIRST)
    lose_slots(supervisor, {"b"})
    assert supervisor.losses(CHIEF)[-1].rolls_back


def test_two_at_once_a_chief_and_a_worker_begin_again_beside_the_others() -> None:
    supervisor = open_scene().supervisor
    lose_slots(supervisor, {str(CHIEF), str(WORKER)})
    assert supervisor.due() == [CHIEF, WORKER]
    assert PS not in supervisor.to_end()


def test_a_chief_is_taken_over_from_where_there_are_no_checkpoints_too() -> None:
    supervisor = (scene := open_scene(rolls_back=False)).supervisor
    lose_slots(supervisor, {str(CHIEF)})
    assert (supervisor.waiting(), scene.errors()) == ([CHIEF], {})


@pytest.mark.parametrize("rolls_back", [True, False])
@pytest.mark.parametrize("ends_first", [True, False])
def test_with_a_chief_that_is_lost_as_the_ps_come_to_their_end_training_goes_back(
    ends_first: bool, rolls_back: bool
) -> None:
    supervisor = (scene := open_scene(rolls_back=rolls_back)).supervisor
    if ends_first:
        supervisor.finish(PS, FIRST, {})
        lose_slots(supervisor, {str(CHIEF)})
    else:
        lose_slots(supervisor, {str(CHIEF)})
        assert PS not in supervisor.to_end()
        supervisor.finish(PS, FIRST, {})
    if rolls_back:
        supervisor.leave(PS, FIRST)
        assert supervisor.due() == [PS]
        assert CHIEF in supervisor.waiting()
        assert scene.errors() == {}
    else:
        assert scene.errors() == {CHIEF: "chief-0 failed: its Dask worker chief-0 was lost"}


def test_a_chief_that_comes_too_late_to_find_a_ps_has_training_go_back() -> None:
    supervisor = (scene := open_scene()).supervisor
    lose_slots(supervisor, {str(CHIEF)})
    incarnation = scene.begin(CHIEF, "elsewhere")
    supervisor.finish(PS, FIRST, {})
    assert supervisor.has_ended(PS)
    supervisor.fail(CHIEF, incarnation, ClosedError("ps-0"))
    assert [loss.rolls_back for loss in supervisor.losses(CHIEF)] == [False, True]
    supervisor.leave(PS, FIRST)
    assert supervisor.due() == [PS]


def test_losses_of_a_chief_are_counted_whatever_follows() -> None:
    supervisor = (scene := open_scene(max_restarts=1)).supervisor
    lose_slots(supervisor, {str(CHIEF)})
    scene.begin(CHIEF, "elsewhere")
    lose_slots(supervisor, {"elsewhere"})
    with pytest.raises(RoleFailedError, match=r"lost 2 times within an hour, cluster.max_restarts allows 1$"):
        raise supervisor.errors()[0][1]


def test_a_chief_that_leaves_in_order_is_taken_over_from_however_often() -> None:
    supervisor = (scene := open_scene(max_restarts=0)).supervisor
    for number in range(3):
        supervisor.begin_shutdown(CHIEF, FIRST + number)
        lose_slots(supervisor, {supervisor.slots()[CHIEF]})
        loss = supervisor.losses(CHIEF)[number]
        assert (loss.in_order, loss.rolls_back, scene.errors()) == (True, False, {})
        scene.begin(CHIEF, f"elsewhere {number}")


def test_who_was_placed_is_late_after_so_many_seconds_and_who_waits_for_a_slot_is_not() -> None:
    supervisor = (scene := Scene()).supervisor
    lose_slots(supervisor, {str(WORKER)})
    scene.now = 59.9
    assert supervisor.late([PS, WORKER], 60.0) == []
    scene.now = 60.0
    assert supervisor.late([PS, WORKER], 60.0) == [PS]
    assert [role.role for role in supervisor.late([CHIEF], 60.0)] == [Role.CHIEF]
