"""Logs the events of roles as sentences of the logger ``psflow``, and prints them where no logging is configured."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import assert_never

from psflow.ps_runtime.roles.event_codec import forwards_records, level_without_forwarding
from psflow.ps_runtime.roles.event_dispatch import makes_events
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    Restored,
    RoleEnded,
    RoleLeaving,
    RoleLost,
    RoleStarted,
    SummaryFile,
    TrainingLoss,
    WorkersMissing,
)
from psflow.ps_runtime.specs.roles import Role

NAME = "psflow"

logger = logging.getLogger(NAME)


class _DefaultHandler(logging.Handler):
    """Prints records to stderr, as long as no other handler gets them.

    It looks at each record, since a program may configure its logging at any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs_own_role = False
        """Whether no owner of a job in this process prints what a role here logs."""
        self.setFormatter(logging.Formatter(f"%(levelname)s:{NAME}:%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record."""
        if self._others_get(record) or record.levelno < level_without_forwarding(record.name):
            return
        try:
            sys.stderr.write(f"{self.format(record)}\n")  # not kept: a program may replace it
            sys.stderr.flush()
        except Exception:  # as every handler: logging must not fail
            self.handleError(record)

    def _others_get(self, record: logging.LogRecord) -> bool:
        current: logging.Logger | None = logging.getLogger(record.name)
        while current is not None:
            if any(self._gives_way_to(handler, record) for handler in current.handlers):
                return True
            current = current.parent if current.propagate else None
        return False

    def _gives_way_to(self, handler: logging.Handler, record: logging.LogRecord) -> bool:
        if handler is logging.lastResort:  # it is among those of the root logger while a role runs in its own process
            return record.levelno >= handler.level
        if forwards_records(handler):
            return not self.runs_own_role and makes_events()
        return handler is not self


_handler = _DefaultHandler()


def print_unless_configured(*, runs_own_role: bool = False) -> None:
    """Print the log of psflow to stderr from now on, unless the program configures handlers. Idempotent.

    A process that runs its own role also prints what that role logs; elsewhere the owner of the job prints it.
    """
    _handler.runs_own_role |= runs_own_role
    logger.addHandler(_handler)


def log_event(event: Event) -> None:
    """Log an event: the output of a job without a flow, in the process that owns all roles.

    Lines of workers and ps begin with their role; those of the chief and the evaluator speak for the job.
    """
    if isinstance(event, LogMessage):
        logger.log(event.level, "%s: %s: %s", event.role, event.logger, event.message)
        return
    speaks_for_job = event.role.partition("-")[0] in (Role.CHIEF, Role.EVALUATOR)
    level, sentences = sentences_of(event)
    for sentence in sentences:
        if (speaks_for_job and level == logging.INFO) or not event.role:
            logger.log(level, "%s", sentence)
        else:
            logger.log(level, "%s: %s", event.role, sentence)


def log_own_event(event: Event) -> None:
    """Log an event of a role in its own process, where its log messages are anyway."""
    if not isinstance(event, LogMessage):
        level, sentences = sentences_of(event)
        for sentence in sentences:
            logger.log(level, "%s", sentence)


def log_restoring(path: str) -> None:
    """Log, in a process without a job, that it reads a checkpoint."""
    print_unless_configured()
    logger.info("%s", _restoring(path))


def log_evaluation(step: int, metrics: Mapping[str, object], name: str | None) -> None:
    """Log the results of an evaluation in this process."""
    for sentence in _of_evaluation(step, metrics, name):
        logger.info("%s", sentence)


Sentences = tuple[int, tuple[str, ...]]
"""The level of an event in the log, and its lines; some have none."""


def sentences_of(event: Event) -> Sentences:
    """Return the lines about an event, as TensorFlow's Estimator words them, without the name of its role."""
    match event:
        case RoleStarted():
            return logging.DEBUG, (f"started on {event.host}",)
        case PsListening():
            address = event.address
            return logging.DEBUG, (f"listens at {address.host}:{address.tcp_port or address.unix_name}",)
        case FirstStep():
            return logging.DEBUG, ("made its first step",)
        case RoleLeaving():
            return logging.DEBUG, ("leaves, because its Dask worker closes",)
        case RoleEnded():
            return logging.DEBUG, ("ended",)
        case Restored():
            again = "Initializing all variables again: no checkpoint was saved"
            return logging.INFO, (again if event.path is None else _restoring(event.path),)
        case TrainingLoss(is_last=True):
            return logging.INFO, (f"Loss for final step: {event.loss:.6g}.",)
        case TrainingLoss():
            return logging.INFO, (f"loss = {event.loss:.6g}, step = {event.step}",)
        case Metrics():
            return logging.INFO, _of_metrics(event)
        case Checkpoint():
            return logging.INFO, (f"Saving checkpoints for {event.step} into {event.path}.",)
        case Evaluation():
            return logging.INFO, _of_evaluation(event.step, event.metrics, event.name)
        case Export():
            return logging.INFO, (f"SavedModel written to: {event.path}",)
        case LogMessage():
            return event.level, (event.message,)
        case RoleLost():
            also = "all roles roll back to the last checkpoint" if event.rolls_back else "no step is lost"
            return logging.WARNING, (f"was lost and restarts: {event.reason}; {also}",)
        case WorkersMissing(num_missing=0):
            return logging.INFO, (f"all {event.num_workers} workers have a slot",)
        case WorkersMissing():
            return logging.WARNING, (f"{event.num_missing} of {event.num_workers} workers wait for a free slot",)
        case SummaryFile():
            return logging.DEBUG, ()
        case _:
            assert_never(event)


def _of_metrics(event: Metrics) -> tuple[str, ...]:
    """Return the line of a StepCounterHook; no line for summaries, and for the load of a role."""
    own = f"role/{event.role}/"
    values = {name.removeprefix(own): value for name, value in event.values.items()}
    if not {"loss", "steps_per_sec"} <= values.keys():
        return ()
    return (f"loss = {values['loss']:.6g}, step = {event.step}, global_step/sec: {values['steps_per_sec']:.6g}",)


def _restoring(path: str) -> str:
    return f"Restoring parameters from {path}"


def _of_evaluation(step: int, metrics: Mapping[str, object], name: str | None) -> tuple[str, ...]:
    of = f" of {name}" if name else ""
    shown = ", ".join(f"{key} = {_shown(metrics[key])}" for key in sorted(metrics.keys() - {"global_step"}))
    return (f"Finished evaluation at step {step}", f"Saving dict for global step {step}{of}: {shown}")


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
