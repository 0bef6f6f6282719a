"""Calls the user's functions, each with its own strategy, within its context."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.coordinator.given_task import GivenTask
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.ps_runtime.specs.cluster_task import TaskType
from psflow.ps_runtime.specs.strategy import Strategy
from psflow.ps_runtime.specs.worker_context import Barrier, WorkerContext, within

Function = Callable[[Strategy | None], Any]


@dataclass(frozen=True)
class Program:
    """The functions of a coordinator, and their arguments."""

    worker_fn: Function
    strategy: Strategy
    eval_fn: Function | None
    eval_strategy: Strategy | None
    session_config: Mapping[str, Any]

    def check_copied(self) -> None:
        """Refuse settings and strategies that cannot be copied for a task.

        Raises UsageError with every fault, by the name of its argument.
        """
        faults = []
        for name in ("session_config", "strategy", "eval_strategy"):
            try:
                copy.deepcopy(getattr(self, name))
            except Exception as error:  # any error of the copied object itself
                why = f"{name} cannot be copied for each task: {error!r}"
                faults.append(f"run_distribute_coordinator: {why}; make within worker_fn what it holds")
        if faults:
            raise UsageError(tuple(faults))

    def check_pickled(self) -> None:
        """Refuse anything that cannot be sent to a task.

        Raises UsageError with every fault, by the name of its argument.
        """
        faults: list[str] = []
        for name, value in vars(self).items():
            try:
                pickled(value, f"run_distribute_coordinator: {name}")
            except UsageError as error:
                faults += error.faults
        if faults:
            raise UsageError(tuple(faults))

    def run_local(self, given: GivenTask) -> None:
        """Call `worker_fn` without a cluster, and then `eval_fn` if there is one."""
        self._call(self.worker_fn, self.strategy, given, None, None)
        if self.eval_fn is not None:
            self._call(self.eval_fn, self.eval_strategy, given, None, None)

    def run_task(self, given: GivenTask, barrier: Barrier | None = None, check: Callable[[], None] = never_stop) -> Any:
        """Call the function of one task; return its result. `check` raises StoppedError when it is to end."""
        is_evaluator = given.task_type is TaskType.EVALUATOR
        function = self.eval_fn or self.worker_fn if is_evaluator else self.worker_fn
        strategy = self.eval_strategy if is_evaluator else self.strategy
        return self._call(function, strategy, given, given.task_type, given.task_id, barrier, check)

    def run_for_all(self, given: GivenTask) -> Any:
        """Call `worker_fn` once for all replicas; return its result."""
        return self._call(self.worker_fn, self.strategy, given, None, None)

    def _call(
        self,
        function: Function,
        strategy: Strategy | None,
        given: GivenTask,
        task_type: TaskType | None,
        task_id: int | None,
        barrier: Barrier | None = None,
        check: Callable[[], None] = never_stop,
    ) -> Any:
        session_config = copy.deepcopy(dict(self.session_config))
        own = copy.deepcopy(strategy)
        cluster = given.cluster_spec
        name = None if task_type is None else str(task_type)
        if own is not None:
            if task_type is TaskType.EVALUATOR:
                own.configure(session_config)
            else:
                own.configure(session_config, cluster or None, name, task_id)
        with within(
            WorkerContext(own, cluster, name, task_id, session_config, given.rpc_layer, barrier, given.config, check)
        ):
            return function(own)
