"""What flows say of themselves at their end, as people read it in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psflow.flows.watching.progress import shown_metrics
from psflow.flows.watching.summary import shown

__all__ = ["gone", "shown_dry_run", "shown_evaluations", "shown_export", "shown_pipeline", "shown_predictions"]

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
    """Say which better checkpoints cannot be exported any more."""
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
            else "no files have arrived since the last run",
            "rejected": f"{facts['rejects']} rows that could not be read or predicted, see _rejects in the output"
            if facts["rejects"]
            else None,
            "not finite": f"{non_finite['rows']} of these rows have a blank, NaN or infinite cell, in "
            f"{', '.join(non_finite['columns'])}"
            if non_finite["rows"]
            else None,
            "invalid": f"{invalid['rows']} of these rows have an invalid cell, which was made blank, in "
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
                "invalid": "cells that are not of the type of their column are made blank"
                if one["invalid"] == "missing"
                else None,
            }
        )
    return lines or ["no files have arrived since the last run"]


def shown_pipeline(facts: Facts) -> list[str]:
    """Return the lines of ``psflow pipeline``: those of each stage below its name."""
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
