"""What a training will do, and whatever can be known to be wrong with it before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prefect.logging import get_logger

from psflow.flows.parameters.cluster import ClusterParameters
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.beginning import Beginning, begin, placed
from psflow.flows.planning.building import build_training
from psflow.flows.planning.reading_line import shown_reading
from psflow.flows.planning.turns import await_turn
from psflow.ps_runtime.cluster.admission import check_capacity
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.missing_workers import slots_needed
from psflow.ps_runtime.config.files import Settings
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.fork import Fork
from psflow.ps_runtime.specs.roles import job_roles
from psflow.tasks.exports.writer import check_exportable
from psflow.tasks.tracking.store import prepare_store

__all__ = ["Planned", "plan_attempt", "planned_training"]


@dataclass(frozen=True)
class Planned:
    """A job that nothing is known to be wrong with, and the address of the MLflow store that will record it."""

    beginning: Beginning
    attempt: Attempt
    store: str


@contextmanager
def planned_training(parameters: TrainParameters, settings: Settings | None = None) -> Iterator[Planned]:
    """Wait for the model_dir, where that is asked for, and find out whatever can be known before anything is started.

    Raises
    ------
    UsageError
        Whatever is wrong.
    """
    parameters = placed(parameters)
    await_turn(parameters, say=get_logger("psflow").info)
    beginning = begin(parameters, settings)
    attempt = plan_attempt(beginning.parameters, beginning.fork)
    _check_cluster(beginning.parameters.cluster)
    yield Planned(beginning, attempt, prepare_store())


def _check_cluster(cluster: ClusterParameters) -> None:
    """Refuse a cluster that does not answer, or has too few slots, before there is a run that fails."""
    if cluster.address is not None:
        roles = job_roles(cluster.ps, cluster.workers, evaluator=True)
        with open_cluster(cluster.address, len(roles), warn=lambda fault: None) as client:  # the flow says it
            check_capacity(client, slots_needed(roles, cluster.min_workers))


def plan_attempt(parameters: TrainParameters, fork: Fork | None = None) -> Attempt:
    """Open the inputs, call the model on a batch of each, and look at model_dir; nothing is started.

    Raises
    ------
    UsageError
        Whatever is wrong with any of these.
    """
    training = build_training(parameters)
    check_exportable(training.estimator.model_fn, training.estimator.params)
    with shown_reading():
        return Attempt(
            training.estimator,
            training.train_spec,
            training.eval_specs,
            num_ps=parameters.cluster.ps,
            num_workers=parameters.cluster.workers,
            transport=parameters.transport,
            fork=fork,
        )
