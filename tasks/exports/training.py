"""Training, evaluation and export as one call, in this process, on a Dask cluster, or in one process for each role."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import tls_fault
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.by_hand import run_by_hand
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export_bundle import ModelWriter, check_writer
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec, all_eval_specs
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.specs.arguments import ArgumentFaults, with_article
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.tasks.exports.writer import MlflowModelWriter, check_exportable

__all__ = ["train_and_evaluate"]

ADMISSION_TIMEOUT_SECS = 60.0

_log = logging.getLogger(__name__)


def train_and_evaluate(
    estimator: Estimator,
    train_spec: TrainSpec,
    eval_spec: EvalSpec | Sequence[EvalSpec],
    *,
    client: Client | None = None,
    num_ps: int = 1,
    num_workers: int = 0,
    transport: str = "auto",
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
    writer : ModelWriter, optional
        Writes what the exporters choose, as ``model_dir/export/<exporter>/<version>/``. Default: an MLflow model, which
        holds the code of model_fn.
    on_event : callable, optional
        Called with each event of a role, in the order of that role; see `Event` for the types. Called in other threads
        than this one; must not block. Where TF_CONFIG has a cluster, the chief hears of all roles, and each other
        process of its own. Default: log it, there in the process of the role.

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
        If TF_CONFIG of the chief is another one.
    WaitTimeoutError
        If the chief does not answer, or another process does not join it.
    StoppedError
        In a process of a cluster of TF_CONFIG, if the job failed, or the chief is gone.
    """
    _check_types(estimator, train_spec, eval_spec)
    _check_options(client, num_ps, num_workers, writer, on_event)
    task = estimator.config.cluster
    _check_sizes(client, task, num_ps, num_workers)
    eval_specs = all_eval_specs(eval_spec)
    if writer is None:
        writer = _model_writer(estimator, eval_specs)
    make_attempt = partial(
        Attempt,
        estimator,
        train_spec,
        eval_specs,
        num_ps=num_ps if task is None else len(task.cluster.ps),
        num_workers=num_workers if task is None else len(task.cluster.workers),
        transport=transport,
        is_by_hand=task is not None,
    )
    if task is not None:
        return run_by_hand(task, estimator.model_dir, make_attempt, writer, on_event, evaluator=bool(eval_specs))
    return _run(make_attempt, client, writer, Attempt.log_event if on_event is None else on_event)


def _run(
    make_attempt: Callable[[], Attempt],
    client: Client | None,
    writer: ModelWriter | None,
    on_event: Callable[[Event], None],
) -> dict[str, dict[str, Any]]:
    """Run a job in this process or on a Dask cluster."""
    with make_attempt() as attempt:
        if client is None:
            return attempt.run_here(on_event, writer)
        job = attempt.job(writer)
        if (fault := tls_fault(client)) is not None:
            _log.warning(fault)
        with ClusterJob(client, job, on_event) as run:
            run.start(AdmissionPolicy(ADMISSION_TIMEOUT_SECS))
            return run.join(attempt.check)


def _model_writer(estimator: Estimator, eval_specs: Sequence[EvalSpec]) -> ModelWriter | None:
    """Return what writes MLflow models, if there are exporters and it can."""
    exporters = [exporter for spec in eval_specs for exporter in spec.all_exporters]
    if not exporters:
        return None
    serving = [exporter.serving_input_receiver_fn for exporter in exporters]
    check_exportable(estimator.model_fn, estimator.params, filter(None, serving))
    return MlflowModelWriter()


def _check_sizes(client: Client | None, task: ClusterTask | None, num_ps: int, num_workers: int) -> None:
    sizes = f"{num_ps} ps and {num_workers} workers"
    if task is not None and client is not None:
        raise UsageError(("TF_CONFIG has a cluster, and a client is given; unset TF_CONFIG, or leave the client out",))
    if client is None and (num_ps, num_workers) != (1, 0):
        if task is not None:
            raise UsageError((f"TF_CONFIG has a cluster, and {sizes} are asked for; leave num_ps and num_workers out",))
        raise UsageError((f"{sizes} need a cluster: pass client=distributed.Client(...)",))


def _check_types(estimator: Any, train_spec: Any, eval_spec: Any) -> None:
    faults = ArgumentFaults("train_and_evaluate: ")
    for name, given, kind in (("estimator", estimator, Estimator), ("train_spec", train_spec, TrainSpec)):
        if not isinstance(given, kind):
            faults.add_type(name, with_article(kind.__name__), given)
    if eval_spec is None:
        faults.add_type("eval_spec", "an EvalSpec, or a sequence of them", eval_spec)
    elif not isinstance(eval_spec, EvalSpec):
        faults.items("eval_spec", eval_spec, EvalSpec, "EvalSpec")
    faults.raise_any()


def _check_options(client: Any, num_ps: Any, num_workers: Any, writer: Any, on_event: Any) -> None:
    faults = ArgumentFaults("train_and_evaluate: ")
    if client is not None and not isinstance(client, Client):
        faults.add_type("client", "a distributed.Client or None", client)
    for name, given, least in (("num_ps", num_ps, 1), ("num_workers", num_workers, 0)):
        if not isinstance(given, int) or isinstance(given, bool):
            faults.add_type(name, "an int", given)
        elif given < least:
            faults.add(f"train_and_evaluate: {name} should be {least} or more, got {given}")
    check_writer(faults, writer)
    if on_event is not None:
        faults.callable("on_event", on_event)
    faults.raise_any()
