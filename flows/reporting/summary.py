"""Summary of a flow: plain data, and lines for the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psflow.flows.reporting.progress import shown_metrics
from psflow.ps_runtime.checkpoint.records import EvaluationLog, measured
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.invalid_cells import InvalidCells
from psflow.ps_runtime.data.non_finite import NonFiniteCells
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.tasks.exports.exported import best_record
from psflow.tasks.owners import TO_COMPLETE
from psflow.tasks.tracking.models import BestModel

Reports = Mapping[str, Mapping[str, Any]]
ROLE_KEYS = ("exit", "rss_mb", "transport")


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job."""

    job: JobSpec
    reports: Reports
    run_id: str
    best: BestModel | None
    first_step_at: float | None
    mlflow_page: str | None = None
    prefect_page: str | None = None
    is_tracked: bool = True
    num_lost: int = 0
    non_finite: Mapping[str, NonFiniteCells] = field(default_factory=dict)
    invalid: Mapping[str, InvalidCells] = field(default_factory=dict)


def summarize(outcome: Outcome, wall_secs: float) -> dict[str, Any]:
    """Return the answer of ``psflow train``; `wall_secs` is the time so far.

    ``train`` covers the attempt, lost roles included; ``input`` and the final step cover all attempts of the job;
    ``roles`` covers the last incarnation of each role.
    """
    job, reports = outcome.job, outcome.reports
    started_at = time.time() - wall_secs
    first_step = None if outcome.first_step_at is None else round(outcome.first_step_at - started_at, 3)
    chief = reports["chief-0"]["statistics"]
    name = job.eval_specs[0].name or "" if job.eval_specs else ""
    return {
        "run_id": outcome.run_id,
        "job_id": job.job_id,
        "model_dir": job.model_dir,
        "final_step": chief["job"]["global_step"],
        "max_steps": job.train_spec.max_steps,
        "stop_reason": chief["job"]["stop_reason"] or chief["job"]["input_end"],
        "checkpoints": CheckpointStore(job.model_dir).steps(),
        "evaluated_steps": sorted(EvaluationLog(job.model_dir).evaluated(name)),
        "best": _best(job, outcome.best),
        "input": {key: chief["job"][key] for key in ("examples", "epochs_completed", "repeats", "misses")},
        "non_finite": {
            name: {"rows": cells.num_rows, "dropped": cells.is_dropped}
            for name, cells in outcome.non_finite.items()
            if cells.num_rows
        },
        "invalid": {
            name: {"rows": cells.num_rows, "policy": cells.policy}
            for name, cells in outcome.invalid.items()
            if cells.num_rows
        },
        "train": chief["train"],
        "roles": {role: _of_role(report) for role, report in reports.items()},
        "mlflow": {"complete": outcome.is_tracked, "lost": outcome.num_lost},
        "pages": {"mlflow": outcome.mlflow_page, "prefect": outcome.prefect_page},
        "wall_secs": {"total": round(wall_secs, 3), "to_first_step": first_step},
    }


def shown(summary: Mapping[str, Any]) -> list[str]:
    """Return the lines of a summary for the terminal."""
    best, pages, secs = summary["best"], summary["pages"], summary["wall_secs"]
    max_steps, first_step = summary["max_steps"], secs["to_first_step"]
    lacks = f"{summary['mlflow']['lost']} events" if summary["mlflow"]["lost"] else "how the run ended"
    lacks += f"; {TO_COMPLETE}"
    lines = {
        "trained": f"to step {summary['final_step']}{'' if max_steps is None else f' of {max_steps}'}, "
        f"{secs['total']:.1f} s{'' if first_step is None else f', the first step after {first_step:.1f} s'}",
        "stopped": summary["stop_reason"],
        "best": None if best is None else f"step {best['step']}: {shown_metrics(measured(best['metrics']))}",
        "model": None if best is None else best["model_uri"] or best["export_path"],
        "not finite": "; ".join(
            f"{name}: {cells['rows']} rows {'left out' if cells['dropped'] else 'kept'}"
            for name, cells in summary["non_finite"].items()
        )
        or None,
        "invalid": "; ".join(
            f"{name}: {cells['rows']} rows {'left out' if cells['policy'] == 'drop' else 'with missing values'}"
            for name, cells in summary["invalid"].items()
        )
        or None,
        "model_dir": summary["model_dir"],
        "MLflow run": pages["mlflow"] or summary["run_id"],
        "Prefect run": pages["prefect"],
        "MLflow lacks": None if summary["mlflow"]["complete"] else lacks,
    }
    return [f"{what:<12} {text}" for what, text in lines.items() if text is not None]


def _of_role(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of the last incarnation of a role; for a replica with latencies of pulls and pushes."""
    facts = {key: report[key] for key in ROLE_KEYS}
    statistics = report["statistics"]
    return facts | {"latency": statistics["latency"]} if "latency" in statistics else facts


def _best(job: JobSpec, registered: BestModel | None) -> dict[str, Any] | None:
    record = best_record(job.model_dir)
    if record is None:
        return None
    return {
        "step": record.step,
        "metrics": dict(record.metrics),
        "export_path": record.path,
        "model_uri": None if registered is None else registered.model_uri,
    }


Facts = Mapping[str, Any]


def shown_evaluations(facts: Facts) -> list[str]:
    """Return the lines of ``psflow evaluate``."""
    lines = [f"step {row['step']:<8} {row['eval']:<12} {shown_metrics(row['metrics'])}" for row in facts["results"]]
    lines.append(f"{facts['num_evaluated']} evaluated, {facts['num_known']} already in the record")
    if facts["run_id"] is not None:
        lines.append(f"MLflow run {facts['run_id']}")
    return lines


def shown_export(facts: Facts) -> list[str]:
    """Return the lines of ``psflow export``."""
    return _named(
        {
            "exported": f"step {facts['step']}: {shown_metrics(facts['metrics'])}"
            + ("" if facts["is_new"] else " (it existed already)"),
            "model": facts["model_uri"] + (f", alias {facts['alias']}" if facts["alias"] else ""),
            "path": facts["path"],
            "MLflow run": facts["run_id"],
            "better": gone(facts["passed_over"]) if facts["passed_over"] else None,
        }
    )


def gone(passed_over: Sequence[int]) -> str:
    """Name better checkpoints that can no longer be exported."""
    steps = ", ".join(map(str, passed_over))
    if len(passed_over) == 1:
        return f"step {steps} was better, but its checkpoint and export no longer exist"
    return f"steps {steps} were better, but their checkpoints and exports no longer exist"


def shown_predictions(facts: Facts) -> list[str]:
    """Return the lines of ``psflow predict``."""
    version, non_finite, invalid = facts["model_version"], facts["non_finite"], facts["invalid"]
    return _named(
        {
            "predicted": f"{facts['rows']} rows in {facts['parts']} part{'' if facts['parts'] == 1 else 's'}"
            if facts["folders"]
            else "no new files since the last run",
            "rejected": f"{facts['rejects']} rows that could not be read or predicted, see _rejects in the output"
            if facts["rejects"]
            else None,
            "not finite": f"{non_finite['rows']} of these rows have a missing, NaN or infinite cell, in "
            f"{', '.join(non_finite['columns'])}"
            if non_finite["rows"]
            else None,
            "invalid": f"{invalid['rows']} of these rows have an invalid cell, read as missing, in "
            f"{', '.join(invalid['columns'])}"
            if invalid["rows"]
            else None,
            "model": f"{facts['model_uri']}{'' if version is None else f', version {version}'}, "
            f"of step {facts['global_step']}",
            "output": facts["output"],
        }
    )


def shown_dry_run(facts: Facts) -> list[str]:
    """Return the lines of ``psflow predict --dry-run``."""
    lines: list[str] = []
    for one in facts["predictions"]:
        files = f"{one['files']:,} file{'' if one['files'] == 1 else 's'}"
        lines += _named(
            {
                "input": f"{one['rows']:,} rows of {files}, {one['bytes'] / 2**20:,.1f} MiB",
                "partitions": f"{one['parts']:,}, of which {one['finished_parts']:,} are done",
                "model": one["model_uri"],
                "output": one["output"],
                "columns": ", ".join(f"{name}: {kind}" for name, kind in one["columns"].items()),
                "ignored": ", ".join(one["unused"]) or None,
                "invalid": "cells that are not of the type of their column become missing values"
                if one["invalid"] == "missing"
                else None,
            }
        )
    return lines or ["no new files since the last run"]


def shown_pipeline(facts: Facts) -> list[str]:
    """Return the lines of ``psflow pipeline``, each stage under its name."""
    lines = []
    for stage, lines_of in STAGES.items():
        if stage in facts:
            lines += [stage, *(f"  {line}" for line in lines_of(facts[stage]))]
    return [*lines, f"{facts['wall_secs']:.1f} s in all"]


def _shown_training(facts: Facts) -> list[str]:
    if "was_done" in facts:
        return _named({"trained": f"to step {facts['final_step']} already", "model_dir": facts["model_dir"]})
    return shown(facts)


STAGES: dict[str, Callable[[Facts], list[str]]] = {
    "train": _shown_training,
    "evaluate": shown_evaluations,
    "export": shown_export,
    "predict": shown_predictions,
}


def _named(lines: Mapping[str, str | None]) -> list[str]:
    return [f"{what:<12} {text}" for what, text in lines.items() if text is not None]
