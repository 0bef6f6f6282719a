"""Manual clusters: the addresses of all roles, and the role of this process."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.ps_runtime.specs.task_facts import (
    ClusterSpec,
    TaskFacts,
    address_faults,
    duplicate_faults,
    index_fault,
    num_addresses,
)

CLOSED_SCHEMES = ("tls://", "wss://", "inproc://")
"""Of the addresses of Dask schedulers that require certificates, or are a part of this process."""


class TaskType(StrEnum):
    """The types of processes in TF_CONFIG."""

    CHIEF = "chief"
    MASTER = "master"
    """A chief that also evaluates."""
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"
    CLIENT = "client"
    """Not a role: it starts the others."""


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """The addresses of the roles of a cluster, as ``host:port``."""

    chief: str
    workers: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()
    evaluator: str | None = None
    chief_evaluates: bool = False

    @property
    def chief_type(self) -> TaskType:
        """The type of the chief."""
        return TaskType.MASTER if self.chief_evaluates else TaskType.CHIEF

    @property
    def spec(self) -> ClusterSpec:
        """The training tasks by type, with their addresses, without the evaluator."""
        by_type = {self.chief_type: [self.chief], TaskType.WORKER: self.workers, TaskType.PS: self.ps}
        return ClusterSpec({str(kind): tuple(addresses) for kind, addresses in by_type.items() if addresses})

    @property
    def evaluator_may_be_missing(self) -> bool:
        """Whether the chief cannot know if an evaluator will join: it has no address, as in most of TensorFlow's."""
        return self.evaluator is None and not self.chief_evaluates

    def facts_of(self, role: RoleId) -> TaskFacts:
        """Return the task facts of `role`."""
        return TaskFacts.within(self.spec, self.chief_type if role.role is Role.CHIEF else role.role, role.index)

    def address_of(self, role: RoleId) -> str | None:
        """Return the address of the process that runs `role`; None for an evaluator without an address."""
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
        """The task facts for a RunConfig."""
        return TaskFacts.within(self.cluster.spec, self.task_type, self.task_id)

    @property
    def role(self) -> RoleId | None:
        """The role of this process, for a master the first one; None for a client."""
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
        """Return the TF_CONFIG of this process.

        Examples
        --------
        >>> ClusterTask(ClusterAddresses("a:1", ps=("b:1",)), TaskType.PS, 0).to_json()
        '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
        """
        cluster = self.cluster.spec.as_dict()
        if self.cluster.evaluator is not None:
            cluster[TaskType.EVALUATOR] = [self.cluster.evaluator]
        return json.dumps({"cluster": cluster, "task": {"type": self.task_type, "index": self.task_id}})


PS_HOSTS, WORKER_HOSTS, JOB_NAME, TASK_INDEX = "--ps_hosts", "--worker_hosts", "--job_name", "--task_index"
JOB_NAMES = [TaskType.PS.value, TaskType.WORKER.value, TaskType.EVALUATOR.value]


def parse_role_flags(ps_hosts: str, worker_hosts: str, job_name: str, task_index: int) -> ClusterTask:
    """Return the process that the flags describe.

    The first worker host is the chief; the indices of the others shift down by one.

    Raises ConfigError with every fault, by the name of its flag.

    Examples
    --------
    >>> task = parse_role_flags("a:1", "b:1;c:1", "worker", 1)
    >>> task.cluster.chief, task.cluster.workers, str(task.role)
    ('b:1', ('c:1',), 'worker-0')
    """
    hosts = {PS_HOSTS: _split(ps_hosts), WORKER_HOSTS: _split(worker_hosts)}
    faults = [fault for name, addresses in hosts.items() for fault in address_faults(name, addresses)]
    faults = faults or duplicate_faults(hosts)
    nums = {"ps": len(hosts[PS_HOSTS]), "worker": len(hosts[WORKER_HOSTS]), "evaluator": 1}
    if job_name not in nums:
        faults.append(f"{JOB_NAME} should be one of {', '.join(JOB_NAMES)}, got {job_name!r}{_hint(job_name)}")
    elif (fault := index_fault(TASK_INDEX, task_index, nums[job_name], _why(job_name, nums[job_name]))) is not None:
        faults.append(fault)
    if faults:
        raise ConfigError(tuple(faults))
    chief, *workers = hosts[WORKER_HOSTS]
    cluster = ClusterAddresses(chief, tuple(workers), tuple(hosts[PS_HOSTS]))
    if job_name != TaskType.WORKER:
        return ClusterTask(cluster, TaskType(job_name), task_index)
    return ClusterTask(cluster, *worker_or_chief(task_index))


def worker_or_chief(index: int) -> tuple[TaskType, int]:
    """Return the type and index of a worker where worker 0 is the chief."""
    return (TaskType.WORKER, index - 1) if index else (TaskType.CHIEF, 0)


def _split(hosts: str) -> list[str]:
    return [host.strip() for host in re.split("[,;]", hosts)]


def _why(job_name: str, num: int) -> str:
    return "there is one evaluator" if job_name == TaskType.EVALUATOR else num_addresses(f"--{job_name}_hosts", num)


def _hint(job_name: str) -> str:
    if job_name in (TaskType.CHIEF, TaskType.MASTER):
        return f"; the chief is {JOB_NAME} worker {TASK_INDEX} 0"
    return did_you_mean(job_name, JOB_NAMES)
