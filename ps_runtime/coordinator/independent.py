"""Runs this process as one task, in mode independent_worker."""

from __future__ import annotations

from typing import Any, assert_never

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.worker_process import JOIN_TIMEOUT_SECS
from psflow.ps_runtime.coordinator.given_task import GivenTask
from psflow.ps_runtime.coordinator.program import Program
from psflow.ps_runtime.coordinator.serving import serve, shared_model_dir
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.specs.cluster_task import TaskType
from psflow.ps_runtime.specs.roles import Role, RoleId


def run_independent(program: Program, given: GivenTask) -> Any:
    """Run the task of this process; return the result of its function, None if it calls none. Blocks.

    Raises ConfigError if this process is not a task, a ps does not know where to find the chief, or a worker has
    nothing to do.
    """
    if given.cluster_spec.num_tasks(Role.PS):
        shared_model_dir(given)  # so that every process refuses the same faults as a ps
    match given.task_type:
        case TaskType.CHIEF | TaskType.WORKER:
            if program.strategy.extended.experimental_between_graph:
                return program.run_task(given)
            if given.task.role == RoleId(Role.CHIEF, 0):
                return program.run_for_all(given)
            if not given.cluster_spec.num_tasks(Role.PS):
                why = (
                    "the chief calls worker_fn once for all replicas, and a cluster without ps trains nothing with them"
                )
                raise ConfigError((f"{given.task.role} has nothing to do: {why}; leave it out, or add a ps",))
            serve(given, JOIN_TIMEOUT_SECS, never_stop)
            return None
        case TaskType.EVALUATOR:
            return program.run_task(given)
        case TaskType.PS:
            serve(given, JOIN_TIMEOUT_SECS, never_stop)
            return None
        case TaskType.CLIENT | TaskType.MASTER:
            expected = "chief, worker, ps or evaluator in mode independent_worker"
            raise ConfigError((f"task_type should be {expected}, got {given.task_type}",))
        case other:
            assert_never(other)
