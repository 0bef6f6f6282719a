"""Calls a user function as each task of a cluster, or as the task of this process: the distribute coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, assert_never

from psflow.ps_runtime.cluster.ordered_results import Client, check_client
from psflow.ps_runtime.coordinator.given_task import find_task
from psflow.ps_runtime.coordinator.independent import run_independent
from psflow.ps_runtime.coordinator.program import Program
from psflow.ps_runtime.coordinator.standalone import run_standalone
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.signals import sigterm_leaves
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.strategy import Strategy
from psflow.ps_runtime.specs.task_facts import ClusterSpec
from psflow.ps_runtime.specs.worker_context import check_not_within

logger = logging.getLogger(__name__)


class CoordinatorMode(StrEnum):
    """Which processes the user starts."""

    STANDALONE_CLIENT = "standalone_client"
    """One: it has a Dask cluster call the function of each task."""
    INDEPENDENT_WORKER = "independent_worker"
    """One for each task, which calls the function itself."""


def run_distribute_coordinator(
    worker_fn: Callable[[Any], Any],
    strategy: Strategy,
    eval_fn: Callable[[Any], Any] | None = None,
    eval_strategy: Strategy | None = None,
    mode: str = CoordinatorMode.STANDALONE_CLIENT,
    cluster_spec: Mapping[str, Sequence[str]] | ClusterSpec | None = None,
    task_type: str | None = None,
    task_id: int | None = None,
    session_config: Mapping[str, Any] | None = None,
    rpc_layer: str | None = "grpc",
    *,
    client: Client | None = None,
) -> Any:
    """Call `worker_fn` as each task of a cluster, or as the one of this process, within its worker context. Blocks.

    Within it `get_current_worker_context` says which task this is, a RunConfig has the same cluster, and
    `train_and_evaluate` trains together with the other tasks. Without a cluster `worker_fn` is called here, then
    `eval_fn` if there is one, whatever `mode` says.

    Parameters
    ----------
    worker_fn : callable
        Takes the strategy of its task.
    strategy : Strategy
        Such as a ParameterServerStrategy. Each task gets a copy, configured for it.
    eval_fn : callable, optional
        Function of the evaluator of the cluster. Default: `worker_fn`; without a cluster none.
    eval_strategy : Strategy, optional
        Strategy of the evaluator. Default: none.
    mode : {"standalone_client", "independent_worker"}
        The client has a Dask cluster call the function of each task, each in a process of its own; or this process is
        one of them, and calls its own function.
    cluster_spec : mapping or ClusterSpec, optional
        Addresses ``host:port`` by type of task: ``chief``, ``worker``, ``ps``, ``evaluator``. Default: that of
        TF_CONFIG.
    task_type, task_id : str and int, optional
        This process, unless the cluster and the task are those of TF_CONFIG. Default: the client.
    session_config : mapping, optional
        Settings passed to the strategies and the contexts; psflow does not use them.
    rpc_layer : str or None
        Prefix of the address in `master_target`, unless TF_CONFIG has another one; None or empty: no prefix.
    client : distributed.Client, optional
        Of the Dask cluster of a standalone client. Default: processes that it starts on this machine.

    Returns
    -------
    object
        What `worker_fn` or `eval_fn` returned, where this process called one as a task; None for a client whose tasks
        are elsewhere, for a ps, and without a cluster.

    Raises
    ------
    UsageError
        If an argument or TF_CONFIG is wrong, if a task has no free process, or within a `worker_fn`.
    RoleFailedError
        On the client: the error of the first task that failed; the others are ended.

    Notes
    -----
    A ps, which calls no function, finds the chief by ``model_dir`` of TF_CONFIG, and ends with it. As an independent
    worker a ps waits 40 s for the chief, whatever ``session_creation_timeout_secs`` is.

    Examples
    --------
    ::

        def worker_fn(strategy):
            context = get_current_worker_context()
            print(context.task_type, context.task_id, context.is_chief)
            context.wait_for_other_workers()

        cluster = {"chief": ["localhost:2222"], "worker": ["localhost:2223"]}
        run_distribute_coordinator(worker_fn, ParameterServerStrategy(), cluster_spec=cluster)
    """
    _check_arguments(worker_fn, strategy, eval_fn, eval_strategy, cluster_spec, session_config, rpc_layer)
    check_not_within()
    given = find_task(cluster_spec, task_type, task_id, rpc_layer)
    program = Program(worker_fn, strategy, eval_fn, eval_strategy, session_config or {})
    program.check_copied()
    if client is not None:
        check_client(client)
    if not given.cluster_spec:
        if client is not None:
            raise UsageError(("client needs the tasks of a cluster; give cluster_spec",))
        if eval_fn is None:
            logger.warning("there is no evaluation: eval_fn is not given, and there is no cluster with an evaluator")
        program.run_local(given)
        return None
    known_mode = _mode(mode)
    with sigterm_leaves():
        match known_mode:
            case CoordinatorMode.STANDALONE_CLIENT:
                return run_standalone(program, given, client)
            case CoordinatorMode.INDEPENDENT_WORKER:
                if client is not None:
                    why = "each independent_worker is a process of its own"
                    raise UsageError((f"client is of a standalone_client; {why}",))
                return run_independent(program, given)
            case other:
                assert_never(other)


def _mode(mode: str) -> CoordinatorMode:
    names = [one.value for one in CoordinatorMode]
    if mode not in names:
        near = did_you_mean(mode, names) if isinstance(mode, str) else ""
        raise UsageError((f"mode should be one of {', '.join(names)}, got {mode!r}{near}",))
    return CoordinatorMode(mode)


def _check_arguments(
    worker_fn: Any,
    strategy: Any,
    eval_fn: Any,
    eval_strategy: Any,
    cluster_spec: Any,
    session_config: Any,
    rpc_layer: Any,
) -> None:
    faults = ArgumentFaults("run_distribute_coordinator: ")
    faults.callable("worker_fn", worker_fn)
    if eval_fn is not None:
        faults.callable("eval_fn", eval_fn)
    if not isinstance(strategy, Strategy):
        faults.add_type(
            "strategy", "a strategy with extended and configure, such as ParameterServerStrategy()", strategy
        )
    if eval_strategy is not None and not isinstance(eval_strategy, Strategy):
        faults.add_type("eval_strategy", "a strategy with extended and configure, or None", eval_strategy)
    if cluster_spec is not None and not isinstance(cluster_spec, Mapping | ClusterSpec):
        faults.add_type("cluster_spec", "a mapping, a ClusterSpec or None", cluster_spec)
    if session_config is not None and not isinstance(session_config, Mapping):
        faults.add_type("session_config", "a mapping or None", session_config)
    faults.text("rpc_layer", rpc_layer)
    faults.raise_any()
