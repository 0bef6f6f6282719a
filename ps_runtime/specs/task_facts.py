"""Which task of which cluster a process is: what a RunConfig tells model_fn and hooks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles

__all__ = ["ClusterSpec", "TaskFacts"]


@dataclass(frozen=True)
class ClusterSpec:
    """The training tasks of a cluster, by type. It is false if there are none.

    Parameters
    ----------
    tasks : mapping of str to sequence of str
        The names of the roles of each type, such as ``{"chief": ["chief-0"], "ps": ["ps-0"]}``. Dask knows their
        addresses.

    Examples
    --------
    >>> cluster = ClusterSpec({"chief": ["chief-0"], "worker": ["worker-0", "worker-1"]})
    >>> cluster.jobs, cluster.num_tasks("worker"), bool(cluster)
    (['chief', 'worker'], 2, True)
    """

    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def jobs(self) -> list[str]:
        """The types of tasks that there are."""
        return list(self.tasks)

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def num_tasks(self, job_name: str) -> int:
        """Return how many tasks of a type there are: 0 if there is no such type."""
        return len(self.tasks.get(job_name, ()))

    def as_dict(self) -> dict[str, list[str]]:
        """Return the names of the tasks by type."""
        return {job: list(names) for job, names in self.tasks.items()}


@dataclass(frozen=True)
class TaskFacts:
    """One task among those of its cluster; by default the only one there is.

    Parameters
    ----------
    task_type : str
        ``worker`` without a cluster; else ``chief``, ``worker``, ``ps`` or ``evaluator``.
    task_id : int
        Index among the tasks of its type.
    is_chief : bool
        Whether it saves checkpoints: without a cluster it does.
    num_ps_replicas, num_worker_replicas : int
        Parameter servers, and training replicas with the chief, of the cluster that it belongs to.
    global_id_in_cluster : int or None
        The chief is 0, then come the workers, then the ps. None for an evaluator, which belongs to no cluster.
    cluster_spec : ClusterSpec
        Empty without a cluster, and for an evaluator.
    """

    task_type: str = "worker"
    task_id: int = 0
    is_chief: bool = True
    num_ps_replicas: int = 0
    num_worker_replicas: int = 1
    global_id_in_cluster: int | None = 0
    cluster_spec: ClusterSpec = field(default_factory=ClusterSpec)

    @classmethod
    def of(cls, role: RoleId, num_ps: int, num_workers: int) -> TaskFacts:
        """Return the facts of a role on a cluster.

        Parameters
        ----------
        role : RoleId
            Which one.
        num_ps, num_workers : int
            Of the job; `num_workers` counts those beside the chief.
        """
        if role.role is Role.EVALUATOR:
            return cls(str(role.role), role.index, False, 0, 0, None)
        ps, *training = _by_type(num_ps, num_workers).items()
        order = [name for _, names in (*training, ps) for name in names]
        return cls(
            task_type=str(role.role),
            task_id=role.index,
            is_chief=role.role is Role.CHIEF,
            num_ps_replicas=num_ps,
            num_worker_replicas=num_workers + 1,
            global_id_in_cluster=order.index(str(role)),
            cluster_spec=ClusterSpec(dict([*training, ps])),
        )


def _by_type(num_ps: int, num_workers: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for role in job_roles(num_ps, num_workers, evaluator=False):
        found.setdefault(str(role.role), []).append(str(role))
    return found
