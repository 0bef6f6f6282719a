"""Answers ``psflow status``, ``scale`` and ``diff``: servers, running jobs and their workers, two runs compared."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psflow.flows.inspect.endpoints import prefect_endpoint, recorded_runs
from psflow.flows.output import Answer
from psflow.flows.reporting.role_figures import RoleFigures, role_figures, stragglers
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError, UsageError
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.run_config import absolute, is_local
from psflow.tasks.cleaning import found_model_dirs
from psflow.tasks.orphaned_runs import NOT_RECORDED
from psflow.tasks.owners import ended_step, is_orphaned
from psflow.tasks.schema_revisions import holds_database
from psflow.tasks.tracking.child_run import RunningRun
from psflow.tasks.tracking.comparing import RunFacts, differences, find_run, run_facts
from psflow.tasks.tracking.store import mlflow_client, prepare_store, sqlite_path, store_uri

COLUMNS: Mapping[str, tuple[str, float]] = {
    "steps/s": ("steps_per_sec", 1),
    "staleness": ("staleness", 1),
    "pull ms (95%)": ("pull_p95_ms", 1),
    "push ms (95%)": ("push_p95_ms", 1),
    "sent MB/s": ("sent_bytes_per_sec", 1e6),
    "received MB/s": ("received_bytes_per_sec", 1e6),
    "processor %": ("cpu_percent", 1),
    "memory MB": ("rss_mb", 1),
}


@dataclass(frozen=True)
class RunningJob:
    """A run with the figures of its roles, and remarks on them."""

    run: RunningRun
    roles: Sequence[RoleFigures]
    remarks: Sequence[str]


def status(job: str | None = None) -> Answer:
    """Return the servers in use, and the progress of one job, or of all in the MLflow store; changes nothing.

    If MLflow does not answer, the local model_dirs show which jobs run. Raises UsageError if there is no such job.
    """
    only = None if job is None else shown_path(_model_dir(job))
    prefect = prefect_endpoint()
    mlflow, runs = recorded_runs()
    servers = {"prefect": prefect, "mlflow": mlflow}
    now = time.time()
    runs = [run for run in runs if only is None or _place(run.tags["psflow.model_dir"]) == _place(only)]
    jobs = [_job(run, now) for run in runs]
    if only is None:
        directories, known = [*map(os.path.abspath, found_model_dirs())], {run.tags["psflow.model_dir"] for run in runs}
    else:
        directories = [only]
        known = {only} if runs else set()
    unlisted, damaged = _owned(directories, known)
    starting, owned = (unlisted, []) if mlflow.fault is None else ([], unlisted)
    checkpoints = {model_dir: _last_checkpoint(model_dir, damaged) for model_dir in owned}
    lines = [f"{name:<9} {endpoint.fault or endpoint}" for name, endpoint in servers.items()]
    for running in jobs:
        lines += ["", *_lines(running, now)]
    lines += [line for model_dir in starting for line in ("", f"train     in {model_dir}, starting")]
    for model_dir, step in checkpoints.items():
        how_far = "MLflow does not report its progress" if step is None else f"its last checkpoint is of step {step}"
        lines += ["", f"train     in {model_dir}, running; {how_far}"]
    lines += [line for fault in damaged for line in ("", fault)]
    if mlflow.fault is not None:
        lines += ["", f"cannot list {'other ' if owned else ''}running jobs: MLflow does not answer"]
    elif not jobs and not starting:
        lines += ["", "no job is running" + (f" in {only}" if only is not None else "")]
    return Answer(
        {
            "servers": {name: endpoint.facts() for name, endpoint in servers.items()},
            "jobs": [_facts(running, now) for running in jobs],
            "starting": starting,
            "owned": [{"model_dir": model_dir, "last_checkpoint": step} for model_dir, step in checkpoints.items()],
            "damaged": damaged,
        },
        lines,
    )


def scale(job: str, workers: int) -> Answer:
    """Have a running job train with so many workers, and return how many it may have.

    Raises UsageError if there is no such job, or if it cannot have so many workers.
    """
    model_dir = _model_dir(job)
    limits = JobFile(model_dir).want_workers(workers).facts["workers"]
    least, most = limits["least"], limits["most"]
    facts = {"model_dir": model_dir, "workers": workers, "min_workers": least, "max_workers": most}
    what = f"is to have {workers} workers ({least} to {most}); it follows within seconds"
    return Answer(facts, [f"the job in {shown_path(model_dir)} {what}"])


def _model_dir(job: str) -> str:
    """Return the model_dir of a job that is given as that, or as its MLflow run; UsageError if there is no such run."""
    if not is_local(job) or os.path.isdir(absolute(job)):
        return absolute(job)
    path = sqlite_path(store_uri())
    if path is not None and not holds_database("mlflow", path):  # and none is created to find that out
        raise UsageError((f"there is no model_dir {job!r}, and no MLflow run of that name: {path} does not exist yet",))
    run = find_run(mlflow_client(prepare_store()), job)
    if "psflow.model_dir" not in run.data.tags:
        raise UsageError((f"the run {run.info.run_name} ({run.info.run_id}) is not one of a training by psflow",))
    return str(run.data.tags["psflow.model_dir"])


def _place(model_dir: str) -> str:
    """Return the one name of a model_dir that has several: by links, or with a slash at its end."""
    return os.path.realpath(absolute(model_dir)) if is_local(model_dir) else model_dir.rstrip("/")


def _job(run: RunningRun, now: float) -> RunningJob:
    roles = role_figures({key: (figure.value, figure.at) for key, figure in run.figures.items()}, run.tags, now)
    if is_orphaned(run.tags):
        step = ended_step(run.tags)
        gone = "its process has ended; the command that started it resumes it"
        return RunningJob(run, roles, [gone if step is None else NOT_RECORDED.format(step)])
    return RunningJob(run, roles, stragglers(roles))


def _owned(directories: Iterable[str], known: set[str]) -> tuple[list[str], list[str]]:
    """Return the model_dirs among `directories` whose job has an owner and is not `known`; and the damaged ones."""
    owned, damaged = [], []
    for directory in directories:
        try:
            if JobFile(directory).refusal() is not None and directory not in known:
                owned.append(directory)
        except CheckpointError as error:
            damaged.append(str(error))
        except OSError:
            continue  # removed, or of another user
    return owned, damaged


def _last_checkpoint(model_dir: str, damaged: list[str]) -> int | None:
    """Return the step of the last checkpoint; None without one, or if one is damaged (added to `damaged`)."""
    try:
        return CheckpointStore(model_dir).latest()
    except CheckpointError as error:
        damaged.append(str(error))
    except OSError:
        pass  # removed, or of another user
    return None


def _facts(job: RunningJob, now: float) -> dict[str, Any]:
    run = job.run
    return {
        "run_id": run.run_id,
        "name": run.name,
        "kind": run.kind,
        "model_dir": run.tags["psflow.model_dir"],
        "running_secs": round(now - run.started_at, 1),
        "progress": run.tags.get("psflow.progress"),
        "roles": [
            {"role": role.role, "host": role.host, **role.values, "age_secs": round(role.age_secs, 1)}
            for role in job.roles
        ],
        "stragglers": list(job.remarks),
    }


def _lines(job: RunningJob, now: float) -> list[str]:
    run = job.run
    since = datetime.fromtimestamp(run.started_at).strftime("%Y-%m-%d %H:%M:%S")
    lines = [
        f"{run.kind:<9} {run.name} ({run.run_id}) in {run.tags['psflow.model_dir']}",
        f"          since {since}, for {timedelta(seconds=round(now - run.started_at))}",
    ]
    if "psflow.progress" in run.tags:
        lines.append(f"          {run.tags['psflow.progress']}")
    if job.roles:
        lines.append(" ".join(["  role       ", *(f"{title:>13}" for title in COLUMNS), " reported  host"]))
    for role in job.roles:
        values = [_shown(role.values.get(name), unit) for name, unit in COLUMNS.values()]
        shown = [
            f"  {role.role:<11}",
            *(f"{value:>13}" for value in values),
            f"{role.age_secs:6.0f} s ",
            role.host or "-",
        ]
        lines.append(" ".join(shown))
    return [*lines, *(f"  ! {remark}" for remark in job.remarks)]


def _shown(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:.4g}"


def diff(first: str, second: str, *, shows_all: bool = False) -> Answer:
    """Compare parameters, data sets, code and final metrics of two runs in the MLflow store.

    Raises UsageError if one of them names no run, or several.
    """
    client = mlflow_client(prepare_store())
    left, right = (run_facts(find_run(client, text), of_the_machine=shows_all) for text in (first, second))
    found = differences(left, right)
    lines = [f"{mark} {run.name} ({run.run_id}), {run.status}" for mark, run in (("-", left), ("+", right))]
    for topic, values in found.items():
        lines += [
            "",
            topic,
            *(f"  {name:<34} {a or 'none'} -> {b or 'none'}" for name, (a, b) in values.items()),
        ] * bool(values)
    if not any(found.values()):
        lines += ["", "no difference"]
    return Answer({"runs": [_difference(left), _difference(right)], "differences": found}, lines)


def _difference(run: RunFacts) -> dict[str, str]:
    return {"run_id": run.run_id, "name": run.name, "status": run.status}
