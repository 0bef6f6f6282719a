"""Has a Dask cluster call the function of each task, in mode standalone_client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.ordered_results import Client
from psflow.ps_runtime.cluster.role_calls import RoleCall, RoleCalls
from psflow.ps_runtime.coordinator.given_task import GivenTask
from psflow.ps_runtime.coordinator.program import Program
from psflow.ps_runtime.coordinator.serving import serve, shared_model_dir
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.specs.cluster_task import TaskType
from psflow.ps_runtime.specs.roles import Role, RoleId


def run_standalone(program: Program, given: GivenTask, client: Client | None) -> Any:
    """Call the function of each task; return the result of `worker_fn` where this process calls it for all. Blocks.

    Raises
    ------
    ConfigError
        If this process is a task of the cluster.
    UsageError, RoleFailedError, WaitTimeoutError
        As those of `RoleCalls`.
    """
    if given.task_type is not TaskType.CLIENT:
        who = f"this process is {given.task_type} {given.task_id}, and a standalone_client starts all tasks itself"
        raise ConfigError((f"{who}; start the client alone, or set mode to independent_worker",))
    calls = tasks_of(program, given)
    if calls:
        program.check_pickled()  # before a cluster starts
    if program.strategy.extended.experimental_between_graph:
        with _cluster(client, len(calls)) as on, RoleCalls(on, calls) as running:
            running.join()
        return None
    if not calls:
        return program.run_for_all(given)
    with _cluster(client, len(calls)) as on, RoleCalls(on, calls) as running:
        result = program.run_for_all(given)
        running.join()
    return result


def tasks_of(program: Program, given: GivenTask) -> list[RoleCall]:
    """Return the calls of the cluster: the replicas where each calls `worker_fn`, their ps, and the evaluator."""
    between_graph = program.strategy.extended.experimental_between_graph
    kinds = (Role.PS, Role.CHIEF, Role.WORKER, Role.EVALUATOR) if between_graph else (Role.EVALUATOR,)
    if between_graph and given.cluster_spec.num_tasks(Role.PS):
        shared_model_dir(given)
    calls = []
    for kind in kinds:
        for index, address in enumerate(given.cluster_spec.tasks.get(kind, ())):
            task = given.of(TaskType(kind), index)
            serves = kind is Role.PS
            function = partial(_serve, task) if serves else partial(_call, program, task)
            trains = kind in (Role.CHIEF, Role.WORKER)
            calls.append(RoleCall(RoleId(kind, index), address, function, has_barrier=trains, serves=serves))
    return calls


def _call(program: Program, given: GivenTask, surroundings: Surroundings) -> None:
    program.run_task(given, surroundings.barrier, surroundings.check)


def _serve(given: GivenTask, surroundings: Surroundings) -> None:
    serve(given, math.inf, surroundings.check)


@contextmanager
def _cluster(client: Client | None, num_tasks: int) -> Iterator[Client]:
    if client is not None:
        yield client
        return
    with open_cluster(None, num_tasks) as own:
        yield own
