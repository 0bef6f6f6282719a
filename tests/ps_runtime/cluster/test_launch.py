"""What the owner of a job makes of the events of its roles, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.client import FutureCancelledError

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import launch as module
from psflow.ps_runtime.cluster import role_tasks
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.loss_reports import LossReports
from psflow.ps_runtime.cluster.placement import FreeSlots
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, WaitTimeoutError
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.events import (
    Event,
    FirstStep,
    Metrics,
    PsListening,
    RoleLost,
    RoleStarted,
    WorkersMissing,
)
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.ps_runtime.transport.listeners import Address
from tests.failing_slots import lose_slots

PS, WORKER = RoleId(Role.PS, 0), RoleId(Role.WORKER, 0)
LIFE = 1 << 16
"""The first of each role in attempt 1."""
CHIEF = RoleId(Role.CHIEF, 0)
PS_SLOT, CHIEF_SLOT = str(PS), str(CHIEF)
SENT: list[tuple[tuple[int, int], list[str]]] = []
"""The lives of which ps-0 was told that they are over, and on which Dask worker it was."""


@pytest.fixture
def seen() -> list[Event]:
    return []


@pytest.fixture
def run(seen: list[Event], monkeypatch: pytest.MonkeyPatch) -> ClusterJob:
    run = run_of(seen, monkeypatch)
    for role in run.job.roles:
        run._supervisor.place(role, str(role))
        run._supervisor.listen(PS, LIFE)
    return run


def run_of(
    seen: list[Event], monkeypatch: pytest.MonkeyPatch, num_workers: int = 0, pipeline_depth: int = 0
) -> ClusterJob:
    """Return the owner of a job of which nothing is placed yet."""
    rollback = SimpleNamespace(look=lambda check: None, has_lock=False)
    monkeypatch.setattr(module, "RollbackReservation", lambda client, supervisor: rollback)
    monkeypatch.setattr(role_tasks, "Membership", lambda *given: SimpleNamespace(look=lambda: None))
    monkeypatch.setattr(module, "pickled", lambda job, what: b"")
    monkeypatch.setattr(module, "Versions", lambda client: SimpleNamespace(faults=lambda slots: {}))
    monkeypatch.setattr(module, "replace", lambda job, certificate: job)  # it is no dataclass
    job: Any = SimpleNamespace(
        runs_program=bool,
        without_program=tuple,
        job_id="j",
        attempt=1,
        first_incarnation=LIFE,
        num_ps=1,
        transport="auto",
        num_workers=num_workers,
        roles=job_roles(1, num_workers, evaluator=False),
        config=SimpleNamespace(saves_checkpoints=True, pipeline_depth=pipeline_depth, cluster=None),
    )
    monkeypatch.setattr(LossReports, "_send", lambda reports, slot, running: SENT.append((running, [slot])))
    SENT.clear()
    run = ClusterJob(SimpleNamespace(cluster=None), job, seen.append)  # type: ignore[arg-type]
    run._restarter = SimpleNamespace(place=lambda check, has_lock: None)  # type: ignore[assignment]
    return run


class Nodes:
    """A client whose user does not want to wait until the roles are cancelled; notes what is closed."""

    status = "running"

    def __init__(self) -> None:
        self.closed: list[str] = []

    def cancel(self, futures: Any, force: bool) -> None:
        raise KeyboardInterrupt

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        """Nothing happens on it."""

    def unsubscribe_topic(self, topic: str) -> None:
        self.closed.append(topic)

    def part(self, name: str) -> Any:
        return SimpleNamespace(open=lambda: None, close=lambda: self.closed.append(name))


def test_who_does_not_wait_for_the_end_hears_of_the_cluster_no_more(run: ClusterJob) -> None:
    """A scheduler that has news for a client that is gone logs a traceback."""
    nodes: Any = Nodes()
    run._client = run._futures._client = nodes
    run._membership, run._losses, run._rollback = (nodes.part(name) for name in ("membership", "losses", "rollback"))
    run._futures._futures[PS] = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), run:
        pass
    assert sorted(nodes.closed) == sorted(["losses", "membership", "rollback", run._futures.topic])


@pytest.mark.parametrize(
    ("slots", "transport", "host"),
    [
        ({PS: "tcp://h:1", CHIEF: "tcp://h:2", WORKER: "tcp://h:3"}, "auto", "h"),
        ({PS: "tcp://h:1", CHIEF: "tcp://g:2", WORKER: "tcp://h:3"}, "auto", None),
        ({PS: "tcp://h:1", CHIEF: "tcp://h:2"}, "auto", None),  # the worker may find a slot on another host
        ({PS: "tcp://h:1", CHIEF: "tcp://h:2"}, "shm", "h"),
    ],
)
def test_a_job_that_begins_on_one_host_stays_there_unless_it_lacks_workers(
    seen: list[Event], monkeypatch: pytest.MonkeyPatch, slots: dict[RoleId, str], transport: str, host: str | None
) -> None:
    run = run_of(seen, monkeypatch, num_workers=1)
    monkeypatch.setattr(run.job, "transport", transport)
    monkeypatch.setattr(run, "_submit", lambda role, slot: None)
    monkeypatch.setattr(run, "_await", lambda *given: None)
    run.start_at(slots, None, never_stop)
    assert run._host == host


def test_events_are_handed_on_in_their_order(run: ClusterJob, seen: list[Event]) -> None:
    address = Address("h", 1, None, "")
    sent = [
        RoleStarted("h", role="ps-0", incarnation=LIFE, number=1),
        PsListening(address, role="ps-0", incarnation=LIFE, number=2),
        Metrics(1, {"loss": 0.5}, role="chief-0", incarnation=LIFE, number=1),
    ]
    for event in sent:
        run._take_event((0.0, encode_event(event)))
    assert seen == sent
    assert run._ps_addresses == {PS: address}


def test_what_a_life_tells_of_steps_that_training_went_back_before_is_dropped(
    seen: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(seen, monkeypatch, num_workers=1)
    for role in run.job.roles:
        run._supervisor.start(role, run._supervisor.place(role, str(role)))
        run._supervisor.listen(role, LIFE)
    lose_slots(run._supervisor, {PS_SLOT})
    told = [Metrics(step, {"loss": 0.5}, role="worker-0", incarnation=LIFE, number=step) for step in (700, 702)]
    run._take_event((0.0, encode_event(told[0])))
    assert seen == told[:1]  # the step was made before
    run._supervisor.fail(CHIEF, LIFE, StoppedError("chief-0", "it was cancelled"))
    run._supervisor.leave(CHIEF, LIFE)
    run._supervisor.listen(PS, run._supervisor.place(PS, "elsewhere"))
    run._take_event((0.0, encode_event(told[1])))
    assert seen == told[:1]
    run._supervisor.leave(WORKER, LIFE)
    begun = Metrics(600, {"loss": 0.5}, role="worker-0", incarnation=run._supervisor.place(WORKER, "there"), number=1)
    run._take_event((0.0, encode_event(begun)))
    assert seen == [told[0], begun]


@pytest.mark.parametrize("is_over", [False, True])
def test_a_loss_is_told_of_who_is_to_begin_again(
    seen: list[Event], monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    run = run_of(seen, monkeypatch, num_workers=1)
    run._supervisor.listen(PS, run._supervisor.place(PS, str(PS)))
    for role in run.job.roles[1:]:
        run._supervisor.place(role, str(role))
    if is_over:
        for role in (RoleId(Role.CHIEF, 0), PS):
            run._supervisor.finish(role, LIFE, {})
    lose_slots(run._supervisor, {str(WORKER)})
    assert run._has_news()
    run._losses.report()
    run._losses.report()
    assert [event.role for event in seen if isinstance(event, RoleLost)] == ([] if is_over else ["worker-0"])
    assert [event.num_missing for event in seen if isinstance(event, WorkersMissing)] == ([] if is_over else [1])
    assert ([1, LIFE] in [[*running] for running, _ in SENT]) == (not is_over)
    assert run._has_news() == is_over


@pytest.mark.parametrize("has_stepped", [True, False])
def test_ps_0_hears_of_a_chief_that_is_taken_over_from_and_of_none_with_which_training_goes_back(
    run: ClusterJob, seen: list[Event], has_stepped: bool
) -> None:
    if has_stepped:
        run._take_event((0.0, encode_event(FirstStep(role="chief-0", incarnation=LIFE, number=1))))
        seen.clear()
    lose_slots(run._supervisor, {CHIEF_SLOT})
    run._losses.report()
    [event] = seen
    assert isinstance(event, RoleLost)
    assert (event.role, event.incarnation, event.rolls_back) == ("chief-0", LIFE, not has_stepped)
    assert [(tuple(running), workers) for running, workers in SENT] == ([((0, LIFE), ["ps-0"])] if has_stepped else [])
    assert run._supervisor.to_end() == ([CHIEF] if has_stepped else [PS, CHIEF])


def test_a_life_that_begins_later_is_told_when_the_attempt_made_its_first_step(run: ClusterJob) -> None:
    submitted: list[Any] = []
    future = SimpleNamespace(add_done_callback=lambda call: None)
    run._client = run._futures._client = SimpleNamespace(  # type: ignore[assignment]
        loop=SimpleNamespace(add_callback=lambda *given: None),
        submit=lambda *_, first_step_at, **options: submitted.append(first_step_at) or future,
    )
    run._ps_addresses[PS] = Address("h", 1, None, "")
    run._submit(CHIEF, CHIEF_SLOT)
    for at in (5.0, 9.0):
        run._take_event((0.0, encode_event(FirstStep(role="chief-0", incarnation=LIFE + 1, number=1, time=at))))
    run._submit(CHIEF, CHIEF_SLOT)
    assert submitted == [None, 5.0]


@pytest.mark.parametrize(
    ("num_workers", "pipeline_depth", "takes_over"), [(0, 0, True), (0, 1, False), (1, 0, True), (1, 1, True)]
)
def test_a_chief_that_trains_alone_and_ahead_of_its_pushes_is_not_taken_over_from(
    seen: list[Event], monkeypatch: pytest.MonkeyPatch, num_workers: int, pipeline_depth: int, takes_over: bool
) -> None:
    run = run_of(seen, monkeypatch, num_workers, pipeline_depth)
    for role in (PS, CHIEF):
        run._supervisor.place(role, str(role))
        run._supervisor.listen(role, LIFE)
    run._supervisor.step(CHIEF, LIFE)
    lose_slots(run._supervisor, {CHIEF_SLOT})
    assert [loss.rolls_back for loss in run._supervisor.losses(CHIEF)] == [not takes_over]


def test_a_ps_that_was_lost_at_the_start_and_waits_for_a_slot_is_not_late(
    run: ClusterJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks for its slot gives up in time."""
    monkeypatch.setattr(role_tasks, "START_TIMEOUT_SECS", 0.0)
    monkeypatch.setattr(role_tasks, "SLICE_SECS", 0.0)
    lose_slots(run._supervisor, {PS_SLOT})
    looks: list[int] = []

    def place(check: Any, *, has_lock: bool) -> None:
        assert has_lock
        looks.append(len(looks))
        if len(looks) == 3:
            run._supervisor.place(PS, "elsewhere")

    run._restarter = SimpleNamespace(place=place)  # type: ignore[assignment]
    with pytest.raises(
        WaitTimeoutError, match=r"^ps-0 did not start listening within 0 s: check its Dask worker, elsewhere"
    ):
        run._await(lambda: [PS], "start listening", lambda: None)
    assert len(looks) == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (("Begun", {"role": "ps-0"}), r"^ps-0 failed: expected an event of a known type, got 'Begun'; install the"),
        (
            encode_event(RoleLost("gone", role="ps-0", incarnation=LIFE, number=1)),
            r"^ps-0 failed: a role cannot report its own loss",
        ),
        (encode_event(FirstStep(role="worker-7", number=1)), r"^worker-7 failed: this job has no such role, but First"),
    ],
)
def test_the_job_fails_of_what_is_no_event_of_its_roles(
    run: ClusterJob, seen: list[Event], data: Any, words: str
) -> None:
    run._take_event((0.0, data))
    with pytest.raises(RoleFailedError, match=words):
        run.join()
    assert seen == []


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], r"^ps-0 did not start listening within 0 s: check its Dask worker, tcp://h:1: it may"),
        (
            [RoleStarted("h", role="ps-0", incarnation=LIFE, number=1)],
            r"^ps-0 did not start listening within 0 s: check its Dask worker, tcp://h:1: it may",
        ),
        (
            [PsListening(Address("h", 1, None, ""), role="ps-0", incarnation=LIFE, number=1)],
            r"^ps-0, chief-0 did not start within 0 s: check its Dask worker, tcp://h:1, tcp://h:2: it",
        ),
    ],
)
def test_a_role_that_is_late_is_named_with_what_it_did_not_do(
    run: ClusterJob, monkeypatch: pytest.MonkeyPatch, events: list[Event], words: str
) -> None:
    monkeypatch.setattr(role_tasks, "START_TIMEOUT_SECS", 0.0)
    monkeypatch.setattr(module, "admission", lambda *given: nullcontext(FreeSlots(["tcp://h:1", "tcp://h:2"])))
    submit_nothing(run, monkeypatch, events)
    with pytest.raises(WaitTimeoutError, match=words):
        run.start(AdmissionPolicy(0))


def submit_nothing(
    run: ClusterJob, monkeypatch: pytest.MonkeyPatch, events: Sequence[Event] = ()
) -> list[dict[str, Any]]:
    """Let `run` submit roles to nobody, from whom it hears `events`; return the options that it gives them."""
    run._supervisor = run._records = Supervisor(run.job.roles, LIFE, 3)
    submitted: list[dict[str, Any]] = []
    future = SimpleNamespace(add_done_callback=lambda take: None)

    def submit(*given: Any, **options: Any) -> Any:
        submitted.append(options)
        for event in events:
            run._take_event((0.0, encode_event(event)))
        return future

    client = SimpleNamespace(
        submit=submit, cancel=lambda futures, force: None, loop=SimpleNamespace(add_callback=lambda *given: None)
    )
    monkeypatch.setattr(run._futures, "_client", client)
    return submitted


@pytest.mark.parametrize(
    ("slots", "is_alone"),
    [
        (["tcp://10.0.0.1:1", "tcp://10.0.0.1:2"], True),
        (["tls://[::1]:1", "tls://[::1]:2"], True),
        (["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"], False),
    ],
)
def test_a_ps_knows_whether_all_roles_run_on_its_host(
    run: ClusterJob, monkeypatch: pytest.MonkeyPatch, slots: list[str], is_alone: bool
) -> None:
    monkeypatch.setattr(role_tasks, "START_TIMEOUT_SECS", 0.0)
    monkeypatch.setattr(module, "admission", lambda *given: nullcontext(FreeSlots(slots)))
    submitted = submit_nothing(run, monkeypatch)
    with pytest.raises(WaitTimeoutError):
        run.start(AdmissionPolicy(0))
    assert [options["is_alone"] for options in submitted] == [is_alone]


def take_cancelled(run: ClusterJob, reason: str | None) -> None:
    """Have the futures of all roles count as cancelled."""

    async def gather(future: Any, asynchronous: bool) -> None:
        raise FutureCancelledError("psflow-j-1-ps-0", reason)

    run._futures._client = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://h:8786"), gather=gather)  # type: ignore[assignment]
    future: Any = None
    for role in run.job.roles:
        asyncio.run(run._futures._take_outcome(role, LIFE, future))


def test_a_scheduler_that_is_gone_is_named_and_not_a_role_that_was_cancelled(run: ClusterJob) -> None:
    take_cancelled(run, "scheduler-connection-lost")
    words = r"^the Dask scheduler at tcp://h:8786 failed: the connection to it broke; .*run the same command again$"
    with pytest.raises(RoleFailedError, match=words):
        run.join()


def test_a_role_that_somebody_has_cancelled_is_named(run: ClusterJob) -> None:
    take_cancelled(run, None)
    with pytest.raises(RoleFailedError, match=r"^ps-0 failed: ps-0 was stopped: it was cancelled$"):
        run.join()
