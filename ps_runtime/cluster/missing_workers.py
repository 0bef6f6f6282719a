"""Decides how many workers may be missing as a job begins, and as it trains."""

from __future__ import annotations

from collections.abc import Sequence

from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.specs.roles import Role, RoleId


def slots_needed(roles: Sequence[RoleId], min_workers: int | None) -> int:
    """Return how many slots a job needs to begin.

    Examples
    --------
    >>> from psflow.ps_runtime.specs.roles import job_roles
    >>> roles = job_roles(num_ps=1, num_workers=4, evaluator=True)
    >>> slots_needed(roles, min_workers=1), slots_needed(roles, min_workers=None)
    (4, 7)
    """
    num_workers = sum(role.role is Role.WORKER for role in roles)
    return len(roles) if min_workers is None else len(roles) - num_workers + min_workers


def roles_to_begin(roles: Sequence[RoleId], num_slots: int) -> list[RoleId]:
    """Return the roles that begin on so many slots: the last workers stay unplaced."""
    workers = [role for role in roles if role.role is Role.WORKER]
    num_there = len(workers) - max(0, len(roles) - num_slots)
    return [role for role in roles if role.role is not Role.WORKER or role in workers[:num_there]]


def shortage(supervisor: Supervisor, num_workers: int, min_workers: int | None) -> str:
    """Return the sentence that too few workers are there; "" if they are enough to continue."""
    num_there = num_workers - supervisor.num_without_slot
    if min_workers is None or num_there >= min_workers:
        return ""
    return f"the job has {num_there} of the {min_workers} workers that it needs (cluster.min_workers)"
