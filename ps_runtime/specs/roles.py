"""The roles of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_NAME = re.compile("(ps|chief|worker|evaluator)-(0|[1-9][0-9]{0,5})")


class Role(StrEnum):
    """The function of a process in a job."""

    PS = "ps"
    CHIEF = "chief"
    WORKER = "worker"
    EVALUATOR = "evaluator"


@dataclass(frozen=True, slots=True)
class RoleId:
    """One role of a job, such as ``worker-1``.

    Examples
    --------
    >>> str(RoleId(Role.WORKER, 1)), RoleId(Role.WORKER, 1).replica
    ('worker-1', 2)
    """

    role: Role
    index: int

    @classmethod
    def parse(cls, name: str) -> RoleId:
        """Return the role of a name such as ``worker-1``; ValueError for other names."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError("the name of a role, such as worker-1")
        return cls(Role(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def trains(self) -> bool:
        """Whether this role computes gradients, like the chief and workers."""
        return self.role in (Role.CHIEF, Role.WORKER)

    @property
    def replica(self) -> int:
        """Index among the training replicas: the chief is 0, worker `i` is `i + 1`."""
        if not self.trains:
            raise ValueError(f"{self} is not a training replica")
        return 0 if self.role is Role.CHIEF else self.index + 1


def job_roles(num_ps: int, num_workers: int, *, evaluator: bool) -> tuple[RoleId, ...]:
    """Return the roles of a job in the order in which they start: ps, chief, workers, evaluator."""
    roles = [RoleId(Role.PS, i) for i in range(num_ps)]
    roles.append(RoleId(Role.CHIEF, 0))
    roles += [RoleId(Role.WORKER, i) for i in range(num_workers)]
    if evaluator:
        roles.append(RoleId(Role.EVALUATOR, 0))
    return tuple(roles)
