"""Training, evaluation and export in one call: in this process, on a Dask cluster, or as one process of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import warn_of_tls
from psflow.ps_runtime.cluster.launch import MAX_RESTARTS, ClusterJob
from psflow.ps_runtime.cluster.ordered_results import Client
from psflow.ps_runtime.cluster.placement import Placement, check_placement
from psflow.ps_runtime.cluster.role_tasks import PROBE_TIMEOUT_SECS
from psflow.ps_runtime.errors import ArgumentTypeError, NoClusterError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.manual_cluster import run_manual_role
from psflow.ps_runtime.estimator.recording import recorded, requested_run
from psflow.ps_runtime.model.export.bundle import ModelWriter, check_writer, installed_writer
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec, all_eval_specs
from psflow.ps_runtime.roles.event_dispatch import dispatching
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.specs.arguments import ArgumentFaults, with_article
from psflow.ps_runtime.specs.cluster_task import ClusterTask, TaskType

EXPECTED_EVAL_SPEC = "an EvalSpec, or a sequence of them"
ADMISSION_TIMEOUT_SECS = 60.0

Reports = dict[str, dict[str, Any]]


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
    placement: Placement = "spread",
    probe_timeout_secs: float = PROBE_TIMEOUT_SECS,
    writer: ModelWriter | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Train, evaluate every checkpoint, and export what the exporters choose. Blocks until all roles have ended.

    Training and evaluation resume from the model_dir; the input continues where the latest checkpoint left it.

    Where TF_CONFIG has a cluster, this process runs one role of it. Every process makes the same call, which returns
    once the job has ended. An evaluator without an address there need not exist: then the chief evaluates the final
    checkpoint.

    Parameters
    ----------
    estimator : Estimator
        The model, and the model_dir that holds checkpoints and exports.
    train_spec : TrainSpec
        Input, hooks and last global_step of the training.
    eval_spec : EvalSpec or sequence of them
        Every checkpoint is evaluated against each; the exporters of the first choose.
    client : distributed.Client, optional
        Connected to the cluster to run on, with a thread for each role. Without it, and without TF_CONFIG, everything
        runs in this process.
    num_ps : int
        Number of parameter servers, at least 1; a cluster of TF_CONFIG overrides it.
    num_workers : int
        Number of workers beside the chief; a cluster of TF_CONFIG overrides it.
    transport : str
        How replicas connect to the ps: ``auto``, ``shm``, ``unix`` or ``tcp``.
    max_restarts : int
        With `client`: how often within an hour a role restarts after its Dask worker is lost or its code raises the
        first exception of a kind; at least 0.
    min_workers : int, optional
        With `client`: the job starts only with this many workers, and continues with fewer for at most five minutes; at
        most `num_workers`. Default: all to start, none to continue.
    placement : str
        With `client`: ``spread`` puts ps on different hosts, and replicas, too; ``pack`` puts the roles on few hosts.
    probe_timeout_secs : float
        With `client`: seconds of silence after which the Dask worker of a ps, the chief or the evaluator is
        ended and the role restarts; more than 0. A process that computes is waited for.
    writer : ModelWriter, optional
        Writes the exports, as ``model_dir/export/<exporter>/<version>/``. Default: an MLflow model, which includes the
        code of model_fn.
    on_event : callable, optional
        Called with each event of a role, in order within a role; see `Event` for the types. On a cluster a thread of
        its own calls it, and the job does not wait for it: exceptions are logged, the first one with its traceback, and
        the job continues; after the job it has 30 s for the remaining events. Without a cluster the roles call it, in
        other threads than this one, and wait; an exception ends the training. Where TF_CONFIG has a cluster, the chief
        gets the events of all roles, and each other process its own. Default: log them, there in the process of the
        role.

    Returns
    -------
    dict of str to dict
        The report of each role, by name; empty in a process of a cluster of TF_CONFIG other than the chief's.

    Raises
    ------
    UsageError
        If the model, the input or the model_dir is wrong, or if an MLflow model cannot hold model_fn or a
        serving_input_receiver_fn; nothing has been started then.
    RoleFailedError
        If a role on the cluster failed.
    ConfigError
        If TF_CONFIG of the chief differs, or a setting of its program.
    WaitTimeoutError
        If the chief does not answer, or another process does not connect to it.
    StoppedError
        In a process of a cluster of TF_CONFIG, if the job failed, or the chief is lost.
    """
    who = "train_and_evaluate"
    eval_specs = _checked_eval_specs(who, estimator, train_spec, eval_spec, writer, on_event, may_be_none=False)
    _check_cluster(who, client, num_ps, num_workers, max_restarts, min_workers, probe_timeout_secs, may_be_none=True)
    check_placement(who, placement)
    _check_sizes(client, estimator.config.cluster, num_ps, num_workers)
    for name, given, default in (
        ("max_restarts", max_restarts, MAX_RESTARTS),
        ("min_workers", min_workers, None),
        ("placement", placement, "spread"),
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
        placement=placement,
        probe_timeout_secs=probe_timeout_secs,
    )


def _check_sizes(client: Client | None, task: ClusterTask | None, num_ps: int, num_workers: int) -> None:
    sizes = f"{num_ps} ps and {num_workers} workers"
    if task is not None and client is not None:
        raise UsageError(("this process is one of a cluster, and a client is given; leave one of the two out",))
    if client is None and (num_ps, num_workers) != (1, 0):
        if task is not None:
            raise UsageError(
                (f"this process is one of a cluster, and {sizes} were requested; leave num_ps and num_workers out",)
            )
        raise UsageError((f"{sizes} need a cluster: pass client=distributed.Client(...)",))


class TrainingExecutor:
    """Runs the roles of a job of training, evaluation and export by name, for launchers.

    `train_and_evaluate` calls `run`. Each method blocks until the job has ended, and returns the report of each role by
    its name; an empty dict in a process of a cluster of TF_CONFIG other than the chief's.

    Parameters
    ----------
    estimator : Estimator
        The model, the model_dir, and in its RunConfig the role of this process.
    train_spec : TrainSpec
        Input, hooks and last global_step of the training.
    eval_spec : EvalSpec, sequence of them, or None
        Every checkpoint is evaluated against each; the exporters of the first choose. None: the job has no evaluator;
        all processes must pass the same.
    transport, writer, on_event
        As in `train_and_evaluate`.

    Raises
    ------
    UsageError
        If an argument is of another type, or if an MLflow model cannot hold model_fn or a serving_input_receiver_fn.

    Notes
    -----
    The methods raise what `train_and_evaluate` does; a UsageError if TF_CONFIG gives this process another role; a
    NoClusterError, which is a RuntimeError, if a role needs a cluster and there is none; and an ArgumentTypeError,
    which is a TypeError, if a role evaluates and eval_spec is None. Not thread-safe. A second call resumes the job.

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
        eval_specs = _checked_eval_specs(
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
        """Run the role that TF_CONFIG gives this process; without a cluster run all roles here."""
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
        """Coordinate the job, train and save; this process must be the chief."""
        return self._run_role(TaskType.CHIEF)

    def run_master(self) -> Reports:
        """Coordinate the job, train, save and evaluate; this process must be the master."""
        self._check_evaluates("run_master")
        return self._run_role(TaskType.MASTER)

    def run_worker(self) -> Reports:
        """Train; this process must be a worker."""
        return self._run_role(TaskType.WORKER)

    def run_ps(self) -> Reports:
        """Hold a shard of the variables; this process must be a ps."""
        return self._run_role(TaskType.PS)

    def run_evaluator(self) -> Reports:
        """Evaluate and export; this process must be the evaluator."""
        self._check_evaluates("run_evaluator")
        return self._run_role(TaskType.EVALUATOR)

    def run_local(self) -> Reports:
        """Train, evaluate and export in this process, which must not belong to a cluster."""
        self._check_evaluates("run_local")
        place = requested_run(self.estimator.config)
        with self._make_attempt() as attempt, recorded(place, attempt, self._on_event_here) as hear:
            return attempt.run_here(hear, self._writer)

    def run_on(
        self,
        client: Client,
        *,
        num_ps: int,
        num_workers: int,
        max_restarts: int = MAX_RESTARTS,
        min_workers: int | None = None,
        placement: Placement = "spread",
        probe_timeout_secs: float = PROBE_TIMEOUT_SECS,
    ) -> Reports:
        """Run all roles on a Dask cluster, a thread for each; this process must not belong to a cluster.

        Parameters
        ----------
        client : distributed.Client
            Connected to the Dask cluster.
        num_ps, num_workers : int
            Number of parameter servers, at least 1, and of workers beside the chief.
        max_restarts, min_workers, placement, probe_timeout_secs
            As in `train_and_evaluate`.
        """
        _check_cluster(
            "run_on", client, num_ps, num_workers, max_restarts, min_workers, probe_timeout_secs, may_be_none=False
        )
        check_placement("run_on", placement)
        place = requested_run(self.estimator.config)
        with self._make_attempt(num_ps=num_ps, num_workers=num_workers) as attempt:
            attempt.note_workers(min_workers or 0)
            limits: dict[str, Any] = {"max_restarts": max_restarts, "min_workers": min_workers}
            limits |= {"probe_timeout_secs": probe_timeout_secs, "placement": placement}
            job = attempt.job(self._writer)
            warn_of_tls(client)
            with (
                dispatching(self._on_event_here) as hear_own,
                recorded(place, attempt, hear_own) as hear,
                ClusterJob(client, job, hear, wanted_workers=attempt.wanted_workers, **limits) as run,
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
            raise UsageError((f"run_{kind}: {own}; call run, which runs that role, or correct its type",))
        make_attempt = partial(
            self._make_attempt, num_ps=len(task.cluster.ps), num_workers=len(task.cluster.workers), is_manual=True
        )
        return run_manual_role(
            task,
            self.estimator,
            self._train_spec,
            self._eval_specs,
            make_attempt,
            self._writer,
            self._on_event,
            requested_run(self.estimator.config),
        )

    @property
    def _on_event_here(self) -> Callable[[Event], None]:
        return Attempt.log_event if self._on_event is None else self._on_event

    def _check_evaluates(self, name: str) -> None:
        if not self._evaluates:
            raise ArgumentTypeError((f"{name}: eval_spec should be {EXPECTED_EVAL_SPEC}, got None",))


def _model_writer(estimator: Estimator, eval_specs: Sequence[EvalSpec]) -> ModelWriter | None:
    """Return the default writer, if there are exporters and it can write the model."""
    exporters = [exporter for spec in eval_specs for exporter in spec.all_exporters]
    if not exporters:
        return None
    serving = [exporter.serving_input_receiver_fn for exporter in exporters]
    writer = installed_writer()
    writer.check(estimator.model_fn, estimator.params, filter(None, serving))
    return writer


def _checked_eval_specs(
    who: str, estimator: Any, train_spec: Any, eval_spec: Any, writer: Any, on_event: Any, *, may_be_none: bool
) -> tuple[EvalSpec, ...]:
    """Return the EvalSpecs after checking the arguments of `who`.

    Raises UsageError if one of them is wrong; an ArgumentTypeError if it has another type.
    """
    faults = ArgumentFaults(f"{who}: ")
    for name, given, kind in (("estimator", estimator, Estimator), ("train_spec", train_spec, TrainSpec)):
        if not isinstance(given, kind):
            faults.add_type(name, with_article(kind.__name__), given)
    specs: tuple[EvalSpec, ...] = ()
    if isinstance(eval_spec, EvalSpec):
        specs = (eval_spec,)
    elif eval_spec is None and not may_be_none:
        faults.add_type("eval_spec", EXPECTED_EVAL_SPEC, None)
    else:
        specs = faults.items("eval_spec", eval_spec, EvalSpec, "EvalSpec", may_be_empty=False)
    check_writer(faults, writer)
    if on_event is not None:
        faults.callable("on_event", on_event)
    faults.raise_any()
    return specs


def _check_cluster(
    who: str,
    client: Any,
    num_ps: Any,
    num_workers: Any,
    max_restarts: Any,
    min_workers: Any,
    probe_timeout_secs: Any,
    *,
    may_be_none: bool,
) -> None:
    """Raise UsageError if a client is not a Dask client, or a number of roles, restarts or seconds is invalid."""
    faults = ArgumentFaults(f"{who}: ")
    if not isinstance(client, Client) and not (client is None and may_be_none):
        faults.add_type("client", "a distributed.Client" + (" or None" if may_be_none else ""), client)
    numbers = [("num_ps", num_ps, 1), ("num_workers", num_workers, 0), ("max_restarts", max_restarts, 0)]
    if min_workers is not None:
        numbers.append(("min_workers", min_workers, 0))
    for name, given, least in numbers:
        if not isinstance(given, int) or isinstance(given, bool):
            faults.add_type(name, "an int", given)
        elif given < least:
            faults.add(f"{who}: {name} should be {least} or more, got {given}")
    faults.number("probe_timeout_secs", probe_timeout_secs, above_zero=True)
    faults.raise_any()
    if min_workers is not None and min_workers > num_workers:
        raise UsageError((f"{who}: min_workers should be at most num_workers, {num_workers}, got {min_workers}",))
