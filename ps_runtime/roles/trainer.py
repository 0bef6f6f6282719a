"""The loop of a training replica. A worker is no more than that; `chief` adds the chief's duties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psflow.ps_runtime.client.shard_client import Dial, Identity, ShardClients
from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.model.basic_hooks import NanTensorHook, StepCounterHook, SummaryHook
from psflow.ps_runtime.model.caller import BuiltModel, ModelCaller
from psflow.ps_runtime.model.hooks import SessionRunHook
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.protocol.purpose import Purpose
from psflow.ps_runtime.roles.batches import BatchReader
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import FirstStep
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.role_metrics import Sample
from psflow.ps_runtime.roles.session import MonitoredSession
from psflow.ps_runtime.specs.roles import Role

__all__ = ["open_client", "open_session", "open_shards", "run_worker", "sample_of"]


def run_worker(job: JobSpec, context: RoleContext, dials: Sequence[Dial]) -> dict[str, Any]:
    """Train as a worker until the job is over; return the role's report.

    Parameters
    ----------
    job : JobSpec
        What all roles of the job are given alike.
    context : RoleContext
        How this role stops, reports and reaches the others.
    dials : sequence of callable
        How to reach each ps.
    """
    with open_shards(job, context, dials, Purpose.TRAIN, context.check) as shards:
        client = open_client(job, shards)
        session = open_session(job, context, client, on_step=lambda session: _tell_first_step(context, session))
        context.watch(lambda: sample_of(session, shards))
        session.run()
        client.leave()
        return context.report(shards.transport, client.statistics() | {"steps": session.num_steps})


def open_shards(
    job: JobSpec, context: RoleContext, dials: Sequence[Dial], purpose: Purpose, check: Callable[[], None]
) -> ShardClients:
    """Return clients of all shards, which say who this replica is."""
    identity = Identity(
        job.job_id,
        job.token,
        job.model.digest,
        str(context.role),
        purpose,
        context.role.replica,
        context.incarnation,
    )
    return ShardClients(dials, identity, check, job.config.session_creation_timeout_secs)


def open_client(job: JobSpec, shards: ShardClients) -> TrainingClient:
    """Return the client that this replica trains with."""
    config = job.config
    return TrainingClient(shards, job.model, config.session_creation_timeout_secs, in_place=config.consistency.in_place)


def open_session(
    job: JobSpec, context: RoleContext, client: TrainingClient, on_step: Callable[[MonitoredSession], None]
) -> MonitoredSession:
    """Open the replica's input and return the session that will train on it."""
    opened = open_input(
        job.train_spec.input_fn,
        InputContext(job.num_workers + 1, context.role.replica),
        mode=ModeKeys.TRAIN,
        params=job.params,
        config=job.config,
        non_finite=job.train_spec.non_finite,
        enforcement=Enforcement(job.model.schema, "the train input"),
    )
    return MonitoredSession(
        client=client,
        reader=BatchReader(opened, client),
        caller=ModelCaller(job.model_fn, job.params, job.config, job.model.schema),
        model=job.model,
        seed=job.seed,
        hooks_of=lambda built: _hooks(job, context, built),
        on_step=on_step,
        pipeline_depth=0 if job.input.is_stream else job.config.pipeline_depth,
    )


def sample_of(session: MonitoredSession, shards: ShardClients) -> Sample:
    """Return what this replica has done so far."""
    sent, received = shards.bytes_moved()
    return Sample(session.global_step, sent, received, session.num_steps, session.staleness_sum)


def _hooks(job: JobSpec, context: RoleContext, built: BuiltModel) -> list[SessionRunHook]:
    hooks: list[SessionRunHook] = list(job.train_spec.hooks or ())
    if not any(isinstance(hook, NanTensorHook) for hook in hooks):
        hooks.append(NanTensorHook())
    hooks += built.spec.training_hooks or ()
    if context.role.role is Role.CHIEF:
        config = job.config
        if config.save_summary_steps is not None:
            hooks.append(SummaryHook(context.emit_metrics, config.save_summary_steps))
        if config.log_step_count_steps is not None:
            hooks.append(StepCounterHook(context.emit_metrics, config.log_step_count_steps, _gradients_per_step(job)))
        hooks += built.spec.training_chief_hooks or ()
    return hooks


def _gradients_per_step(job: JobSpec) -> int:
    return job.config.consistency.gradients_per_update(job.num_workers + 1)


def _tell_first_step(context: RoleContext, session: MonitoredSession) -> None:
    if session.num_steps == 1:
        context.emit(FirstStep())
