"""Runs the loop of a training replica. A worker does nothing else; `chief` adds the duties of the chief."""

from __future__ import annotations

import logging
import math
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from psflow.ps_runtime.checkpoint.records import RecentEvaluations
from psflow.ps_runtime.client.shard_client import Connect, Identity, ShardClients
from psflow.ps_runtime.client.training import HOLD_TIMEOUT_SECS, TrainingClient
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import InputError, StoppedError
from psflow.ps_runtime.model.calls.caller import BuiltModel, ModelCaller
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.hooks.basic import GlobalStepWaiterHook, NanTensorHook
from psflow.ps_runtime.model.hooks.reporting import StepCounterHook, SummarySaverHook
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.session_start import await_ready
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers.averages import states_of
from psflow.ps_runtime.protocol.message import Purpose
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import FirstStep, SummaryFile, TrainingLoss
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.role_metrics import RoleSample
from psflow.ps_runtime.roles.session import MonitoredSession, StepSession
from psflow.ps_runtime.roles.streams import BatchReader, PrivateStream
from psflow.ps_runtime.specs.input import InputSize
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.wire_format import EXACT

logger = logging.getLogger(__name__)

SLICE_SECS = 0.25

TrainingLoop = Callable[[MonitoredSession], None]
"""Makes the steps of a session, as `train` does."""


def train(session: MonitoredSession) -> None:
    """Make steps until the job has ended, or a hook asked to stop. Blocks."""
    with session:
        while not session.should_stop():
            session.run()


def run_worker(
    job: JobSpec, context: RoleContext, connect_functions: Sequence[Connect], training_loop: TrainingLoop = train
) -> dict[str, Any]:
    """Train as a worker until the job is over, or a hook asks this worker to stop; return the role's report."""
    with open_shards(job, context, connect_functions, Purpose.TRAIN, context.check) as shards:
        client = open_client(job, shards)
        losses = ReplicaLosses(context, job.config)
        session = open_session(job, context, client, on_step=losses.after_step)
        session.before_step = lambda: _leave_if_due(context, client)
        context.watch(lambda: sample_of(session, shards))
        _await_first_step(job, context, client)
        training_loop(session)
        losses.end(session)
        client.leave()
        return context.report(shards.transport, client.statistics() | {"steps": session.step_session.num_steps})


def _leave_if_due(context: RoleContext, client: TrainingClient) -> None:
    """Return all tickets, and raise StoppedError, if this worker is to shut down gracefully."""
    if context.is_shutting_down():
        client.leave(begins_again=True)
        raise StoppedError(str(context.role), "its Dask worker closes; its work goes to other replicas")


def open_shards(
    job: JobSpec,
    context: RoleContext,
    connect_functions: Sequence[Connect],
    purpose: Purpose,
    check: Callable[[], None],
) -> ShardClients:
    """Return clients of all shards, which identify this replica."""
    identity = Identity(
        job.job_id,
        job.token,
        job.model.digest,
        str(context.role),
        purpose,
        context.role.replica,
        context.incarnation,
        job.config.wire if purpose is Purpose.TRAIN else EXACT,
    )
    return ShardClients(connect_functions, identity, check, job.config.session_creation_timeout_secs)


def open_client(job: JobSpec, shards: ShardClients) -> TrainingClient:
    """Return the client that this replica trains with."""
    config = job.config
    return TrainingClient(
        shards,
        job.model,
        config.session_creation_timeout_secs,
        # a replica that has read its own input waits for the others as long as they train
        math.inf if job.input.each_worker_reads_all else HOLD_TIMEOUT_SECS,
        in_place=config.consistency.in_place and not shards[0].connection.is_direct,
        states=states_of(job.optimizers),
    )


def open_session(
    job: JobSpec, context: RoleContext, client: TrainingClient, on_step: Callable[[MonitoredSession], None]
) -> MonitoredSession:
    """Open the replica's input and return the session that will train on it.

    Raises InputError if the input cannot be read, or is another one than where the job was planned.
    """
    opened = open_input(
        job.train_spec.input_fn,
        InputContext(job.num_workers + 1, context.role.replica),
        mode=ModeKeys.TRAIN,
        params=job.params,
        config=job.config,
        non_finite=job.train_spec.non_finite,
        enforcement=Enforcement(job.model.train_input, "the train input"),
        kept=KeptInputs(job.model_dir).of_flow("train"),
    )
    is_pipelined = job.config.pipeline_depth > 0 and not job.input.is_stream
    step_session = StepSession(
        client,
        job.model,
        job.config,
        is_chief=context.role.role is Role.CHIEF,
        report=lambda step, values: _report(context, step, values),
        put_file=lambda step, name, content: _put_file(context, step, name, content),
        gradients_per_step=job.config.consistency.gradients_per_update(job.num_workers + 1),
        can_pull=not is_pipelined,
    )
    return MonitoredSession(
        client=client,
        reader=_reader(job, context.role, opened, client),
        caller=ModelCaller(job.model_fn, job.params, job.config, job.model.schema),
        model=job.model,
        seed=job.seed,
        evaluations=RecentEvaluations(job.model_dir),
        step_session=step_session,
        hooks_of=lambda built: _hooks(job, context, built),
        on_step=on_step,
        await_ready=lambda scaffold, session: await_ready(
            scaffold,
            session,
            str(context.role),
            Deadline(job.config.session_creation_timeout_secs),
            context.check,
        ),
        pipeline_depth=int(is_pipelined),
        num_workers=job.num_workers,
    )


def _reader(
    job: JobSpec, role: RoleId, opened: SplittableInput | Iterator[Any], client: TrainingClient
) -> BatchReader | PrivateStream:
    """Return the reader of the batches of this replica's grants."""
    here = InputSize(None)
    if isinstance(opened, SplittableInput):
        here = InputSize(opened.num_records, opened.rows_per_record)
    if here != job.input.size:
        raise InputError(
            (
                f"the train input is {here} in {role}, and was {job.input.size} where the job was planned; return the "
                "same data in every process, or, for data of its own in each replica, batches of a generator and "
                "each_worker_reads_all=True of TrainSpec",
            )
        )
    if not job.input.each_worker_reads_all:
        return BatchReader(opened, client)
    if isinstance(opened, SplittableInput):
        return BatchReader(opened, client, role.replica)
    return PrivateStream(opened, client, job.train_spec.input_fn)


def sample_of(session: MonitoredSession, shards: ShardClients) -> RoleSample:
    """Return the counts of this replica so far."""
    sent, received = shards.bytes_moved()
    steps = session.step_session
    client = steps.client
    return RoleSample(
        steps.global_step,
        sent,
        received,
        steps.num_steps,
        steps.staleness_sum,
        client.pulls.counts,
        client.pushes.counts,
    )


def _hooks(job: JobSpec, context: RoleContext, built: BuiltModel) -> list[SessionRunHook]:
    """Return the hooks of a replica in the order of TensorFlow 2.15: those of the chief alone come first."""
    hooks = [hook for hook in job.train_spec.hooks if not isinstance(hook, GlobalStepWaiterHook)]
    if not any(isinstance(hook, NanTensorHook) for hook in hooks):
        hooks.append(NanTensorHook())
    hooks += built.spec.training_hooks
    if context.role.role is not Role.CHIEF:
        return hooks
    return [*built.spec.training_chief_hooks, *_reporting_hooks(job.config), *hooks]


def _reporting_hooks(config: RunConfig) -> list[SessionRunHook]:
    hooks: list[SessionRunHook] = []
    if config.log_step_count_steps:
        hooks.append(StepCounterHook(config.log_step_count_steps))
    if config.save_summary_steps:
        hooks.append(SummarySaverHook(save_steps=config.save_summary_steps))
    return hooks


def _await_first_step(job: JobSpec, context: RoleContext, client: TrainingClient) -> None:
    """Wait for the global_step at which this worker is to start, if a hook sets one."""
    waiters = [hook for hook in job.train_spec.hooks if isinstance(hook, GlobalStepWaiterHook)]
    first = max((hook.wait_until_step for hook in waiters), default=0)
    if first <= 0:
        return
    logger.info("%s waits for global_step %d before it trains", context.role, first)
    while True:
        context.check()
        global_step, is_over = client.progress()
        if is_over or global_step >= first:
            return
        time.sleep(SLICE_SECS)


def _report(context: RoleContext, global_step: int, values: Mapping[str, float]) -> None:
    """Send metrics: of the chief unchanged, of a worker under its name."""
    if context.role.role is not Role.CHIEF:
        values = {f"role/{context.role}/{name}": value for name, value in values.items()}
    context.emit_metrics(global_step, values)


def _put_file(context: RoleContext, global_step: int, name: str, content: bytes) -> None:
    """Send a summary file: of the chief under its name, of a worker in its own folder."""
    folder = "summaries" if context.role.role is Role.CHIEF else f"summaries/role/{context.role}"
    context.emit(SummaryFile(int(global_step), f"{folder}/{name}", b64encode(content).decode()))


LOSS_SECS = 1.0
"""Between two reports of a worker's loss, at least: all of them pass the scheduler."""


class ReplicaLosses:
    """Reports the first step of a replica and its losses; see `TrainingLoss`."""

    def __init__(self, context: RoleContext, config: RunConfig) -> None:
        self._context = context
        self._every = config.log_step_count_steps
        self._has_metrics = context.role.role is Role.CHIEF
        self._last, self._due_at = 0, 0.0

    def after_step(self, session: MonitoredSession) -> None:
        """Report the step, if it is the first one, or it is time to."""
        step, every = session.step_session.computed_at, self._every
        if session.step_session.num_steps == 1:
            self._context.emit(FirstStep())
            if every:
                self._report(session.step_session)
        elif every and not self._has_metrics and step // every != self._last and time.monotonic() >= self._due_at:
            self._report(session.step_session)

    def end(self, session: MonitoredSession) -> None:
        """Report the last step, if any was made."""
        steps = session.step_session
        if steps.num_steps:
            self._context.emit(TrainingLoss(steps.computed_at, float(steps.loss), is_last=True))

    def _report(self, steps: StepSession) -> None:
        assert self._every is not None, "only then a loss is due"
        self._last, self._due_at = steps.computed_at // self._every, time.monotonic() + LOSS_SECS
        self._context.emit(TrainingLoss(steps.computed_at, float(steps.loss)))
