"""How the start of a training relates to its model_dir: a new job, a restart or a fork; which keys changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, assert_never

from prefect.runtime import flow_run

from psflow.flows.parameters.base import OnResume, declared
from psflow.flows.parameters.configuration import CONFIG, has_config, read_config, resolve
from psflow.flows.parameters.train import TrainParameters, filled
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import Origin, Settings, flat
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import job_seed
from psflow.ps_runtime.estimator.model_dir import Fork, check_local, shortened
from psflow.ps_runtime.redaction import without_secrets

NOT_SET = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One key, by its dotted name, that had another value; `origin` says where the new one was set, if anywhere."""

    key: str
    old: Any
    new: Any
    origin: Origin | None = None

    @property
    def alters_the_job(self) -> bool:
        """Whether the job with it is another one."""
        match declared(TrainParameters, self.key):
            case OnResume.LEARNED:
                return True
            case OnResume.MEASURED:  # unless a whole evaluation comes or goes
                return not (self.key.startswith("evals.") and NOT_SET in (self.old, self.new))
            case OnResume.FREE:
                return False
            case unknown:
                assert_never(unknown)

    def __str__(self) -> str:
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}{origin}"


def changes(old: TrainParameters, new: TrainParameters, settings: Settings) -> list[Change]:
    """Return the keys whose value differs, in the order of `new`; both are resolved."""
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
class Beginning:
    """What will be trained."""

    parameters: TrainParameters
    changes: tuple[Change, ...] = ()
    fork: Fork | None = None
    lost_config: str | None = None


def placed(parameters: TrainParameters) -> TrainParameters:
    """Return `parameters` with the model_dir of this run: the time at which it was to start is known now.

    Notes
    -----
    A run that Prefect has created keeps its time when it is tried again, and so its model_dir; any other starts now.
    """
    model_dir = filled(parameters.model_dir, flow_run.scheduled_start_time)
    return parameters.model_copy(update={"model_dir": model_dir})


def begin(parameters: TrainParameters, settings: Settings | None = None) -> Beginning:
    """Look at what is there; change nothing.

    Raises
    ------
    UsageError
        If a key has changed that alters the job, and neither ``resume.allow_changes`` nor ``resume.fork`` is given;
        or if a fork cannot be.
    ConfigError
        If the configuration that the job left is damaged.
    """
    parameters = placed(parameters)
    model_dir, resume = parameters.model_dir, parameters.resume
    check_local(model_dir)
    fork = None
    asked = resolve(parameters, job_seed(model_dir, parameters.seed))
    if resume.fork is not None:
        check_local(resume.fork)
        fork = Fork(asked.model_dir, resume.fork)
        asked = resolve(asked.model_copy(update={"model_dir": resume.fork}))
        model_dir = resume.fork if fork.is_begun else model_dir
    found = _changes_since(model_dir, asked, settings or Settings())
    is_free = resume.allow_changes or (fork is not None and not fork.is_begun)
    refused = [change for change in found if change.alters_the_job and not is_free]
    if refused:
        raise UsageError((_refusal(model_dir), *(f"  {line}" for line in shortened([str(one) for one in refused]))))
    return Beginning(asked, tuple(found), fork, _lost_config(model_dir))


def tell(beginning: Beginning, logger: LoggerLike) -> None:
    """Say what has changed, a line for each key."""
    if beginning.fork is not None and not beginning.fork.is_begun:
        logger.info("forking the job of %s into %s", beginning.fork.parent_dir, beginning.fork.model_dir)
    if beginning.lost_config is not None:
        logger.warning("%s", beginning.lost_config)
    for change in beginning.changes:
        logger.info("changed since the last start: %s", change)


def _changes_since(model_dir: str, asked: TrainParameters, settings: Settings) -> list[Change]:
    """Return what differs from what was learned in `model_dir` so far; nothing if nothing was."""
    if not has_config(model_dir) or CheckpointStore(model_dir).latest() is None:
        return []
    return changes(read_config(model_dir), asked, settings)


def _lost_config(model_dir: str) -> str | None:
    if has_config(model_dir) or CheckpointStore(model_dir).latest() is None:
        return None
    return (
        f"{model_dir} has checkpoints, but no {CONFIG}, as it was removed, or a Python program trained there: which "
        "keys have changed is not known; put the file back to have them compared, as a training writes a new one"
    )


def _refusal(model_dir: str) -> str:
    return (
        f"{model_dir} was trained with other values of keys that alter what it learns or measures; restore the "
        "old values, start a new job from its latest checkpoint (--fork DIR, resume.fork), allow the changes "
        "(--allow-changes, resume.allow_changes), or choose another model_dir:"
    )
