"""Training and evaluation as one call, in this process or on a Dask cluster."""

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
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.model.exporters import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles.events import Event

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
    """Train, and evaluate every checkpoint; both resume what is in the model_dir. Blocks until all roles have left.

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
        Writes what the exporters select; without it nothing is exported.
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
        Whatever is wrong with model, input or model_dir; nothing was started then.
    RoleFailedError
        If a role on the cluster failed.
    """
    if client is None and (num_ps, num_workers) != (1, 0):
        raise UsageError(
            (f"{num_ps} ps and {num_workers} workers need a cluster: pass client=distributed.Client(...)",)
        )
    with Attempt(
        estimator,
        train_spec,
        eval_spec,
        num_ps=num_ps,
        num_workers=num_workers,
        transport=transport,
    ) as attempt:
        job = attempt.job(writer)
        if client is None:
            return run_local(job, on_event, attempt.check)
        if (fault := tls_fault(client)) is not None:
            _log.warning(fault)
        with ClusterJob(client, job, on_event) as run:
            run.start(AdmissionPolicy(ADMISSION_TIMEOUT_SECS))
            return run.join(attempt.check)
