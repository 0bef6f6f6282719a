"""The worker context: the task of a function that the distribute coordinator calls, and its coordination."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.strategy import Strategy
from psflow.ps_runtime.specs.task_facts import ClusterSpec
from psflow.ps_runtime.specs.tf_config import TfConfig


@dataclass(frozen=True)
class ChiefSessionCreator:
    """Creates a session that restores the latest checkpoint, or initialises the variables."""

    master: str
    config: Mapping[str, Any]
    checkpoint_dir: str | None


@dataclass(frozen=True)
class WorkerSessionCreator:
    """Creates a session that waits for that of the chief."""

    master: str
    config: Mapping[str, Any]
    max_wait_secs: float


SessionCreator = ChiefSessionCreator | WorkerSessionCreator


WAIT_SECS = 7200.0
"""Timeout in seconds, for other workers and for a session of the chief."""

_current = threading.local()


class Barrier(Protocol):
    """A repeatable barrier for all workers."""

    def wait(self, timeout_secs: float) -> None:
        """Return once all workers have called this as often as this one. Blocks."""


@dataclass(frozen=True, eq=False)
class WorkerContext:
    """One task of a cluster, as the coordinator sees it; `get_current_worker_context` returns it within worker_fn.

    Parameters
    ----------
    strategy : Strategy or None
        The strategy of this task, configured; an evaluator may have none.
    cluster_spec : ClusterSpec
        All tasks, including the evaluator, as given; empty without a cluster.
    task_type : str or None
        ``chief``, ``worker`` or ``evaluator``; None without a cluster, and if one call serves all replicas.
    task_id : int or None
        Index among the tasks of its type.
    session_settings : mapping
        The ``session_config`` of the coordinator.
    rpc_layer : str
        Prefix of the address in `master_target`; may be empty.
    barrier : Barrier or None
        Lets the workers wait for each other.
    told : TfConfig
        The settings of a RunConfig of this task.
    check : callable
        Raises StoppedError when this task should end.
    """

    strategy: Strategy | None
    cluster_spec: ClusterSpec
    task_type: str | None
    task_id: int | None
    session_settings: Mapping[str, Any]
    rpc_layer: str
    barrier: Barrier | None
    told: TfConfig
    check: Callable[[], None]

    def __getstate__(self) -> dict[str, Any]:
        """Omit state of the task's process: an ``input_fn`` that reads `num_workers` is pickled."""
        return {**vars(self), "barrier": None, "check": _never_end}

    @property
    def is_chief(self) -> bool:
        """Whether this task is the chief: worker 0 if there is none. An evaluator is its own chief."""
        if not self.cluster_spec or self.task_type in (None, Role.CHIEF, Role.EVALUATOR):
            return True
        return Role.CHIEF not in self.cluster_spec.jobs and (self.task_type, self.task_id) == (Role.WORKER, 0)

    @property
    def num_workers(self) -> int:
        """Number of training replicas, including the chief; 0 without a cluster."""
        return self.cluster_spec.num_tasks(Role.WORKER) + self.cluster_spec.num_tasks(Role.CHIEF)

    @property
    def distributed_mode(self) -> bool:
        """Whether this task trains with others: there is a cluster, and it is not an evaluator."""
        return bool(self.cluster_spec) and self.task_type != Role.EVALUATOR

    @property
    def master_target(self) -> str:
        """The target of this task, such as ``grpc://host:2222``; empty without a cluster, and for an evaluator.

        If one call serves all replicas, the target of the chief.
        """
        if not self.distributed_mode:
            return ""
        task_type, task_id = self.task_type, self.task_id
        if task_type is None:
            task_type, task_id = (Role.CHIEF if Role.CHIEF in self.cluster_spec.jobs else Role.WORKER), 0
        address = self.cluster_spec.tasks[task_type][task_id or 0]
        return f"{self.rpc_layer}://{address}" if self.rpc_layer else address

    @property
    def session_config(self) -> dict[str, Any]:
        """A copy of the session settings of the coordinator."""
        return copy.deepcopy(dict(self.session_settings))

    @property
    def experimental_should_init(self) -> bool:
        """Whether this task initialises the variables, as its strategy decides."""
        return self._of_strategy("experimental_should_init").extended.experimental_should_init

    @property
    def should_checkpoint(self) -> bool:
        """Whether this task saves checkpoints, as its strategy decides."""
        return self._of_strategy("should_checkpoint").extended.should_checkpoint

    @property
    def should_save_summary(self) -> bool:
        """Whether this task saves summaries, as its strategy decides."""
        return self._of_strategy("should_save_summary").extended.should_save_summary

    @property
    def has_barrier(self) -> bool:
        """Whether `wait_for_other_workers` waits."""
        return self.barrier is not None

    def wait_for_other_workers(self, timeout_secs: float = WAIT_SECS) -> None:
        """Wait until all workers have called this as often as this one; a single task does not wait. Blocks.

        Parameters
        ----------
        timeout_secs : float
            Time limit for the last worker.

        Raises
        ------
        WaitTimeoutError
            If a worker does not come; the message names it.
        StoppedError
            If a worker has ended without calling it.
        UsageError
            If there are other workers but no barrier, as in mode ``independent_worker``, and for a context that was
            pickled.
        """
        faults = ArgumentFaults("wait_for_other_workers: ")
        faults.number("timeout_secs", timeout_secs, above_zero=True)
        faults.raise_any()
        if self.barrier is not None:
            self.barrier.wait(timeout_secs)
        elif self.distributed_mode and self.task_type is not None and self.num_workers > 1:
            why = f"{self.task_type}-{self.task_id} has no barrier, so it cannot wait for the others"
            remedy = "check has_barrier first, or call it in a standalone_client, not on a pickled context"
            raise UsageError((f"wait_for_other_workers: {why}; {remedy}",))

    def session_creator(
        self,
        scaffold: None = None,
        config: Mapping[str, Any] | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: None = None,
        max_wait_secs: float = WAIT_SECS,
    ) -> SessionCreator:
        """Return the settings for the start of this task's session, for `MonitoredTrainingSession`.

        Parameters
        ----------
        scaffold : None
            Must be None: it belongs to the EstimatorSpec.
        config : mapping or None
            Settings in addition to those of the coordinator's ``session_config``, which take precedence.
        checkpoint_dir : str or None
            The model_dir of the Estimator.
        checkpoint_filename_with_path : None
            Must be None: use a warm start instead.
        max_wait_secs : float
            Accepted for compatibility; it has no effect.

        Raises
        ------
        UsageError
            If an argument has a wrong type, or belongs elsewhere.
        """
        faults = ArgumentFaults("session_creator: ")
        if scaffold is not None:
            faults.add("session_creator: scaffold belongs to the EstimatorSpec that model_fn returns; give it there")
        if checkpoint_filename_with_path is not None:
            faults.add(
                "session_creator: checkpoint_filename_with_path must be None: a session restores the latest checkpoint "
                "of its directory; to start from another one give the Estimator warm_start_from"
            )
        if config is not None and not isinstance(config, Mapping):
            faults.add_type("config", "a mapping or None", config)
        faults.text("checkpoint_dir", checkpoint_dir)
        faults.number("max_wait_secs", max_wait_secs, above_zero=True)
        faults.raise_any()
        merged = {**(config or {}), **self.session_config}
        if self.strategy is None or self.experimental_should_init:
            return ChiefSessionCreator(self.master_target, merged, checkpoint_dir)
        return WorkerSessionCreator(self.master_target, merged, max_wait_secs)

    def _of_strategy(self, name: str) -> Strategy:
        if self.strategy is None:
            raise UsageError((f"{name}: the evaluator has no strategy; give run_distribute_coordinator eval_strategy",))
        return self.strategy

    def __str__(self) -> str:
        if not self.cluster_spec:
            return "a worker_fn without a cluster"
        return "the worker_fn of all replicas" if self.task_type is None else f"{self.task_type}-{self.task_id}"


def _never_end() -> None:
    """Allow everything: a copy of a context is not a task."""


def get_current_worker_context() -> WorkerContext | None:
    """Return the context of this thread, within a function that the distribute coordinator calls; else None."""
    found: WorkerContext | None = getattr(_current, "context", None)
    return found


def check_task() -> None:
    """Raise StoppedError if this thread calls a worker_fn whose task should end."""
    if (context := get_current_worker_context()) is not None:
        context.check()


def check_not_within() -> None:
    """Refuse a coordinator within a function that one calls: its tasks would confuse their contexts."""
    if (context := get_current_worker_context()) is not None:
        raise UsageError(
            (f"run_distribute_coordinator cannot be called within a worker_fn, here {context}; call it once",)
        )


@contextmanager
def within(context: WorkerContext) -> Iterator[None]:
    """Make this thread a task for the duration of the block."""
    check_not_within()
    _current.context = context
    try:
        yield
    finally:
        _current.context = None
