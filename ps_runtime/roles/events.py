"""Defines the events that the roles of a job report to its owner while they run, one type for each kind.

::

    RoleEvent            its sender, number and time
    ├── RoleStarted      a role runs
    ├── PsListening      a ps accepts connections
    ├── Restored         the chief has restored a checkpoint, or the first values
    ├── FirstStep        a replica has made its first step
    ├── TrainingLoss     the loss of a replica in one step
    ├── Metrics          numbers at a global_step
    ├── SummaryFile      a histogram, an image or a text at a global_step
    ├── Checkpoint       a checkpoint is on disk
    ├── Evaluation       a checkpoint was evaluated
    ├── Export           an exporter wrote a model
    ├── LogMessage       the process of a role logged something
    ├── RoleLeaving      a role shuts down gracefully
    ├── RoleEnded        a role no longer runs
    ├── RoleLost         an incarnation of a role is over, and the role restarts
    └── WorkersMissing   so many workers have no slot
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from psflow.ps_runtime.transport.listeners import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEvent:
    """The fields that every event has.

    Parameters
    ----------
    role : str
        The role that sent it, such as ``worker-1``. Empty for an event that no role sent: one that was read from disk,
        or one about the process of the flow.
    incarnation : int
        The incarnation of the role that sent it; 0 for an event that no role sent.
    number : int
        Number of the event, counted from 1 in each incarnation of the role; 0 for an event that no role sent.
    time : float
        Unix time in seconds at which it happened, by the clock of the role's host.
    """

    role: str = field(default="", repr=False)
    incarnation: int = field(default=0, repr=False)
    number: int = field(default=0, repr=False)
    time: float = field(default_factory=time.time, repr=False)


@dataclass(frozen=True, slots=True)
class RoleStarted(RoleEvent):
    """A role runs on its Dask worker. The first event of each incarnation of a role.

    Parameters
    ----------
    host : str
        The name of the host that it runs on.
    """

    host: str


@dataclass(frozen=True, slots=True)
class PsListening(RoleEvent):
    """A ps accepts connections.

    Parameters
    ----------
    address : Address
        Where the ps listens.
    """

    address: Address


@dataclass(frozen=True, slots=True)
class Restored(RoleEvent):
    """All shards hold the values of a checkpoint, or their first values again; the chief sends it before it trains.

    Parameters
    ----------
    step : int
        global_step of the checkpoint; 0 for the first values, where training rolled back before there was one, or an
        earlier attempt has left none.
    secs : float
        How long it took, in seconds.
    path : str or None
        Directory of the checkpoint; None for the first values.
    """

    step: int
    secs: float
    path: str | None = None


@dataclass(frozen=True, slots=True)
class FirstStep(RoleEvent):
    """A training replica has made the first step of its incarnation; `time` is when."""


@dataclass(frozen=True, slots=True)
class TrainingLoss(RoleEvent):
    """The loss of a replica in its first step and in its last one.

    Also, for a worker, in later steps: at about each multiple of ``log_step_count_steps``, at most once a second. The
    chief's later ones are in `Metrics`. Without ``log_step_count_steps`` only the last one is sent.

    Parameters
    ----------
    step : int
        global_step at which the replica computed it: 0 for the first step of a model.
    loss : float
        The loss.
    is_last : bool
        Whether it is that of the last step of this replica.
    """

    step: int
    loss: float
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Metrics(RoleEvent):
    """Numbers that a role measured at a global_step.

    Parameters
    ----------
    step : int
        global_step.
    values : mapping of str to float
        By name, such as ``loss``, ``steps_per_sec`` or ``role/ps-0/rss_mb``; NaN and infinity may be among them.
    """

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SummaryFile(RoleEvent):
    """A histogram, an image or a text that a model_fn has recorded.

    Parameters
    ----------
    step : int
        global_step.
    file : str
        Where it goes among the artifacts of the MLflow run, such as ``summaries/weights.json``; a later one replaces
        it.
    content_base64 : str
        Its bytes, in base64.
    """

    step: int
    file: str
    content_base64: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Checkpoint(RoleEvent):
    """A checkpoint is complete.

    Parameters
    ----------
    step : int
        Its global_step.
    path : str
        Its directory: a path or a URL.
    stall_secs : float or None
        How long training waited for it, in seconds; None if an earlier attempt, or an earlier incarnation of the
        chief, made the snapshot.
    secs : float or None
        From the snapshot until it was complete, in seconds; None as above.
    """

    step: int
    path: str
    stall_secs: float | None = None
    secs: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation(RoleEvent):
    """A checkpoint was evaluated.

    Parameters
    ----------
    step : int
        global_step of the checkpoint.
    metrics : mapping of str to float
        By name, ``loss`` among them, as means over the input; NaN and infinity may be among them.
    checkpoint_saved_at : float
        Unix time in seconds; it distinguishes the checkpoint from another one of the same step.
    name : str or None
        Of the EvalSpec; None if it has no name.
    secs : float or None
        How long the evaluation took, in seconds; None if it was read from ``evaluations.jsonl``.
    """

    step: int
    metrics: Mapping[str, float]
    checkpoint_saved_at: float
    name: str | None = None
    secs: float | None = None


@dataclass(frozen=True, slots=True)
class Export(RoleEvent):
    """An exporter wrote a model.

    Parameters
    ----------
    exporter : str
        Its name, such as ``best``.
    step : int
        global_step of the checkpoint that the model was made of.
    version : int
        The n-th export of the exporter, from 1.
    path : str
        Directory of the model.
    is_best : bool
        Whether BestExporter found no better one so far.
    metrics : mapping of str to float
        Of the evaluation of the checkpoint, by name.
    """

    exporter: str
    step: int
    version: int
    path: str
    is_best: bool
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LogMessage(RoleEvent):
    """The process of a role logged something at level INFO or above; `time` is when.

    Parameters
    ----------
    level : int
        As in `logging`: 20 for INFO, 30 for WARNING, 40 for ERROR.
    logger : str
        Name of the logger.
    message : str
        The text, with the traceback at its end if there is one.
    """

    level: int
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class RoleLeaving(RoleEvent):
    """A role is about to end because its Dask worker closes, and will restart on another one."""


@dataclass(frozen=True, slots=True)
class RoleEnded(RoleEvent):
    """A role no longer runs, for whatever reason. The last event of an incarnation that was not cut off."""


@dataclass(frozen=True, slots=True)
class RoleLost(RoleEvent):
    """An incarnation of a role is over, and the role restarts as soon as a slot is free. Sent by the owner of the job.

    The process of the role is gone, or closes, or the other roles no longer wait for it.

    Parameters
    ----------
    reason : str
        Why it was lost, as far as is known.
    rolls_back : bool
        Whether all training rolls back to the last checkpoint, as with each ps, and with a chief whose next
        incarnation cannot take over; otherwise no step is lost.
    """

    reason: str
    rolls_back: bool = False


@dataclass(frozen=True, slots=True)
class WorkersMissing(RoleEvent):
    """So many workers have no slot now, and start as soon as some are free. Sent by the owner of the job.

    Parameters
    ----------
    num_missing : int
        From 0.
    num_workers : int
        Workers that the job is meant to have besides the chief.
    """

    num_missing: int
    num_workers: int


RecordedEvent: TypeAlias = Metrics | Checkpoint | Evaluation | Export
"""Kept in MLflow."""
Event: TypeAlias = (
    RoleStarted
    | PsListening
    | Restored
    | FirstStep
    | TrainingLoss
    | RecordedEvent
    | SummaryFile
    | LogMessage
    | RoleLeaving
    | RoleEnded
    | RoleLost
    | WorkersMissing
)
"""Any event; a `match` over it handles every type and ends in ``assert_never``."""
