"""The task of a process in its cluster, as a RunConfig reports it to model_fn and hooks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TypeGuard

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.roles import Role, RoleId

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
"""One label of a host name: DNS allows 63 characters."""
_ADDRESS = re.compile(rf"(?:\[(?P<ip>[0-9A-Fa-f:.%]+)\]|{_LABEL}(?:\.{_LABEL})*):(?P<port>[0-9]+)", re.ASCII)
EXPECTED = "a host and a port, such as 'host:2222'"
MAX_PORT = 65535


def address_faults(name: str, addresses: Sequence[object]) -> list[str]:
    """Return the faults of the addresses in `name`.

    Examples
    --------
    >>> address_faults("cluster.ps", ["a:1", "b"])
    ["cluster.ps[1] should be a host and a port, such as 'host:2222', got 'b'"]
    """
    faults = []
    for place, address in enumerate(addresses):
        found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if found is None or not _is_ip(found["ip"]):
            faults.append(f"{name}[{place}] should be {EXPECTED}, got {address!r}")
        elif len(found["port"]) > len(str(MAX_PORT)) or not 1 <= int(found["port"]) <= MAX_PORT:
            faults.append(f"{name}[{place}] should have a port from 1 to {MAX_PORT}, got {address!r}")
    return faults


def _is_ip(host: str | None) -> bool:
    """Return whether the text in brackets is an IP address; None: there are no brackets."""
    try:
        return host is None or bool(ip_address(host))
    except ValueError:
        return False


def duplicate_faults(by_name: Mapping[str, Sequence[object]]) -> list[str]:
    """Return the addresses that occur twice, and where.

    Examples
    --------
    >>> duplicate_faults({"cluster.ps": ["a:1"], "cluster.worker": ["b:1", "a:1"]})
    ["cluster.worker[1] is 'a:1', as cluster.ps[0] is: each process needs an address of its own"]
    """
    first: dict[object, str] = {}
    faults = []
    for name, addresses in by_name.items():
        for place, address in enumerate(addresses):
            here = f"{name}[{place}]"
            before = first.setdefault(repr(address), here)
            if before != here:
                faults.append(f"{here} is {address!r}, as {before} is: each process needs an address of its own")
    return faults


def whole_fault(name: str, index: object) -> str | None:
    """Return the fault of an index that is not a whole number; None if it is one."""
    return None if _is_whole(index) else f"{name} should be a whole number, got {index!r}"


def _is_whole(index: object) -> TypeGuard[int]:
    return isinstance(index, int) and not isinstance(index, bool)


def index_fault(name: str, index: object, num_tasks: int, why: str) -> str | None:
    """Return the fault of the index of a process; None if it is valid.

    Examples
    --------
    >>> index_fault("task.index", 3, 2, "cluster.worker has 2 addresses")
    'task.index should be from 0 to 1, as cluster.worker has 2 addresses, got 3'
    """
    if not _is_whole(index):
        return whole_fault(name, index)
    if not 0 <= index < num_tasks:
        return f"{name} should be {'0' if num_tasks == 1 else f'from 0 to {num_tasks - 1}'}, as {why}, got {index}"
    return None


def num_addresses(name: str, num: int) -> str:
    """Return the number of addresses of `name` as a phrase."""
    return f"{name} has {num} address{'' if num == 1 else 'es'}"


@dataclass(frozen=True)
class ClusterSpec:
    """The training tasks of a cluster, by type. False if there are none.

    Parameters
    ----------
    tasks : mapping of str to sequence of str
        The names of the roles of each type, such as ``{"chief": ["chief-0"], "ps": ["ps-0"]}``, where only Dask knows
        their addresses; else the addresses.

    Raises
    ------
    ArgumentTypeError
        With every fault.

    Examples
    --------
    >>> cluster = ClusterSpec({"chief": ["chief-0"], "worker": ["worker-0", "worker-1"]})
    >>> cluster.jobs, cluster.num_tasks("worker"), bool(cluster)
    (['chief', 'worker'], 2, True)
    >>> cluster.job_tasks("worker"), cluster.task_indices("worker"), cluster.task_address("worker", 1)
    (['worker-0', 'worker-1'], [0, 1], 'worker-1')
    """

    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse anything but names of tasks by type, such as one address instead of a list."""
        faults = ArgumentFaults("ClusterSpec: ")
        if not isinstance(self.tasks, Mapping):
            faults.add_type("tasks", "a mapping of types to addresses", self.tasks)
            faults.raise_any()
        for job, names in self.tasks.items():
            if not isinstance(job, str):
                faults.add_type("a type of task", "a str, such as 'worker'", job)
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                faults.add_type(f"tasks[{job!r}]", "a list or tuple of addresses", names)
        faults.raise_any()

    @property
    def jobs(self) -> list[str]:
        """The types of the tasks."""
        return list(self.tasks)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks of a type: 0 for an unknown type."""
        return len(self.tasks.get(job_name, ()))

    def job_tasks(self, job_name: str) -> list[str]:
        """Return the names, or addresses, of the tasks of a type; UsageError for an unknown type."""
        if job_name not in self.tasks:
            near = did_you_mean(job_name, self.tasks) if isinstance(job_name, str) else ""
            there = ", ".join(self.tasks) or "none"
            raise UsageError(
                (f"ClusterSpec: job_name should be a type of its tasks, got {job_name!r}; there are {there}{near}",)
            )
        return list(self.tasks[job_name])

    def task_indices(self, job_name: str) -> list[int]:
        """Return the indices of the tasks of a type; UsageError for an unknown type."""
        return list(range(len(self.job_tasks(job_name))))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the name, or address, of one task; UsageError if it does not exist."""
        tasks = self.job_tasks(job_name)
        fault = index_fault("ClusterSpec: task_index", task_index, len(tasks), num_addresses(job_name, len(tasks)))
        if fault is not None:
            raise UsageError((fault,))
        return tasks[task_index]

    def as_dict(self) -> dict[str, list[str]]:
        """Return the names, or addresses, of the tasks by type."""
        return {job: list(names) for job, names in self.tasks.items()}


@dataclass(frozen=True)
class TaskFacts:
    """One task of a cluster; by default the only one."""

    task_type: str = "worker"
    task_id: int = 0
    is_chief: bool = True
    num_ps_replicas: int = 0
    num_worker_replicas: int = 1
    global_id_in_cluster: int | None = 0
    cluster_spec: ClusterSpec = field(default_factory=ClusterSpec)

    @classmethod
    def of(cls, role: RoleId, num_ps: int, num_workers: int) -> TaskFacts:
        """Return the facts of a role on a cluster."""
        return cls.within(_training_tasks(num_ps, num_workers), role.role, role.index)

    @classmethod
    def within(cls, cluster: ClusterSpec, task_type: str, task_id: int) -> TaskFacts:
        """Return the facts of one task of a cluster."""
        if task_type == Role.EVALUATOR:
            return cls(str(task_type), task_id, False, 0, 0, None)
        order = [(job, index) for job in cluster.jobs for index in range(cluster.num_tasks(job))]
        num_ps = cluster.num_tasks(Role.PS)
        return cls(
            task_type=str(task_type),
            task_id=task_id,
            is_chief=task_type == cluster.jobs[0],
            num_ps_replicas=num_ps,
            num_worker_replicas=len(order) - num_ps,
            global_id_in_cluster=order.index((task_type, task_id)) if task_type in cluster.jobs else None,
            cluster_spec=cluster,
        )


def _training_tasks(num_ps: int, num_workers: int) -> ClusterSpec:
    nums = {Role.CHIEF: 1, Role.WORKER: num_workers, Role.PS: num_ps}
    return ClusterSpec({str(kind): [str(RoleId(kind, i)) for i in range(num)] for kind, num in nums.items() if num})
