"""Assigns roles to slots of a Dask cluster: all of them, or none."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client
from distributed.scheduler import heartbeat_interval

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.cluster_lock import CHOOSING, STARTING, ClusterLock
from psflow.ps_runtime.cluster.placement import RESOURCE, FreeSlots
from psflow.ps_runtime.cluster.scheduler_rpc import ask
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CapacityError, RoleFailedError, WaitTimeoutError

CLOSES = ("closing_gracefully", "closing")
"""States in which the scheduler lists a Dask worker that is about to end."""
SILENT_SECS = 10.0
"""A Dask worker whose last heartbeat is this much older than the newest one may be stopped."""
SILENT_HEARTBEATS = 5
"""Or this many heartbeats, on a large cluster: Dask sends them less often the more workers there are."""
POLL_SECS = 0.2
TAKEN_SECS = 1.0
TAKEN_POLL_SECS = 0.02
SAY_SECS = 1.0
"""Before the log says that another job is starting."""
ROLE_KEY = re.compile(r"psflow-([0-9a-f]+)-\d+-")

logger = logging.getLogger(__name__)


def check_capacity(
    client: Client, num_roles: int, check: Callable[[], None] = never_stop, *, grows: bool = False
) -> None:
    """Raise an error if a cluster that does not grow has too few slots, free or taken.

    Raises CapacityError if it has fewer than `num_roles` in all.
    """
    if grows:
        return
    num_slots, _ = slots_of(client, check)
    if num_slots < num_roles:
        raise CapacityError(num_roles, num_slots, _where(client))


@dataclass(frozen=True)
class AdmissionPolicy:
    """Whether and how long to wait for a slot for each role."""

    timeout_secs: float
    waits_for_slots: bool = True
    say: Callable[[str], None] = logger.info
    is_kept: bool = False
    grows: bool = False
    """Dask's adaptive scaling adds Dask workers for tasks that wait."""


Grow = Callable[[int, Callable[[], None]], None]
"""Asks the cluster for so many slots, as `SlotRequests.ask`."""


@contextmanager
def admission(
    client: Client,
    num_roles: int,
    policy: AdmissionPolicy,
    check: Callable[[], None],
    grow: Grow = lambda num_slots, check: None,
) -> Iterator[FreeSlots]:
    """Yield the free slots, at least one for each role; no other job is admitted until the block ends.

    A slot is a thread of a Dask worker that is not `silent`. Waiting jobs are admitted in turn, so that small jobs do
    not starve a large one. Meanwhile free slots go to roles that other jobs have lost (`free_now`).

    Raises
    ------
    CapacityError
        If the cluster has too few slots in all, at once unless it is kept; or if too few are, or become, free.
    WaitTimeoutError
        If another job neither starts nor gives up in time, or the scheduler is silent for minutes.
    RoleFailedError
        If the connection to the scheduler breaks.
    """
    if not policy.is_kept:
        check_capacity(client, num_roles, check, grows=policy.grows)
    if not policy.waits_for_slots:  # nor for another job, which may itself be waiting for slots
        workers, tasks = look(client, check)
        _check_free(client, num_roles, workers, free_slots(workers, tasks))
    with ClusterLock(client, STARTING) as start, ClusterLock(client, CHOOSING) as choice:
        _await_lock(start, client, policy, check)
        yield _await_slots(choice, client, num_roles, policy, check, grow)


@contextmanager
def admission_lock(client: Client, policy: AdmissionPolicy, check: Callable[[], None]) -> Iterator[None]:
    """Keep other jobs from choosing slots until the block ends. Parameters and errors as `admission`."""
    with ClusterLock(client, STARTING) as start, ClusterLock(client, CHOOSING) as choice:
        _await_lock(start, client, policy, check)
        _await_lock(choice, client, policy, check)
        yield


@contextmanager
def free_now(
    client: Client, check: Callable[[], None], host: str | None = None, *, has_lock: bool = False
) -> Iterator[FreeSlots | None]:
    """Yield the free slots while no other job chooses any; None while another job does.

    The other job is starting or rolling back; this call does not wait. There are no slots if the connection to the
    scheduler breaks, which the owner of a job detects by other means.

    Raises WaitTimeoutError if the scheduler is silent for minutes.
    """
    with ClusterLock(client, CHOOSING) as choice:
        slots: FreeSlots | None = FreeSlots([])
        with suppress(RoleFailedError):
            slots = _free(client, check) if has_lock or choice.take(check) else None
        yield slots if slots is None or host is None else slots.on_host(host)


def await_taken(client: Client, free: FreeSlots, chosen: Sequence[str], check: Callable[[], None]) -> None:
    """Wait until the scheduler lists the tasks submitted to the slots `chosen` among `free`, for a second at most.

    Otherwise the next job that holds the lock would count these slots as free.
    """
    left = Counter(free.without(chosen).addresses)
    deadline = Deadline(TAKEN_SECS)
    with suppress(RoleFailedError):
        while chosen and not deadline.has_passed:
            now = Counter(_free(client, check).addresses)
            if all(now[slot] <= left[slot] for slot in chosen):
                return
            time.sleep(TAKEN_POLL_SECS)


def look(client: Client, check: Callable[[], None] = never_stop) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the Dask workers of a cluster, as the scheduler describes them, and the tasks of each. Blocks as `ask`."""
    return ask(client, _seen, check)


async def _seen(scheduler: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Leave out Dask workers that are lost between the two answers: without tasks they would look free."""
    identity = await scheduler.identity(n_workers=-1)
    tasks = await scheduler.processing(workers=None)
    return {address: worker for address, worker in identity["workers"].items() if address in tasks}, tasks


def _await_lock(lock: ClusterLock, client: Client, policy: AdmissionPolicy, check: Callable[[], None]) -> None:
    deadline, say = Deadline(policy.timeout_secs), Deadline(SAY_SECS)
    has_said = False
    while not lock.take(check):
        check()
        if deadline.has_passed:
            remedy = "start this job again, or wait longer (cluster.admission_timeout_secs)"
            raise WaitTimeoutError(f"another job on {_where(client)}", "finish starting", policy.timeout_secs, remedy)
        if not has_said and say.has_passed:
            policy.say(f"waiting up to {policy.timeout_secs:g} s for another job to start on {_where(client)}")
            has_said = True
        time.sleep(POLL_SECS)


def _await_slots(
    choice: ClusterLock, client: Client, num_roles: int, policy: AdmissionPolicy, check: Callable[[], None], grow: Grow
) -> FreeSlots:
    """Return all free slots once there are enough and this job is admitted to them."""
    deadline = Deadline(policy.timeout_secs)
    has_said = False
    while True:
        check()
        workers, tasks = look(client, check)
        free = free_slots(workers, tasks)
        if len(free) >= num_roles:
            _await_lock(choice, client, policy, check)
            left = _free(client, check)  # a lost role may have taken one meanwhile
            if len(left) >= num_roles:
                return left
            choice.give_back()
        if not has_said and policy.waits_for_slots:
            policy.say(_waiting(client, num_roles, len(free), workers, tasks, policy))
            has_said = True
        if deadline.has_passed or not policy.waits_for_slots:
            _check_free(client, num_roles, workers, free)
        grow(num_roles, check)
        time.sleep(POLL_SECS)


def _waiting(
    client: Client,
    num_roles: int,
    num_free: int,
    workers: Mapping[str, Any],
    tasks: Mapping[str, Any],
    policy: AdmissionPolicy,
) -> str:
    takers = _takers(tasks)
    why = f"the others are taken by {takers}" if takers else "and no other task is running"
    free = f"{num_free} {'is' if num_free == 1 else 'are'} free"
    where = _where(client) + _silence(workers)
    return f"waiting up to {policy.timeout_secs:g} s for {num_roles} slots of {where}: {free}, {why}"


def slots_of(client: Client, check: Callable[[], None] = never_stop) -> tuple[int, FreeSlots]:
    """Return how many slots a cluster has in all, and its free ones. Blocks as `ask`."""
    workers, tasks = look(client, check)
    resources = {address: worker["resources"] for address, worker in workers.items()}
    return sum(worker["nthreads"] for worker in workers.values()), FreeSlots(free_slots(workers, tasks), resources)


def _free(client: Client, check: Callable[[], None]) -> FreeSlots:
    return slots_of(client, check)[1]


def _check_free(client: Client, num_roles: int, workers: Mapping[str, Any], free: Sized) -> None:
    if len(free) < num_roles:
        raise CapacityError(num_roles, len(free), _where(client) + _silence(workers))


def _silence(workers: Mapping[str, Any]) -> str:
    """Name the silent Dask workers, whose slots do not count; empty if there are none."""
    names = ", ".join(sorted(silent(workers)))
    return f" (without {names}: no heartbeat from there for {_silent_secs(workers):g} s)" if names else ""


def _takers(tasks: Mapping[str, Any]) -> str:
    """Name the tasks on the cluster, psflow jobs by their ids in job.json; empty if there are none."""
    keys = [str(key) for on_worker in tasks.values() for key in on_worker]
    matches = [ROLE_KEY.match(key) for key in keys]
    jobs = sorted({f"job {match[1]}" for match in matches if match})
    num_others = matches.count(None)
    others = f"{num_others} other task{'' if num_others == 1 else 's'}"
    return ", ".join([*jobs, *([others] if num_others else [])])


def _where(client: Client) -> str:
    scheduler: Any = client.scheduler
    return f"the Dask cluster at {scheduler.address}"


def silent(workers: Mapping[str, Any]) -> frozenset[str]:
    """Return the addresses of the Dask workers that have sent no heartbeat for a while.

    The scheduler lists a stopped process, or one whose host is gone, for minutes.
    """
    newest = max((worker["last_seen"] for worker in workers.values()), default=0.0)
    limit = _silent_secs(workers)
    return frozenset(address for address, worker in workers.items() if newest - worker["last_seen"] > limit)


def _silent_secs(workers: Mapping[str, Any]) -> float:
    return max(SILENT_SECS, SILENT_HEARTBEATS * float(heartbeat_interval(len(workers))))


def free_slots(workers: Mapping[str, Any], processing: Mapping[str, Any]) -> list[str]:
    """Return the free slots of `workers` (an answer of ``scheduler_info``) that are not `silent`, best first.

    Those of workers that declare ``psflow`` come first, and among equals the first free thread of each worker.
    """
    are_silent = silent(workers)
    stay = sorted(a for a, worker in workers.items() if worker["status"] not in CLOSES and a not in are_silent)
    free = {address: workers[address]["nthreads"] - len(processing.get(address, ())) for address in stay}
    rounds = [[address for address in free if free[address] > i] for i in range(max(free.values(), default=0))]
    preferred = itertools.chain.from_iterable(rounds)
    return sorted(preferred, key=lambda address: RESOURCE not in workers[address]["resources"])
