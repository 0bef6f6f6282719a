"""Mode independent_worker: this process is one task."""

from __future__ import annotations

from typing import Any, assert_never

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.worker_process import JOIN_TIMEOUT_SECS
from psflow.ps_runtime.coordinator.place import Place
from psflow.ps_runtime.coordinator.program import Program
from psflow.ps_runtime.coordinator.serving import meeting_place, serve
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.specs.cluster_task import TaskType
from psflow.ps_runtime.specs.roles import Role, RoleId


def run_independent(program: Program, place: Place) -> Any:
    """Be the task of this process; return what its function returns, None if it calls none. Blocks.

    Raises
    ------
    ConfigError
        If this process is none of the tasks, a ps does not know where to find the chief, or a worker has nothing to do.
    """
    if place.cluster_spec.num_tasks(Role.PS):
        meeting_place(place)  # so that every process refuses what a ps would
    match place.task_type:
        case TaskType.CHIEF | TaskType.WORKER:
            if program.strategy.extended.experimental_between_graph:
                return program.run_task(place)
            if place.task.role == RoleId(Role.CHIEF, 0):
                return program.run_for_all(place)
            if not place.cluster_spec.num_tasks(Role.PS):
                why = (
                    "the chief calls worker_fn once for all replicas, and a cluster without ps trains nothing with them"
                )
                raise ConfigError((f"{place.task.role} has nothing to do: {why}; leave it out, or add a ps",))
            serve(place, JOIN_TIMEOUT_SECS, never_stop)
            return None
        case TaskType.EVALUATOR:
            return program.run_task(place)
        case TaskType.PS:
            serve(place, JOIN_TIMEOUT_SECS, never_stop)
            return None
        case TaskType.CLIENT | TaskType.MASTER:
            expected = "chief, worker, ps or evaluator in mode independent_worker"
            raise ConfigError((f"task_type should be {expected}, got {place.task_type}",))
        case other:
            assert_never(other)
