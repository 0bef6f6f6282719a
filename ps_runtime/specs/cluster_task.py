"""A cluster whose roles somebody starts by hand: who is at which address, and which of them this process is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.ps_runtime.specs.task_facts import ClusterSpec, TaskFacts

__all__ = ["ClusterAddresses", "ClusterTask", "TaskType"]


class TaskType(StrEnum):
    """What TF_CONFIG calls the processes of a cluster."""

    CHIEF = "chief"
    MASTER = "master"
    """A chief that evaluates, too."""
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"
    CLIENT = "client"
    """No role: who starts the others."""


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """Where each role of a cluster is, as ``host:port``."""

    chief: str
    workers: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()
    evaluator: str | None = None
    chief_evaluates: bool = False

    @property
    def chief_type(self) -> TaskType:
        """What the chief is called."""
        return TaskType.MASTER if self.chief_evaluates else TaskType.CHIEF

    @property
    def spec(self) -> ClusterSpec:
        """The training tasks by type, with their addresses. The evaluator is none of them."""
        by_type = {self.chief_type: [self.chief], TaskType.WORKER: self.workers, TaskType.PS: self.ps}
        return ClusterSpec({str(kind): tuple(addresses) for kind, addresses in by_type.items() if addresses})

    def facts_of(self, role: RoleId) -> TaskFacts:
        """Return what `role` is told of its place."""
        return TaskFacts.within(self.spec, self.chief_type if role.role is Role.CHIEF else role.role, role.index)

    def address_of(self, role: RoleId) -> str | None:
        """Return the address of the process that carries `role`; None for an evaluator of which nobody has said."""
        match role.role:
            case Role.CHIEF:
                return self.chief
            case Role.WORKER:
                return self.workers[role.index]
            case Role.PS:
                return self.ps[role.index]
            case Role.EVALUATOR:
                return self.chief if self.chief_evaluates else self.evaluator
            case _:
                assert_never(role.role)

    def processes(self, *, evaluator: bool) -> dict[str, tuple[RoleId, ...]]:
        """Return the roles of each process, by the name of its first one."""
        roles = job_roles(len(self.ps), len(self.workers), evaluator=evaluator and not self.chief_evaluates)
        found: dict[str, tuple[RoleId, ...]] = {str(role): (role,) for role in roles}
        if evaluator and self.chief_evaluates:
            found["chief-0"] = (RoleId(Role.CHIEF, 0), RoleId(Role.EVALUATOR, 0))
        return found


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """One process of a cluster."""

    cluster: ClusterAddresses
    task_type: TaskType
    task_id: int

    @property
    def facts(self) -> TaskFacts:
        """What a RunConfig tells of it."""
        return TaskFacts.within(self.cluster.spec, self.task_type, self.task_id)

    @property
    def role(self) -> RoleId | None:
        """The role that this process is, the first one of a master; None for a client."""
        match self.task_type:
            case TaskType.CHIEF | TaskType.MASTER:
                return RoleId(Role.CHIEF, 0)
            case TaskType.WORKER:
                return RoleId(Role.WORKER, self.task_id)
            case TaskType.PS:
                return RoleId(Role.PS, self.task_id)
            case TaskType.EVALUATOR:
                return RoleId(Role.EVALUATOR, 0)
            case TaskType.CLIENT:
                return None
            case _:
                assert_never(self.task_type)

    def to_json(self) -> str:
        """Return what TF_CONFIG says of this process.

        Examples
        --------
        >>> ClusterTask(ClusterAddresses("a:1", ps=("b:1",)), TaskType.PS, 0).to_json()
        '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
        """
        cluster = self.cluster.spec.as_dict()
        if self.cluster.evaluator is not None:
            cluster[TaskType.EVALUATOR] = [self.cluster.evaluator]
        return json.dumps({"cluster": cluster, "task": {"type": self.task_type, "index": self.task_id}})
