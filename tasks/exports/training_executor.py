"""Who runs a job: this process alone, a Dask cluster, or the processes of a cluster, of which this one is a role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

from distributed import Client

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import warn_of_tls
from psflow.ps_runtime.cluster.launch import MAX_RESTARTS, PROBE_TIMEOUT_SECS, ClusterJob
from psflow.ps_runtime.errors import ArgumentTypeError, NoClusterError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.by_hand import run_by_hand
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export_bundle import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec, all_eval_specs
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.roles.hearing import heard
from psflow.ps_runtime.specs.cluster_task import TaskType
from psflow.tasks.exports.training_arguments import EXPECTED_EVAL_SPEC, check_cluster, checked_eval_specs
from psflow.tasks.exports.writer import MlflowModelWriter, check_exportable

__all__ = ["TrainingExecutor"]

ADMISSION_TIMEOUT_SECS = 60.0

Reports = dict[str, dict[str, Any]]


class TrainingExecutor:
    """Runs the parts of a job of training, evaluation and export by name, for launchers.

    `train_and_evaluate` calls `run`. Each method blocks until the job has ended, and returns the report of each role by
    its name; none in a process of a cluster of TF_CONFIG that is not the chief's.

    Parameters
    ----------
    estimator : Estimator
        The model, the model_dir, and by its RunConfig the role of this process.
    train_spec : TrainSpec
        Input, hooks and last global_step of the training.
    eval_spec : EvalSpec, sequence of them, or None
        Every checkpoint is evaluated against each; the exporters of the first choose. None: the job has no evaluator;
        all processes must agree on that.
    transport, writer, on_event
        As of `train_and_evaluate`.

    Raises
    ------
    UsageError
        If an argument is of another type, or if an MLflow model cannot hold model_fn or a serving_input_receiver_fn.

    Notes
    -----
    The methods raise what `train_and_evaluate` does; a UsageError if TF_CONFIG gives this process another role; a
    NoClusterError, which is a RuntimeError, if a role needs a cluster and there is none; and an ArgumentTypeError,
    which is a TypeError, if a part evaluates and eval_spec is None. Not thread-safe. A second call resumes the job.

    Examples
    --------
    ::

        TrainingExecutor(estimator, train_spec, eval_spec).run_ps()
    """

    def __init__(
        self,
        estimator: Estimator,
        train_spec: TrainSpec,
        eval_spec: EvalSpec | Sequence[EvalSpec] | None,
        *,
        transport: str = "auto",
        writer: ModelWriter | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        eval_specs = checked_eval_specs(
            "TrainingExecutor", estimator, train_spec, eval_spec, writer, on_event, may_be_none=True
        )
        self.estimator = estimator
        self._train_spec = train_spec
        self._evaluates = eval_spec is not None
        self._eval_specs = all_eval_specs(eval_specs)
        self._writer = _model_writer(estimator, self._eval_specs) if writer is None else writer
        self._on_event = on_event
        self._make_attempt = partial(Attempt, estimator, train_spec, self._eval_specs, transport=transport)

    def run(self) -> Reports:
        """Run the role that TF_CONFIG gives this process; without a cluster run all of them here."""
        task = self.estimator.config.cluster
        if task is None:
            return self.run_local()
        match task.task_type:
            case TaskType.CHIEF:
                return self.run_chief()
            case TaskType.MASTER:
                return self.run_master()
            case TaskType.WORKER:
                return self.run_worker()
            case TaskType.PS:
                return self.run_ps()
            case TaskType.EVALUATOR:
                return self.run_evaluator()
            case TaskType.CLIENT:
                return self._run_role(TaskType.CLIENT)
            case _:
                assert_never(task.task_type)

    def run_chief(self) -> Reports:
        """Lead the job, train and save, where this process is the chief."""
        return self._run_role(TaskType.CHIEF)

    def run_master(self) -> Reports:
        """Lead the job, train, save and evaluate, where this process is the master."""
        self._check_evaluates("run_master")
        return self._run_role(TaskType.MASTER)

    def run_worker(self) -> Reports:
        """Train, where this process is a worker."""
        return self._run_role(TaskType.WORKER)

    def run_ps(self) -> Reports:
        """Hold a part of the variables, where this process is a ps."""
        return self._run_role(TaskType.PS)

    def run_evaluator(self) -> Reports:
        """Evaluate and export, where this process is the evaluator."""
        self._check_evaluates("run_evaluator")
        return self._run_role(TaskType.EVALUATOR)

    def run_local(self) -> Reports:
        """Train, evaluate and export in this process, which is none of a cluster."""
        self._check_evaluates("run_local")
        with self._make_attempt() as attempt:
            return attempt.run_here(self._on_event_here, self._writer)

    def run_on(
        self,
        client: Client,
        *,
        num_ps: int,
        num_workers: int,
        max_restarts: int = MAX_RESTARTS,
        min_workers: int | None = None,
        probe_timeout_secs: float = PROBE_TIMEOUT_SECS,
    ) -> Reports:
        """Run all roles on a Dask cluster, a thread for each, where this process is none of a cluster.

        Parameters
        ----------
        client : distributed.Client
            Of the Dask cluster.
        num_ps, num_workers : int
            Parameter servers, at least 1, and workers beside the chief.
        max_restarts : int
            How often within an hour a role begins again, after its Dask worker was lost or its code raised a first
            exception of a kind; from 0.
        min_workers : int, optional
            Workers without which the job does not begin, nor goes on for longer than five minutes; at most
            `num_workers`. Default: all to begin, none to go on.
        probe_timeout_secs : float
            How long a ps, the chief or the evaluator may be silent; more than 0.
        """
        check_cluster(
            "run_on", client, num_ps, num_workers, max_restarts, min_workers, probe_timeout_secs, may_be_none=False
        )
        with self._make_attempt(num_ps=num_ps, num_workers=num_workers) as attempt:
            job = attempt.job(self._writer)
            warn_of_tls(client)
            with (
                heard(self._on_event_here) as hear,
                ClusterJob(client, job, hear, max_restarts, min_workers, probe_timeout_secs) as run,
            ):
                run.start(AdmissionPolicy(ADMISSION_TIMEOUT_SECS))
                return run.join(attempt.check)

    def _run_role(self, kind: TaskType) -> Reports:
        task = self.estimator.config.cluster
        if task is None:
            what = f"run_{kind} runs one process of a cluster, but there is no cluster"
            raise NoClusterError((f"{what}; set TF_CONFIG before the RunConfig is made, or call run_local",))
        if task.task_type is not kind:
            own = f"this process is {task.task_type} {task.task_id}"
            raise UsageError((f"run_{kind}: {own}; call run, which runs that, or correct its type",))
        make_attempt = partial(
            self._make_attempt, num_ps=len(task.cluster.ps), num_workers=len(task.cluster.workers), is_by_hand=True
        )
        return run_by_hand(
            task,
            self.estimator,
            self._train_spec,
            self._eval_specs,
            make_attempt,
            self._writer,
            self._on_event,
        )

    @property
    def _on_event_here(self) -> Callable[[Event], None]:
        return Attempt.log_event if self._on_event is None else self._on_event

    def _check_evaluates(self, name: str) -> None:
        if not self._evaluates:
            raise ArgumentTypeError((f"{name}: eval_spec should be {EXPECTED_EVAL_SPEC}, got None",))


def _model_writer(estimator: Estimator, eval_specs: Sequence[EvalSpec]) -> ModelWriter | None:
    """Return what writes MLflow models, if there are exporters and it can."""
    exporters = [exporter for spec in eval_specs for exporter in spec.all_exporters]
    if not exporters:
        return None
    serving = [exporter.serving_input_receiver_fn for exporter in exporters]
    check_exportable(estimator.model_fn, estimator.params, filter(None, serving))
    return MlflowModelWriter()
