"""Training, evaluation and export as one call, in this process, on a Dask cluster, or in one process for each role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.launch import MAX_RESTARTS, PROBE_TIMEOUT_SECS
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export_bundle import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.tasks.exports.training_arguments import check_cluster, checked_eval_specs
from psflow.tasks.exports.training_executor import TrainingExecutor

__all__ = ["train_and_evaluate"]


def train_and_evaluate(
    estimator: Estimator,
    train_spec: TrainSpec,
    eval_spec: EvalSpec | Sequence[EvalSpec],
    *,
    client: Client | None = None,
    num_ps: int = 1,
    num_workers: int = 0,
    transport: str = "auto",
    max_restarts: int = MAX_RESTARTS,
    min_workers: int | None = None,
    probe_timeout_secs: float = PROBE_TIMEOUT_SECS,
    writer: ModelWriter | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Train, evaluate every checkpoint, and export what the exporters choose. Blocks until all roles have left.

    Training and evaluation resume what is in the model_dir; the input is read on where the latest checkpoint left it.

    Where TF_CONFIG has a cluster, this process is one role of it: the same call in each of them is the job, and ends in
    all of them once it is over.

    Parameters
    ----------
    estimator : Estimator
        The model, and the model_dir that holds checkpoints and exports.
    train_spec : TrainSpec
        Input, hooks and last global_step of the training.
    eval_spec : EvalSpec or sequence of them
        Every checkpoint is evaluated against each; the exporters of the first choose.
    client : distributed.Client, optional
        Of the cluster to run on: a thread for each role. Without it, and without TF_CONFIG, everything runs in this
        process.
    num_ps : int
        Parameter servers, at least 1; where TF_CONFIG has a cluster, it says how many.
    num_workers : int
        Workers beside the chief, likewise.
    transport : str
        How replicas reach the ps: ``auto``, ``shm``, ``unix`` or ``tcp``.
    max_restarts : int
        With `client`: how often within an hour a role begins again, after its Dask worker was lost or its code raised a
        first exception of a kind; from 0.
    min_workers : int, optional
        With `client`: workers without which the job does not begin, nor goes on for longer than five minutes; at most
        `num_workers`. Default: all to begin, none to go on.
    probe_timeout_secs : float
        With `client`: how many seconds a ps, the chief or the evaluator may be silent before its Dask worker is ended,
        so that it begins again; more than 0. One whose process computes is waited for.
    writer : ModelWriter, optional
        Writes what the exporters choose, as ``model_dir/export/<exporter>/<version>/``. Default: an MLflow model, which
        holds the code of model_fn.
    on_event : callable, optional
        Called with each event of a role, in the order of that role; see `Event` for the types. On a cluster a thread of
        its own calls it, and nobody waits for it: what it raises is logged, the first time with its traceback, and the
        job goes on; after the job it has 30 s for what is left. Without a cluster the roles call it, in other threads
        than this one, and wait; what it raises ends the training. Where TF_CONFIG has a cluster, the chief hears of all
        roles, and each other process of its own. Default: log it, there in the process of the role.

    Returns
    -------
    dict of str to dict
        The report of each role, by name; none in a process of a cluster of TF_CONFIG that is not the chief's.

    Raises
    ------
    UsageError
        Whatever is wrong with model, input or model_dir, or if an MLflow model cannot hold model_fn or a
        serving_input_receiver_fn; nothing was started then.
    RoleFailedError
        If a role on the cluster failed.
    ConfigError
        If TF_CONFIG of the chief is another one, or a setting of its program.
    WaitTimeoutError
        If the chief does not answer, or another process does not join it.
    StoppedError
        In a process of a cluster of TF_CONFIG, if the job failed, or the chief is gone.
    """
    who = "train_and_evaluate"
    eval_specs = checked_eval_specs(who, estimator, train_spec, eval_spec, writer, on_event, may_be_none=False)
    check_cluster(who, client, num_ps, num_workers, max_restarts, min_workers, probe_timeout_secs, may_be_none=True)
    _check_sizes(client, estimator.config.cluster, num_ps, num_workers)
    for name, given, default in (
        ("max_restarts", max_restarts, MAX_RESTARTS),
        ("min_workers", min_workers, None),
        ("probe_timeout_secs", probe_timeout_secs, PROBE_TIMEOUT_SECS),
    ):
        if client is None and given != default:
            raise UsageError((f"{name}={given} needs a cluster: pass client=distributed.Client(...)",))
    executor = TrainingExecutor(
        estimator, train_spec, eval_specs, transport=transport, writer=writer, on_event=on_event
    )
    if client is None:
        return executor.run()
    return executor.run_on(
        client,
        num_ps=num_ps,
        num_workers=num_workers,
        max_restarts=max_restarts,
        min_workers=min_workers,
        probe_timeout_secs=probe_timeout_secs,
    )


def _check_sizes(client: Client | None, task: ClusterTask | None, num_ps: int, num_workers: int) -> None:
    sizes = f"{num_ps} ps and {num_workers} workers"
    if task is not None and client is not None:
        raise UsageError(("this process is one of a cluster, and a client is given; leave one of them out",))
    if client is None and (num_ps, num_workers) != (1, 0):
        if task is not None:
            raise UsageError(
                (f"this process is one of a cluster, and {sizes} are asked for; leave num_ps and num_workers out",)
            )
        raise UsageError((f"{sizes} need a cluster: pass client=distributed.Client(...)",))
