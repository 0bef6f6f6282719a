"""The flags of a process of a cluster: ``--ps_hosts --worker_hosts --job_name --task_index``."""

from __future__ import annotations

import re

from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.specs.cluster_faults import address_faults, duplicate_faults, index_fault, num_addresses
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType

__all__ = ["parse_role_flags"]

PS_HOSTS, WORKER_HOSTS, JOB_NAME, TASK_INDEX = "--ps_hosts", "--worker_hosts", "--job_name", "--task_index"
JOB_NAMES = [TaskType.PS.value, TaskType.WORKER.value, TaskType.EVALUATOR.value]


def parse_role_flags(ps_hosts: str, worker_hosts: str, job_name: str, task_index: int) -> ClusterTask:
    """Return the process that the flags describe.

    The first worker host is the chief; the indices of the others shift down by one.

    Raises
    ------
    ConfigError
        With every fault, by the name of its flag.

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
    """Return what a worker is where worker 0 is the chief."""
    return (TaskType.WORKER, index - 1) if index else (TaskType.CHIEF, 0)


def _split(hosts: str) -> list[str]:
    return [host.strip() for host in re.split("[,;]", hosts)]


def _why(job_name: str, num: int) -> str:
    return "there is one evaluator" if job_name == TaskType.EVALUATOR else num_addresses(f"--{job_name}_hosts", num)


def _hint(job_name: str) -> str:
    if job_name in (TaskType.CHIEF, TaskType.MASTER):
        return f"; the chief is {JOB_NAME} worker {TASK_INDEX} 0"
    return did_you_mean(job_name, JOB_NAMES)
