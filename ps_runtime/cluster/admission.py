"""Who runs where: a slot of the cluster for each role, all of them or none."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client

from ps_runtime.errors import CapacityError

__all__ = ["check_capacity", "choose_slots"]

RESOURCE = "psflow"
POLL_SECS = 0.2


def check_capacity(client: Client, num_roles: int) -> None:
    """Refuse a cluster that has too few slots, free or taken.

    Raises
    ------
    CapacityError
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    num_slots = sum(worker["nthreads"] for worker in workers.values())
    if num_slots < num_roles:
        raise CapacityError(num_roles, num_slots, _where(client))


def choose_slots(client: Client, num_roles: int, timeout_secs: float, check: Callable[[], None]) -> list[str]:
    """Return the address of a free slot for each role.

    A slot is a thread of a Dask worker. Workers that declare the resource ``psflow`` come first; among equals the
    roles spread over as many workers as there are. Call it under the admission lock.

    Parameters
    ----------
    client : Client
    num_roles : int
    timeout_secs : float
        How long to wait for slots that are taken now.
    check : callable
        Called several times a second; raises to end the wait.

    Raises
    ------
    CapacityError
        After `timeout_secs`, if too few have become free.
    """
    deadline = time.monotonic() + timeout_secs
    while True:
        check()
        workers = client.scheduler_info(n_workers=-1)["workers"]
        free = free_slots(workers, client.processing())
        if len(free) >= num_roles:
            return free[:num_roles]
        if time.monotonic() >= deadline:
            raise CapacityError(num_roles, len(free), _where(client))
        time.sleep(POLL_SECS)


def _where(client: Client) -> str:
    return f"the Dask cluster at {client.scheduler_info(n_workers=0)['address']}"


def free_slots(workers: Mapping[str, Any], processing: Mapping[str, Any]) -> list[str]:
    """Return the free slots of `workers` (as ``scheduler_info`` tells them), best first."""
    ranked = sorted(workers, key=lambda address: (RESOURCE not in workers[address]["resources"], address))
    free = {address: workers[address]["nthreads"] - len(processing.get(address, ())) for address in ranked}
    rounds = [[address for address in ranked if free[address] > i] for i in range(max(free.values(), default=0))]
    preferred = itertools.chain.from_iterable(rounds)
    return sorted(preferred, key=lambda address: RESOURCE not in workers[address]["resources"])
