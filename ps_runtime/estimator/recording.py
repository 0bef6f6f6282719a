"""Records what a program trains and evaluates in MLflow: starts the process that writes, and sends it the events."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import measured
from psflow.ps_runtime.errors import InterruptedLoopError, PsflowError, UsageError
from psflow.ps_runtime.estimator.attempt import CODE_DIGEST, Attempt
from psflow.ps_runtime.estimator.recorder import REMEDY, REMEDY_OF_EVALUATION, Recorder, RecordingRequest, start_writer
from psflow.ps_runtime.redaction import public, without_secrets
from psflow.ps_runtime.roles.events import Evaluation, Event
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.run_config import RunConfig

EXPERIMENT = "psflow"
"""The experiment of `autolog`, unless it names another."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Autolog:
    experiment: str | None
    """None: record no training, not even in an active run."""


_autolog: _Autolog | None = None


def autolog(experiment: str = EXPERIMENT, *, disable: bool = False) -> None:
    """Record each later training and evaluation of this process in the MLflow run of its job, or in the active run.

    The store is that of ``mlflow.set_tracking_uri`` or ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the working
    directory.

    Parameters
    ----------
    experiment : str
        The experiment of new runs; that of a RunConfig takes precedence.
    disable : bool
        Record nothing, not even in an active run, unless the RunConfig has an experiment.

    Raises
    ------
    UsageError
        If `experiment` is empty; an ArgumentTypeError if an argument has the wrong type.

    Notes
    -----
    It applies to calls that begin later. A resumed job continues its run.

    Examples
    --------
    ::

        psflow.autolog(experiment="digits")
        train_and_evaluate(estimator, train_spec, eval_spec)
    """
    global _autolog
    faults = ArgumentFaults("autolog: ")
    if not isinstance(experiment, str):
        faults.add_type("experiment", "a str", experiment)
    elif not experiment:
        faults.add("autolog: experiment should be the name of an MLflow experiment, got ''")
    if not isinstance(disable, bool):
        faults.add_type("disable", "a bool", disable)
    faults.raise_any()
    _autolog = _Autolog(None if disable else experiment)


@dataclass(frozen=True)
class RunPlace:
    """Where a training is recorded: in the run of the caller, or in that of the job in an experiment."""

    uri: str | None
    experiment: str | None = None
    run_id: str | None = None


def requested_run(config: RunConfig) -> RunPlace | None:
    """Return where a training that this thread starts is recorded; None if nothing asks for a record.

    A run is active in one thread alone, so the thread of the caller has to ask. MLflow is not imported for that.
    """
    mlflow: Any = sys.modules.get("mlflow")
    is_disabled = _autolog is not None and _autolog.experiment is None
    if hasattr(mlflow, "active_run") and not is_disabled and (run := mlflow.active_run()) is not None:
        return RunPlace(str(mlflow.get_tracking_uri()), run_id=str(run.info.run_id))
    experiment = config.experiment or (None if _autolog is None else _autolog.experiment)
    if experiment is None:
        return None
    is_set = hasattr(mlflow, "is_tracking_uri_set") and mlflow.is_tracking_uri_set()
    return RunPlace(str(mlflow.get_tracking_uri()) if is_set else None, experiment)


@contextmanager
def recorded(
    place: RunPlace | None, attempt: Attempt, on_event: Callable[[Event], None]
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that records each event at `place`, and calls `on_event` with it, within a block.

    The run ends with the block, as FINISHED, FAILED or KILLED, unless it is that of the caller. No failure of the
    record ends the block: it is logged.
    """
    if place is None:
        yield on_event
        return
    try:
        recorder = Recorder(_request(place, attempt), attempt.note_run)
    except OSError as error:
        logger.warning("this training is not recorded in MLflow: no process starts (%s); %s", error, REMEDY)
        yield on_event
        return

    def record(event: Event) -> None:
        recorder.handle(event)
        on_event(event)

    try:
        yield record
        reason = attempt.end_reason()
    except BaseException as error:
        recorder.close("KILLED" if _is_stop(error) else "FAILED", {})
        raise
    recorder.close("FINISHED", {} if reason is None else {"psflow.stop_reason": reason})


def evaluation_record(config: RunConfig, reader: CheckpointReader) -> Callable[[dict[str, float], str | None], None]:
    """Return a function that records the metrics of an evaluation, and its name, in the active run or that of the job.

    No failure of the record reaches the caller: it is logged. The function waits until the metrics are written. A
    run that has ended keeps its status.
    """
    place, manifest, model_dir = requested_run(config), reader.manifest, reader.store.files.url
    if place is None:
        return lambda metrics, name: None

    def record(metrics: dict[str, float], name: str | None) -> None:
        try:
            recorder = Recorder(_request_of_evaluation(place, model_dir), lambda run_id: None)
        except (PsflowError, OSError) as error:
            logger.warning("this evaluation is not recorded in MLflow: %s; %s", error, REMEDY_OF_EVALUATION)
            return
        recorder.handle(
            Evaluation(manifest.step, measured(metrics), manifest.saved_at, name, role="evaluator-0", number=1)
        )
        recorder.close("FINISHED", {})

    with suppress(OSError):  # `record` meets it again
        start_writer()
    return record


def _request_of_evaluation(place: RunPlace, model_dir: str) -> RecordingRequest:
    job = JobFile(model_dir).read()
    run_id = place.run_id or (None if job is None else job.run_id)
    named: dict[str, Any] = {"run_name": "", "is_callers": True}
    if run_id is None:
        if job is None:
            raise UsageError((f"{model_dir} has no job.json, which names the job of the checkpoint",))
        named = {"run_name": _run_name(place, job), "is_callers": False, "tags": _tags(job, model_dir)}
    return RecordingRequest(
        model_dir=model_dir,
        uri=place.uri,
        experiment=place.experiment,
        run_id=run_id,
        catches_up=False,
        source=_source(),
        trains=False,
        **named,
    )


def _is_stop(error: BaseException) -> bool:
    match error:
        case KeyboardInterrupt() | InterruptedLoopError():
            return True
        case SystemExit(code=code):
            return code == 128 + signal.SIGTERM
        case _:
            return False


def _request(place: RunPlace, attempt: Attempt) -> RecordingRequest:
    record = attempt.record
    is_callers = place.run_id is not None
    digest = record.facts[CODE_DIGEST]
    return RecordingRequest(
        model_dir=attempt.model_dir,
        uri=place.uri,
        experiment=place.experiment,
        run_id=place.run_id or record.run_id,
        run_name=_run_name(place, record),
        is_callers=is_callers,
        catches_up=not is_callers or place.run_id == record.run_id,
        source=_source(),
        params=public(_params(attempt)),
        tags={
            **_tags(record, attempt.model_dir),
            "psflow.attempts": str(attempt.number),
            **({} if digest is None else {"psflow.code_digest": digest}),
        },
    )


def _run_name(place: RunPlace, job: JobRecord) -> str:
    return f"{place.experiment}-{job.job_id[:6]}"


def _source() -> str:
    return os.path.abspath(sys.argv[0] if os.path.isfile(sys.argv[0]) else ".")


def _tags(job: JobRecord, model_dir: str) -> dict[str, str]:
    """Return the tags by which the run of a job is found."""
    return {"psflow.job_id": job.job_id, "psflow.kind": "train", "psflow.model_dir": without_secrets(model_dir)}


def _params(attempt: Attempt) -> dict[str, Any]:
    """Return the settings of a job by the names that a flow gives them, and its RunConfig."""
    job = attempt.job()
    elsewhere = {"model_dir", "tf_random_seed", "cluster", "experiment"}
    settings = [each.name for each in fields(job.config) if each.init and each.name not in elsewhere]
    return {
        "model_dir": job.model_dir,
        "seed": job.seed,
        "model": {"params": _plain(job.params)},
        "train": {name: getattr(job.train_spec, name) for name in ("max_steps", "non_finite", "each_worker_reads_all")},
        "cluster": {"ps": job.num_ps, "workers": job.num_workers},
        "config": {name: _setting(getattr(job.config, name)) for name in settings},
    }


def _setting(value: Any) -> Any:
    """Return a setting of a RunConfig as plain data; a consistency or a deadline as it is written in a program."""
    return str(value) if is_dataclass(value) else value


def _plain(value: Any) -> Any:
    """Return a hyper-parameter as plain data; of other objects, such as arrays, only the type."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case _:
            return f"a {type(value).__qualname__}"
