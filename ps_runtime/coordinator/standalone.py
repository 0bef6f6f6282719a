"""Mode standalone_client: this process has a Dask cluster call the function of each task."""

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
from psflow.ps_runtime.coordinator.place import Place
from psflow.ps_runtime.coordinator.program import Program
from psflow.ps_runtime.coordinator.serving import meeting_place, serve
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.specs.cluster_task import TaskType
from psflow.ps_runtime.specs.roles import Role, RoleId


def run_standalone(program: Program, place: Place, client: Client | None) -> Any:
    """Have each task call its function; return what `worker_fn` returns where this process calls it for all. Blocks.

    Raises
    ------
    ConfigError
        If this process is a task of the cluster.
    UsageError, RoleFailedError, WaitTimeoutError
        As those of `RoleCalls`.
    """
    if place.task_type is not TaskType.CLIENT:
        who = f"this process is {place.task_type} {place.task_id}, and a standalone_client starts all tasks itself"
        raise ConfigError((f"{who}; start the client alone, or set mode to independent_worker",))
    calls = tasks_of(program, place)
    if calls:
        program.check_pickled()  # before a cluster starts
    if program.strategy.extended.experimental_between_graph:
        with _cluster(client, len(calls)) as on, RoleCalls(on, calls) as running:
            running.join()
        return None
    if not calls:
        return program.run_for_all(place)
    with _cluster(client, len(calls)) as on, RoleCalls(on, calls) as running:
        result = program.run_for_all(place)
        running.join()
    return result


def tasks_of(program: Program, place: Place) -> list[RoleCall]:
    """Return what the cluster is to call: the replicas where each calls `worker_fn`, their ps, and the evaluator."""
    between_graph = program.strategy.extended.experimental_between_graph
    kinds = (Role.PS, Role.CHIEF, Role.WORKER, Role.EVALUATOR) if between_graph else (Role.EVALUATOR,)
    if between_graph and place.cluster_spec.num_tasks(Role.PS):
        meeting_place(place)
    calls = []
    for kind in kinds:
        for index, address in enumerate(place.cluster_spec.tasks.get(kind, ())):
            task = place.of(TaskType(kind), index)
            serves = kind is Role.PS
            function = partial(_serve, task) if serves else partial(_call, program, task)
            trains = kind in (Role.CHIEF, Role.WORKER)
            calls.append(RoleCall(RoleId(kind, index), address, function, has_barrier=trains, serves=serves))
    return calls


def _call(program: Program, place: Place, surroundings: Surroundings) -> None:
    program.run_task(place, surroundings.barrier, surroundings.check)


def _serve(place: Place, surroundings: Surroundings) -> None:
    serve(place, math.inf, surroundings.check)


@contextmanager
def _cluster(client: Client | None, num_tasks: int) -> Iterator[Client]:
    if client is not None:
        yield client
        return
    with open_cluster(None, num_tasks) as own:
        yield own
