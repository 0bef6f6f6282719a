"""A job that begins, and goes on, with fewer workers than it is to have, without a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster.loss_reports import LossReports, take_loss
from psflow.ps_runtime.cluster.missing_workers import roles_to_begin, shortage
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.roles.events import RoleLost, WorkersMissing
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from tests.failing_slots import lose_slots
from tests.limits import HANG_SECS

ROLES = PS, CHIEF, FIRST, SECOND, EVALUATOR = job_roles(1, 2, evaluator=True)
LIFE = 65536


def begin(supervisor: Supervisor, role: RoleId) -> int:
    incarnation = supervisor.place(role, str(role))
    supervisor.start(role, incarnation)
    if role.role is Role.PS:
        supervisor.listen(role, incarnation)
    return incarnation


def begun(*missed: RoleId) -> Supervisor:
    supervisor = Supervisor(ROLES, LIFE, 3)
    for role in ROLES:
        if role in missed:
            supervisor.mark_unplaced(role)
        else:
            begin(supervisor, role)
    return supervisor


@pytest.mark.parametrize(
    ("num_slots", "roles"),
    [
        (5, ROLES),
        (4, [PS, CHIEF, FIRST, EVALUATOR]),
        (3, [PS, CHIEF, EVALUATOR]),
    ],
)
def test_the_last_workers_are_missed(num_slots: int, roles: Sequence[RoleId]) -> None:
    assert roles_to_begin(ROLES, num_slots) == list(roles)


def test_a_missed_worker_begins_its_first_life_once_there_is_a_slot() -> None:
    supervisor = begun(SECOND)
    assert (supervisor.waiting(), supervisor.due(), supervisor.all_ended()) == ([SECOND], [SECOND], False)
    assert supervisor.missing_workers() == [(SECOND, LIFE - 1)]
    assert begin(supervisor, SECOND) == LIFE
    assert (supervisor.waiting(), supervisor.missing_workers(), supervisor.missing()) == ([], [], [])


def test_a_first_life_of_a_missed_worker_that_does_not_start_is_lost() -> None:
    supervisor = begun(SECOND)
    supervisor.place(SECOND, "slow")
    supervisor.lose_late(0.0)
    assert (supervisor.waiting(), supervisor.errors()) == ([SECOND], [])


def test_a_missed_worker_is_let_go_with_the_chief() -> None:
    supervisor = begun(SECOND)
    supervisor.finish(CHIEF, LIFE, {})
    assert (supervisor.waiting(), supervisor.has_ended(SECOND)) == ([], True)
    assert supervisor.report(SECOND) == {"exit": "abandoned", "reason": "it had no slot before the job was over"}


def test_a_missed_worker_begins_after_the_others_have_gone_back() -> None:
    supervisor = begun(SECOND)
    lose_slots(supervisor, {str(PS)})
    for role in (CHIEF, FIRST):
        supervisor.fail(role, LIFE, StoppedError(str(role), "it was cancelled"))
        supervisor.leave(role, LIFE)
    assert supervisor.due() == [PS]
    begin(supervisor, PS)
    assert supervisor.due() == [CHIEF, FIRST, SECOND]


@pytest.mark.parametrize(
    ("lost", "min_workers", "words"),
    [
        ((), 2, ""),
        ((FIRST,), None, ""),
        ((FIRST,), 0, ""),
        ((FIRST,), 1, ""),
        ((FIRST,), 2, "the job has 1 of the 2 workers that it needs (cluster.min_workers)"),
        ((FIRST, SECOND), 1, "the job has 0 of the 1 workers that it needs (cluster.min_workers)"),
        ((PS, CHIEF, EVALUATOR), 2, ""),
    ],
)
def test_too_few_workers_are_said(lost: Sequence[RoleId], min_workers: int | None, words: str) -> None:
    supervisor = begun()
    lose_slots(supervisor, {str(role) for role in lost})
    assert shortage(supervisor, 2, min_workers) == words


def test_a_worker_that_has_come_to_its_end_is_not_missing() -> None:
    supervisor = begun()
    supervisor.finish(FIRST, LIFE, {})
    lose_slots(supervisor, {str(FIRST)})
    assert shortage(supervisor, 2, 2) == ""


def test_spare_workers_begin_where_there_are_slots_and_are_not_lacked() -> None:
    supervisor = Supervisor(ROLES, LIFE, 3, num_spare_workers=1)
    for role in ROLES:
        if role in (FIRST, SECOND):
            supervisor.mark_unplaced(role)
        else:
            begin(supervisor, role)
    assert (supervisor.due(), supervisor.missing(), supervisor.lacking()) == ([FIRST, SECOND], [FIRST], [FIRST])
    begin(supervisor, FIRST)
    assert (supervisor.due(), supervisor.missing(), supervisor.lacking()) == ([SECOND], [], [])
    assert supervisor.num_expected == 1


def test_a_job_that_is_scaled_ends_the_last_workers_and_lets_them_begin_again() -> None:
    supervisor = begun()
    supervisor.want_workers(1)
    assert (supervisor.to_end(), supervisor.recalled()) == ([SECOND], []), "its slot is not kept for it"
    assert supervisor.busy_slots() == [str(SECOND)], "it may be in a long step"
    assert (supervisor.due(), supervisor.missing(), supervisor.all_ended()) == ([], [], False)
    assert supervisor.missing_workers() == [(SECOND, LIFE)], "a new ps-0 does not wait for it"
    assert [loss.in_order for loss in supervisor.losses(SECOND)] == [True]
    supervisor.want_workers(2)
    assert (supervisor.due(), supervisor.all_started()) == ([], True), "not before the last one has left"
    supervisor.fail(SECOND, LIFE, StoppedError(str(SECOND), "it was cancelled"))
    supervisor.leave(SECOND, LIFE)
    assert (supervisor.due(), supervisor.missing(), supervisor.num_expected) == ([SECOND], [SECOND], 2)
    assert begin(supervisor, SECOND) == LIFE + 1
    supervisor.finish(CHIEF, LIFE, {})
    supervisor.want_workers(0)
    assert supervisor.to_end() == [], "training is complete: they end by themselves"


def test_a_worker_that_is_not_wanted_at_the_end_says_so() -> None:
    supervisor = begun()
    supervisor.want_workers(1)
    supervisor.leave(SECOND, LIFE)
    supervisor.finish(CHIEF, LIFE, {})
    assert supervisor.report(SECOND) == {"exit": "abandoned", "reason": "the job was scaled to fewer workers"}


def test_a_job_that_is_scaled_while_it_rolls_back_restarts_with_the_workers_that_are_wanted() -> None:
    supervisor = begun()
    lose_slots(supervisor, {str(PS)})
    supervisor.want_workers(0)
    for role in (CHIEF, FIRST):
        supervisor.fail(role, LIFE, StoppedError(str(role), "it was cancelled"))
        supervisor.leave(role, LIFE)
    begin(supervisor, PS)
    assert supervisor.due() == [CHIEF]


def test_ps_0_and_the_listener_hear_once_who_is_missing_and_a_new_ps_0_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, Incarnation]] = []
    heard: list[RoleLost | WorkersMissing] = []
    monkeypatch.setattr(LossReports, "_send", lambda reports, slot, running: sent.append((slot, running)))
    supervisor = begun(SECOND)
    reports = LossReports(None, "t", ROLES, supervisor, heard.append)  # type: ignore[arg-type]
    for _ in range(2):
        reports.report()
    assert sent == [(str(PS), (SECOND.replica, LIFE - 1))]
    lose_slots(supervisor, {str(PS)})
    reports.report()
    begin(supervisor, PS)
    reports.report()
    assert sent[1:] == [(str(PS), (FIRST.replica, LIFE)), (str(PS), (SECOND.replica, LIFE - 1))]
    supervisor.leave(FIRST, LIFE)
    begin(supervisor, SECOND)
    begin(supervisor, FIRST)
    reports.report()
    told = [event.num_missing if isinstance(event, WorkersMissing) else event.role for event in heard]
    assert told == [1, "ps-0", 0]


def test_a_message_to_a_ps_that_does_not_answer_is_given_up_at_the_end(loop: asyncio.AbstractEventLoop) -> None:
    sent: list[Any] = []
    is_given_up = threading.Event()

    async def run(*given: Any, **options: Any) -> None:
        sent.append((given, options["workers"]))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            is_given_up.set()

    client: Any = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), _run=run)
    reports = LossReports(client, "t", ROLES, begun(), pytest.fail)
    reports._send("tcp://h:1", (1, 65536))  # returns, though nobody answers
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(HANG_SECS)
    assert sent == [((take_loss, "t", (1, 65536)), ["tcp://h:1"])]
    reports.close()
    assert is_given_up.wait(HANG_SECS)


def test_a_scheduler_that_is_lost_is_no_error_of_a_message() -> None:
    async def run(*given: Any, **options: Any) -> None:
        raise OSError("the scheduler is gone")

    client: Any = SimpleNamespace(_run=run)
    asyncio.run(LossReports(client, "t", ROLES, begun(), pytest.fail)._message("tcp://h:1", (1, 65536)))
