"""Compares a training with its model_dir: new job, restart or fork, and changed keys."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, assert_never

from psflow.flows.parameters.base import OnResume, declared
from psflow.flows.parameters.configuration import CONFIG, has_config, read_config, resolve
from psflow.flows.parameters.train import SCHEDULED_TIME, TrainParameters, filled
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import Origin, Settings, flat
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import job_seed
from psflow.ps_runtime.estimator.model_dir import Fork, check_location, shortened
from psflow.ps_runtime.redaction import without_secrets

NOT_SET = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A dotted key whose value changed; `origin` is where the new value was set, if anywhere."""

    key: str
    old: Any
    new: Any
    origin: Origin | None = None

    @property
    def alters_the_job(self) -> bool:
        """Whether the change makes it a different job."""
        match declared(TrainParameters, self.key):
            case OnResume.LEARNED:
                return True
            case OnResume.MEASURED:  # unless a whole evaluation is added or removed
                return not (self.key.startswith("evals.") and NOT_SET in (self.old, self.new))
            case OnResume.FREE:
                return False
            case unknown:
                assert_never(unknown)

    def __str__(self) -> str:
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}{origin}"


def changes(old: TrainParameters, new: TrainParameters, settings: Settings) -> list[Change]:
    """Return the keys whose values differ, in the order of `new`; both must be resolved."""
    before, now = (dict(flat(parameters.model_dump(mode="json"))) for parameters in (old, new))
    return [
        Change(key, before.get(key, NOT_SET), now.get(key, NOT_SET), settings.origin(key))
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key)
    ]


def _shown(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    if value is NOT_SET:
        return "not set"
    return words[value] if value is None or isinstance(value, bool) else without_secrets(str(value))


LoggerLike = logging.Logger | logging.LoggerAdapter[logging.Logger]


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The job to train, and its changes since the last start."""

    parameters: TrainParameters
    changes: tuple[Change, ...] = ()
    fork: Fork | None = None
    lost_config: str | None = None


def with_model_dir(parameters: TrainParameters) -> TrainParameters:
    """Return `parameters` with the model_dir of this run, whose scheduled time is now known.

    Notes
    -----
    A run created by Prefect keeps its scheduled time, and so its model_dir, on a retry; any other run starts now.
    """
    if SCHEDULED_TIME not in parameters.model_dir:
        return parameters
    from prefect.runtime import flow_run  # imports all of Prefect

    model_dir = filled(parameters.model_dir, flow_run.scheduled_start_time)
    return parameters.model_copy(update={"model_dir": model_dir})


def plan_start(parameters: TrainParameters, settings: Settings | None = None) -> StartPlan:
    """Compare `parameters` with model_dir; changes nothing.

    Raises
    ------
    UsageError
        If a changed key alters the job, and neither ``resume.allow_changes`` nor ``resume.fork`` is given; or if a fork
        is impossible.
    ConfigError
        If the configuration in model_dir is damaged.
    """
    parameters = with_model_dir(parameters)
    model_dir, resume = parameters.model_dir, parameters.resume
    check_location(model_dir)
    fork = None
    asked = resolve(parameters, job_seed(model_dir, parameters.seed))
    if resume.fork is not None:
        check_location(resume.fork)
        fork = Fork(asked.model_dir, resume.fork)
        asked = resolve(asked.model_copy(update={"model_dir": resume.fork}))
        model_dir = resume.fork if fork.is_begun else model_dir
    found = _changes_since(model_dir, asked, settings or Settings())
    is_free = resume.allow_changes or (fork is not None and not fork.is_begun)
    refused = [change for change in found if change.alters_the_job and not is_free]
    if refused:
        raise UsageError((_refusal(model_dir), *(f"  {line}" for line in shortened([str(one) for one in refused]))))
    return StartPlan(asked, tuple(found), fork, _lost_config(model_dir))


def log_changes(start: StartPlan, logger: LoggerLike) -> None:
    """Log the changes, a line for each key."""
    if start.fork is not None and not start.fork.is_begun:
        logger.info("forking the job of %s into %s", start.fork.parent_dir, start.fork.model_dir)
    if start.lost_config is not None:
        logger.warning("%s", start.lost_config)
    for change in start.changes:
        logger.info("changed since the last start: %s", change)


def _changes_since(model_dir: str, asked: TrainParameters, settings: Settings) -> list[Change]:
    """Return the changes since the last start in `model_dir`; none without a checkpoint."""
    if not has_config(model_dir) or CheckpointStore(model_dir).latest() is None:
        return []
    return changes(read_config(model_dir), asked, settings)


def _lost_config(model_dir: str) -> str | None:
    if has_config(model_dir) or CheckpointStore(model_dir).latest() is None:
        return None
    return (
        f"{model_dir} has checkpoints, but no {CONFIG}: it was removed, or a Python program trained there; changed "
        "keys cannot be found; restore the file to compare them, as a training writes a new one"
    )


def _refusal(model_dir: str) -> str:
    return (
        f"{model_dir} was trained with other values of keys that alter what the job learns or measures; "
        "restore the old values, start a new job from its latest checkpoint (--fork DIR, resume.fork), allow the "
        "changes (--allow-changes, resume.allow_changes), or choose another model_dir:"
    )
