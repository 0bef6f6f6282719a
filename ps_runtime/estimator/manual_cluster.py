"""Manual clusters: each process runs one role that TF_CONFIG or flags name."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from typing import Any

from psflow.ps_runtime.checkpoint.files import reading
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import EvaluationLog, FinishedMarker, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.certificate_file import ANNOUNCED, announced_model_dir
from psflow.ps_runtime.cluster.chief_process import open_manual_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.worker_process import JOIN_TIMEOUT_SECS, POLL_SECS, OwnProgram, join_manual_cluster
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ArgumentTypeError, ConfigError, ModelDirError, UsageError, WaitTimeoutError
from psflow.ps_runtime.estimator.attempt import Attempt, Trainable
from psflow.ps_runtime.estimator.eval_metrics import EarlyStoppingHook
from psflow.ps_runtime.estimator.event_log import log_own_event, print_unless_configured
from psflow.ps_runtime.estimator.model_dir import check_location
from psflow.ps_runtime.estimator.recording import RunPlace, recorded
from psflow.ps_runtime.model.export.bundle import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.optimizers.base import EvaluatedSchedule, TrainOp
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.roles.event_dispatch import OnEvent, dispatching
from psflow.ps_runtime.roles.events import Event, LogMessage, RoleLost
from psflow.ps_runtime.roles.session_handoff import SessionHandoff
from psflow.ps_runtime.roles.trainer import train
from psflow.ps_runtime.signals import sigterm_leaves
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.run_config import SESSION_CREATION_TIMEOUT_SECS, RunConfig, absolute, is_local
from psflow.ps_runtime.specs.task_facts import ClusterSpec
from psflow.ps_runtime.specs.tf_config import TfConfigSource, tf_config_of
from psflow.ps_runtime.specs.worker_context import check_task

OF_TRAINING = ("max_steps", "non_finite", "each_worker_reads_all")
OF_EVALUATION = ("name", "steps", "start_delay_secs", "throttle_secs", "non_finite")
OF_PROCESS = ("model_dir", "cluster", "experiment")
"""Settings of a RunConfig that are compared with the cluster, or belong to one process."""


def program_facts(
    params: Mapping[str, Any], config: RunConfig, train_spec: TrainSpec, eval_specs: Sequence[EvalSpec]
) -> dict[str, str]:
    """Return the plain settings of a program as strings, by name; of other objects only the type.

    The code is not compared: two processes cannot tell whether their functions do the same.
    """
    settings = [field.name for field in fields(config) if field.init and field.name not in OF_PROCESS]
    found = {f"params[{name!r}]": _text(value) for name, value in params.items()}
    found |= {f"RunConfig.{name}": _text(getattr(config, name)) for name in settings}
    found |= {f"TrainSpec.{name}": _text(getattr(train_spec, name)) for name in OF_TRAINING}
    for index, spec in enumerate(eval_specs):
        found |= {f"eval_spec[{index}].{name}": _text(getattr(spec, name)) for name in OF_EVALUATION}
    return found


def _text(value: Any) -> str:
    """Return a string that is equal in two processes if the value is; addresses and the order of sets are not."""
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_text, value))}]"
        case dict():
            return f"{{{', '.join(f'{key!r}: {_text(one)}' for key, one in value.items())}}}"
        case _:
            return f"a {type(value).__qualname__}"


OF_CHIEF = (
    "the model_fn, params, hooks and evaluations of the chief's process are those of the job; of this process only the "
    "training input_fn is called, by a worker"
)
SHARED = (
    "the input_fn, model_fn, params and hooks of the chief's process are those of the job, and those of this one are "
    "not called. All replicas share that input, so the input_fn must return all data. If it returns a part by the "
    "index of its process, only the part of the chief is read; then set each_worker_reads_all=True in TrainSpec: "
    "each worker calls its own input_fn"
)

logger = logging.getLogger(__name__)


def run_manual_role(
    task: ClusterTask,
    estimator: Trainable,
    train_spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    make_attempt: Callable[[], Attempt],
    writer: ModelWriter | None,
    on_event: OnEvent | None,
    place: RunPlace | None,
    handoff: SessionHandoff | None = None,
) -> dict[str, dict[str, Any]]:
    """Run one process of a job until the job has ended; return the report of each role on the chief.

    The chief records the job at `place`.

    Raises
    ------
    UsageError
        If this process has no role, or the cluster or the model_dir does not fit a job; else as `open_manual_cluster`
        and `join_manual_cluster` raise.
    ModelDirError
        If another running job owns the model_dir.
    RoleFailedError, StoppedError
        If the job failed: on the chief, and in other processes.
    """
    model_dir = estimator.model_dir
    role = _checked_role(task, model_dir)
    training_loop, check_handoff = (train, never_stop) if handoff is None else (handoff.hand_over, handoff.check)

    def check_both() -> None:
        check_handoff()
        check_task()

    timeout_secs = _meeting_secs(estimator.config)
    facts = program_facts(estimator.caller.params, estimator.config, train_spec, eval_specs)
    if role.role is not Role.CHIEF:
        input_fn = train_spec.input_fn if train_spec.each_worker_reads_all else None
        nothing_left = partial(_evaluated_end, model_dir, train_spec, eval_specs, _finished(model_dir))
        own = OwnProgram(
            facts, input_fn, training_loop, nothing_left if role.role is Role.EVALUATOR else lambda has_waited: None
        )
        shares = role.role is Role.WORKER and own.input_fn is None
        logger.log(logging.WARNING if shares else logging.INFO, "%s: %s", role, SHARED if shares else OF_CHIEF)
        with sigterm_leaves(), dispatching(log_own_event if on_event is None else on_event) as hear:
            join_manual_cluster(task.cluster, role, model_dir, own, hear, timeout_secs, check_both)
        return {}
    with reading(model_dir):
        refusal = JobFile(model_dir).refusal()
    if refusal is not None:  # before its certificate is replaced
        raise ModelDirError((refusal,))
    with (
        sigterm_leaves(),
        dispatching(log_own_event if on_event is None else _ignore) as hear_own,
        open_manual_cluster(
            task.cluster, model_dir, facts, evaluator=bool(eval_specs), on_event=hear_own, training_loop=training_loop
        ) as led,
        ExitStack() as stack,
    ):
        with led.planning():
            attempt = stack.enter_context(make_attempt())
            on_all = partial(_log_for_all, led.has_joined) if on_event is None else on_event
            hear = stack.enter_context(recorded(place, attempt, stack.enter_context(dispatching(on_all))))
            job = attempt.job(writer)

        def check() -> None:
            check_handoff()
            attempt.check()

        slots = led.await_processes(timeout_secs, check)
        if eval_specs and RoleId(Role.EVALUATOR, 0) not in slots:
            _say_without_evaluator(train_spec, attempt.plan.built.spec.train_ops)

        stands_in = False

        def slot_of(role: RoleId) -> str | None:
            nonlocal stands_in
            slot = led.slot_of(role)
            if slot is None and role.role is Role.EVALUATOR and (stands_in or run.lacks_evaluator()):
                slot = led.slot_of_chief()
                if slot is not None:
                    stands_in = True
                    logger.info(
                        "no evaluator has joined: the chief evaluates the final checkpoint%s", _of_end(model_dir)
                    )
            return slot

        with ClusterJob(led.client, job, hear) as run:
            run.start_at(slots, slot_of, check)
            return run.join(check)


def _finished(model_dir: str) -> FinishedMarker | None:
    with reading(model_dir):
        return read_finished(model_dir)


def _of_end(model_dir: str) -> str:
    end = _finished(model_dir)
    return "" if end is None else f", of step {end.final_step}"


def _evaluated_end(
    model_dir: str,
    train_spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    before: FinishedMarker | None,
    has_waited: bool,
) -> str | None:
    """Return a sentence if the training of this evaluator has ended, with an evaluated final checkpoint.

    An end of `before` counts only if no further step can follow it, or if it has waited: a chief that is about to train
    on removes the mark of the end.
    """
    end, last = _finished(model_dir), train_spec.max_steps
    if end is None or (end == before and not has_waited and (last is None or end.final_step < last)):
        return None
    with reading(model_dir):
        saved_at = CheckpointStore(model_dir).saved_at().get(end.final_step)
        known = EvaluationLog(model_dir).by_name()
    done = [known.get(spec.name or "", {}).get(end.final_step) for spec in eval_specs]
    if saved_at is None or any(one != saved_at for one in done):
        return None
    return f"nothing is left to evaluate: the training in {shown_path(model_dir)} has ended at step {end.final_step}"


def _say_without_evaluator(train_spec: TrainSpec, train_ops: Iterable[TrainOp]) -> None:
    """Log what happens while no evaluator is there."""
    logger.info("no evaluator has joined yet; training starts, and one may join at any time")
    why = "reads the evaluations of an evaluator, and none has joined yet: until then it"
    if any(isinstance(hook, EarlyStoppingHook) for hook in train_spec.hooks):
        logger.warning("the early stopping of this training %s stops nothing", why)
    if any(isinstance(op.optimizer.learning_rate, EvaluatedSchedule) for op in train_ops):
        logger.warning("the learning rate of this training %s does not fall", why)


def _meeting_secs(config: RunConfig) -> float:
    """Return how long processes wait for each other: the default of two hours would hide a typo."""
    secs = config.session_creation_timeout_secs
    return JOIN_TIMEOUT_SECS if secs == SESSION_CREATION_TIMEOUT_SECS else secs


def serve_manual_role(task: ClusterTask, model_dir: str, timeout_secs: float, check: Callable[[], None]) -> None:
    """Run one process of a job without a program of its own, which a ps does not need. Blocks until the job has ended.

    Raises UsageError or WaitTimeoutError or StoppedError as in `run_manual_role`.
    """
    role = _checked_role(task, model_dir)
    with sigterm_leaves(), dispatching(log_own_event) as hear:
        join_manual_cluster(task.cluster, role, model_dir, OwnProgram(), hear, timeout_secs, check)


def _checked_role(task: ClusterTask, model_dir: str) -> RoleId:
    print_unless_configured(runs_own_role=True)
    if task.role is None:
        raise UsageError(
            (f"this process is a {task.task_type}, which is not a role of a job; start each role of its cluster",)
        )
    if not task.cluster.ps:
        raise UsageError(("the cluster has no ps; add one, or leave the cluster out to train in one process",))
    if not is_local(model_dir):
        raise UsageError(
            (f"model_dir {model_dir}: the processes meet in a directory; choose one on a disk that all hosts share",)
        )
    check_location(model_dir)
    return task.role


def _log_for_all(has_joined: Callable[[RoleId], bool], event: Event) -> None:
    """Log events that a role cannot log itself, and warnings of a ps about the roles that it serves.

    The rest is in the log of the process that sent it.
    """
    match event:
        case RoleLost() if has_joined(RoleId.parse(event.role)):
            logger.warning("%s restarts in its process: %s", event.role, event.reason)
        case RoleLost():
            logger.warning("%s is lost: %s; start its process again with the same command", event.role, event.reason)
        case LogMessage() if RoleId.parse(event.role).role is Role.PS and event.level >= logging.WARNING:
            logger.warning("%s: %s", event.role, event.message)
        case _:
            pass


def _ignore(event: Event) -> None:
    """Ignore an event that another handler takes."""


SOURCE = TfConfigSource("Server", "job_name", "task_index")


class Server:
    """One process of a cluster, named by flags of a program: an alternative to TF_CONFIG.

    Parameters
    ----------
    cluster : ClusterSpec, or mapping of str to sequence of str
        Addresses ``host:port`` by type: ``chief``, ``worker``, ``ps``. Without a chief, worker 0 is the chief.
    job_name : str
        The type of this process.
    task_index : int
        Its index among those of its type, from 0.

    Attributes
    ----------
    target : ClusterTask
        This process, as RunConfig takes it.

    Raises
    ------
    ConfigError
        With every fault, by the name of its field; an ArgumentTypeError if the cluster has another type.

    Examples
    --------
    ::

        server = Server({"ps": ["ada:2222"], "worker": ["bob:2222", "cleo:2222"]}, job_name, task_index)
        if job_name == "ps":
            server.join("/shared/mnist")
        else:
            config = RunConfig("/shared/mnist", cluster=server.target)
    """

    def __init__(self, cluster: ClusterSpec | Mapping[str, Sequence[str]], job_name: str, task_index: int) -> None:
        if not isinstance(cluster, ClusterSpec | Mapping):
            what = f"a ClusterSpec, or a mapping of types to addresses, got {type(cluster).__name__} {cluster!r}"
            raise ArgumentTypeError((f"Server: cluster should be {what}",))
        given = cluster.as_dict() if isinstance(cluster, ClusterSpec) else dict(cluster)
        addresses = {kind: list(found) if isinstance(found, tuple) else found for kind, found in given.items()}
        config = tf_config_of({"cluster": addresses, "task": {"type": job_name, "index": task_index}}, SOURCE)
        if config.task is None:
            raise ConfigError(("Server: cluster should have addresses, got none",))
        self.target: ClusterTask = config.task

    def join(self, model_dir: str | os.PathLike[str] | None = None) -> None:
        """Run this role of the chief's job until the job has ended. Blocks.

        model_fn and the input are those of the chief's process.

        Parameters
        ----------
        model_dir : str or path, optional
            That of the job. Default: what a chief with the same cluster has announced in ``~/.psflow/clusters``, which
            works where both run as one user, with one home directory.

        Raises
        ------
        UsageError
            If this process is the chief or a client, or cannot listen at its address; or if the cluster has no ps. An
            ArgumentTypeError if `model_dir` is not a path.
        ConfigError
            If the chief has another cluster, or another model_dir.
        WaitTimeoutError
            If no chief answers within 40 s, whatever ``session_creation_timeout_secs`` the chief has.
        StoppedError
            If the job failed, or the chief is lost.
        """
        if self.target.facts.is_chief:
            what = "the chief coordinates the job and does not join; call train_and_evaluate, or open a session"
            raise UsageError((f"Server.join: {what}",))
        deadline = Deadline(JOIN_TIMEOUT_SECS)
        if model_dir is None:
            model_dir = self._announced(deadline)
        directory = os.fspath(model_dir) if isinstance(model_dir, os.PathLike) else model_dir
        if not isinstance(directory, str):
            what = f"a str or path, got {type(model_dir).__name__} {model_dir!r}"
            raise ArgumentTypeError((f"Server.join: model_dir should be {what}",))
        if not directory:
            raise UsageError(("Server.join: model_dir should be that of the chief, got ''",))
        serve_manual_role(self.target, absolute(directory), deadline.remaining_secs, never_stop)

    def _announced(self, deadline: Deadline) -> str:
        """Wait for the model_dir that the chief announces."""
        while (found := announced_model_dir(self.target.cluster.spec)) is None:
            if deadline.has_passed:
                chief = f"the chief at {self.target.cluster.chief}"
                detail = f"{ANNOUNCED} has no file of this cluster; start the chief, or pass its model_dir to join()"
                raise WaitTimeoutError(chief, "announce its model_dir", deadline.timeout_secs, detail)
            time.sleep(POLL_SECS)
        return found
