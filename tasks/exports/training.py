"""Training, evaluation and export as one call, in this process or on a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import tls_fault
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export_bundle import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec, all_eval_specs
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.specs.arguments import ArgumentFaults, with_article
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
    on_event: Callable[[Event], None] = Attempt.log_event,
) -> dict[str, dict[str, Any]]:
    """Train, evaluate every checkpoint, and export what the exporters choose. Blocks until all roles have left.

    Training and evaluation resume what is in the model_dir; the input is read on where the latest checkpoint left it.

    Parameters
    ----------
    estimator : Estimator
        The model, and the model_dir that holds checkpoints and exports.
    train_spec : TrainSpec
        Input, hooks and last global_step of the training.
    eval_spec : EvalSpec or sequence of them
        Every checkpoint is evaluated against each; the exporters of the first choose.
    client : distributed.Client, optional
        Of the cluster to run on: a thread for each role. Without it everything runs in this process.
    num_ps : int
        Parameter servers, at least 1.
    num_workers : int
        Workers beside the chief.
    transport : str
        How replicas reach the ps: ``auto``, ``shm``, ``unix`` or ``tcp``.
    writer : ModelWriter, optional
        Writes what the exporters choose, as ``model_dir/export/<exporter>/<version>/``. Default: an MLflow model, which
        holds the code of model_fn.
    on_event : callable
        Called with each event of a role, in the order of that role; see `Event` for the types. Called in other threads
        than this one; must not block. Default: log it.

    Returns
    -------
    dict of str to dict
        The report of each role, by name.

    Raises
    ------
    UsageError
        Whatever is wrong with model, input or model_dir, or if an MLflow model cannot hold model_fn or a
        serving_input_receiver_fn; nothing was started then.
    RoleFailedError
        If a role on the cluster failed.
    """
    if client is None and (num_ps, num_workers) != (1, 0):
        raise UsageError(
            (f"{num_ps} ps and {num_workers} workers need a cluster: pass client=distributed.Client(...)",)
        )
    _check_types(estimator, train_spec, eval_spec)
    eval_specs = all_eval_specs(eval_spec)
    exporters = [exporter for spec in eval_specs for exporter in spec.all_exporters]
    if writer is None and exporters:
        serving = [exporter.serving_input_receiver_fn for exporter in exporters]
        check_exportable(estimator.model_fn, estimator.params, filter(None, serving))
        writer = MlflowModelWriter()
    with Attempt(
        estimator,
        train_spec,
        eval_specs,
        num_ps=num_ps,
        num_workers=num_workers,
        transport=transport,
    ) as attempt:
        if client is None:
            return attempt.run_here(on_event, writer)
        job = attempt.job(writer)
        if (fault := tls_fault(client)) is not None:
            _log.warning(fault)
        with ClusterJob(client, job, on_event) as run:
            run.start(AdmissionPolicy(ADMISSION_TIMEOUT_SECS))
            return run.join(attempt.check)


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
