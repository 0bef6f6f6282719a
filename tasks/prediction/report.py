"""Report of a prediction as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.plan import PredictionPlan
from psflow.tasks.prediction.progress import shown_secs
from psflow.tasks.tracking.store import link

PREVIEW_ROWS = 10
PREVIEW_COLUMNS = 12
CELL_CHARACTERS = 40


def report(plan: PredictionPlan, parts: Sequence[PartFacts], num_now: int, secs: float) -> str:
    """Return counts, rate, lineage and the first rows of an output as markdown."""
    facts, model = plan.facts(), plan.model
    rows, rejects = sum(part.rows for part in parts), sum(part.rejects for part in parts)
    version = "" if model.version is None else f", version {model.version}"
    lines = {
        "rows": f"{rows:,}",
        "rejects": f"{rejects:,}" + (" (see `_rejects`)" if rejects else ""),
        "parts": f"{len(parts):,}, {sum(part.num_bytes for part in parts) / 2**20:,.1f} MiB",
        "this run": f"{num_now:,} rows in {shown_secs(secs)}, {num_now / max(secs, 1e-9):,.0f} rows/s",
        "output": f"`{plan.folder.shown}`",
        "input": f"`{plan.source}`, {facts['files']:,} files, fingerprint `{plan.rows.digest()[:16]}`",
        "model": f"{link(model.uri, model.page)}{version}, step {model.global_step:,}, uuid `{model.uuid}`",
    }
    table = _table(["what", "value"], [[what, value] for what, value in lines.items()])
    preview = plan.folder.preview(parts, PREVIEW_ROWS)
    if preview is None:
        return table
    names = preview.column_names[:PREVIEW_COLUMNS]
    shown = ([_cell(row[name]) for name in names] for row in preview.to_pylist())
    return f"{table}\n\nThe first rows:\n\n{_table(names, shown)}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    """Return a value as a short cell of a markdown table."""
    if isinstance(value, list):
        text = "[" + ", ".join(_cell(item) for item in value) + "]"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= CELL_CHARACTERS else f"{text[:CELL_CHARACTERS]}..."
