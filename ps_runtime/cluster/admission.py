"""Who runs where: a slot of the cluster for each role, all of them or none."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from distributed import Client, Lock

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CapacityError, WaitTimeoutError

__all__ = ["AdmissionPolicy", "admission", "admission_lock", "check_capacity", "free_slots"]

CLOSES = ("closing_gracefully", "closing")
"""What the scheduler says of a Dask worker that is about to end."""
RESOURCE = "psflow"
POLL_SECS = 0.2
LOCK_SLICE_SECS = 1.0
ROLE_KEY = re.compile(r"psflow-([0-9a-f]+)-\d+-")

logger = logging.getLogger(__name__)


def check_capacity(client: Client, num_roles: int) -> None:
    """Refuse a cluster that has too few slots, free or taken.

    Raises
    ------
    CapacityError
        If it has fewer than `num_roles` in all.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    num_slots = sum(worker["nthreads"] for worker in workers.values())
    if num_slots < num_roles:
        raise CapacityError(num_roles, num_slots, _where(client))


@dataclass(frozen=True)
class AdmissionPolicy:
    """Whether and how long to wait for a slot for each role.

    Parameters
    ----------
    timeout_secs : float
        For another job that is starting, and then for slots that are taken now to become free.
    waits_for_slots : bool
        Whether to wait where slots are taken; else that is an error at once.
    say : callable
        Told what is waited for, once for each thing.
    host : str or None
        Take slots of this host only; None: of any.
    is_kept : bool
        Whether the cluster replaces workers that it has lost: it is waited for, though it has too few slots in all.
    has_turn : bool
        Whether this job is being admitted already, so that no other one chooses meanwhile.
    """

    timeout_secs: float
    waits_for_slots: bool = True
    say: Callable[[str], None] = logger.info
    host: str | None = None
    is_kept: bool = False
    has_turn: bool = False


@contextmanager
def admission(
    client: Client, num_roles: int, policy: AdmissionPolicy, check: Callable[[], None], most: int | None = None
) -> Iterator[list[str]]:
    """Give the address of a free slot for each role; no other job is given any until the block ends.

    A slot is a thread of a Dask worker. Workers that declare the resource ``psflow`` come first; among equals the
    roles spread over as many workers as there are. Jobs that wait are admitted one after the other, so that a large
    one is not passed over for ever.

    Parameters
    ----------
    client : Client
        Of the cluster.
    num_roles : int
        Slots to find, at least 1.
    policy : AdmissionPolicy
        How long to wait for another job that starts, and for slots.
    check : callable
        Called at least once a second; raises to end the wait.
    most : int, optional
        Slots to give if there are more than `num_roles`; by default none.

    Raises
    ------
    CapacityError
        If the cluster has too few slots in all, at once unless it is kept; or if too few are, or become, free.
    WaitTimeoutError
        If another job neither starts nor gives up in time.
    """
    if not policy.is_kept:
        check_capacity(client, num_roles)
    if not policy.waits_for_slots:
        _free_here(client, num_roles, policy)  # before waiting for another job, which may itself be waiting for slots
    with nullcontext() if policy.has_turn else admission_lock(client, policy, check):
        yield _await_slots(client, num_roles, policy, check)[: most or num_roles]


@contextmanager
def admission_lock(client: Client, policy: AdmissionPolicy, check: Callable[[], None]) -> Iterator[None]:
    """Have no other job choose its slots until the block ends. The parameters and the error are `admission`'s."""
    with client.as_current():
        lock = Lock("psflow-admission")
    _acquire(lock, client, policy, check)
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: Lock, client: Client, policy: AdmissionPolicy, check: Callable[[], None]) -> None:
    deadline = Deadline(policy.timeout_secs)
    has_said = False
    while not lock.acquire(timeout=LOCK_SLICE_SECS):
        check()
        if deadline.has_passed:
            remedy = "start this job again, or wait longer (cluster.admission_timeout_secs)"
            raise WaitTimeoutError(f"another job on {_where(client)}", "finish starting", policy.timeout_secs, remedy)
        if not has_said:
            policy.say(f"waiting up to {policy.timeout_secs:g} s for another job to start on {_where(client)}")
            has_said = True


def _await_slots(client: Client, num_roles: int, policy: AdmissionPolicy, check: Callable[[], None]) -> list[str]:
    deadline = Deadline(policy.timeout_secs)
    has_said = False
    while True:
        check()
        try:
            return _free_here(client, num_roles, policy)
        except CapacityError as error:
            if not policy.waits_for_slots:
                raise
            if not has_said:
                free = f"{error.num_slots} {'is' if error.num_slots == 1 else 'are'} free"
                takers = _takers(client)
                why = f"the others are taken by {takers}" if takers else "and no other task is running"
                policy.say(
                    f"waiting up to {policy.timeout_secs:g} s for {num_roles} slots of {error.where}: {free}, {why}"
                )
                has_said = True
            if deadline.has_passed:
                raise
        time.sleep(POLL_SECS)


def _free_here(client: Client, num_roles: int, policy: AdmissionPolicy) -> list[str]:
    free = free_slots(client.scheduler_info(n_workers=-1)["workers"], client.processing())
    if policy.host is not None:
        free = [slot for slot in free if urlsplit(slot).hostname == policy.host]
    if len(free) < num_roles:
        raise CapacityError(num_roles, len(free), _where(client))
    return free


def _takers(client: Client) -> str:
    """Name what runs on the cluster, psflow jobs by their ids in job.json; empty if nothing does."""
    keys = [str(key) for tasks in client.processing().values() for key in tasks]
    matches = [ROLE_KEY.match(key) for key in keys]
    jobs = sorted({f"job {match[1]}" for match in matches if match})
    num_others = matches.count(None)
    others = f"{num_others} other task{'' if num_others == 1 else 's'}"
    return ", ".join([*jobs, *([others] if num_others else [])])


def _where(client: Client) -> str:
    return f"the Dask cluster at {client.scheduler_info(n_workers=0)['address']}"


def free_slots(workers: Mapping[str, Any], processing: Mapping[str, Any]) -> list[str]:
    """Return the free slots of `workers` (as ``scheduler_info`` tells them), best first."""
    stay = sorted(address for address, worker in workers.items() if worker["status"] not in CLOSES)
    free = {address: workers[address]["nthreads"] - len(processing.get(address, ())) for address in stay}
    rounds = [[address for address in free if free[address] > i] for i in range(max(free.values(), default=0))]
    preferred = itertools.chain.from_iterable(rounds)
    return sorted(preferred, key=lambda address: RESOURCE not in workers[address]["resources"])
