"""Which task of which cluster a process is: what a RunConfig tells model_fn and hooks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.cluster_faults import index_fault, num_addresses
from psflow.ps_runtime.specs.roles import Role, RoleId

__all__ = ["ClusterSpec", "TaskFacts"]


@dataclass(frozen=True)
class ClusterSpec:
    """The training tasks of a cluster, by type. It is false if there are none.

    Parameters
    ----------
    tasks : mapping of str to sequence of str
        The names of the roles of each type, such as ``{"chief": ["chief-0"], "ps": ["ps-0"]}``, where Dask alone knows
        their addresses; else these.

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
        """Refuse what is no names of tasks by type, such as one address where a list of them belongs."""
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
        """The types of tasks that there are."""
        return list(self.tasks)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def num_tasks(self, job_name: str) -> int:
        """Return how many tasks of a type there are: 0 if there is no such type."""
        return len(self.tasks.get(job_name, ()))

    def job_tasks(self, job_name: str) -> list[str]:
        """Return the names, or addresses, of the tasks of a type; UsageError if there is no such type."""
        if job_name not in self.tasks:
            near = did_you_mean(job_name, self.tasks) if isinstance(job_name, str) else ""
            there = ", ".join(self.tasks) or "none"
            raise UsageError(
                (f"ClusterSpec: job_name should be a type of its tasks, got {job_name!r}; there are {there}{near}",)
            )
        return list(self.tasks[job_name])

    def task_indices(self, job_name: str) -> list[int]:
        """Return the indices of the tasks of a type; UsageError if there is no such type."""
        return list(range(len(self.job_tasks(job_name))))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the name, or address, of one task; UsageError if there is no such one."""
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
    """One task among those of its cluster; by default the only one there is."""

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
