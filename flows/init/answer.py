"""Answers ``psflow init``: writes a first configuration for tabular files, and lists the next commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from psflow.flows.init.columns import Use
from psflow.flows.init.draft import Draft, draft, draft_text
from psflow.flows.init.sample import read_sample
from psflow.flows.output import Answer
from psflow.flows.parameters.configuration import text_keys
from psflow.flows.parameters.input import MODELS
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import CellError, InputError, UsageError
from psflow.ps_runtime.redaction import shown_path

MAX_SHOWN = 10
"""Limit of lines about excluded data."""


def init(
    path: str,
    label: str,
    overrides: Sequence[str] = (),
    *,
    output: str | None,
    model: str | None,
    format_name: str | None,
    overwrites: bool,
) -> Answer:
    """Write a first configuration.

    Raises UsageError if the files cannot be read, nothing can be learned from them, or the output exists.
    """
    experiment = _experiment(path)
    target = Path(f"{experiment}.yaml" if output is None else output)
    if target.is_dir():
        raise UsageError((f"--output is {target}, a folder; name a file, such as {target / f'{experiment}.yaml'}",))
    if target.exists() and not overwrites:
        raise UsageError((f"{target} exists; name another file with --output, or replace it with --force",))
    how = load([], overrides, text_keys(*MODELS.values()))
    made = draft(read_sample(path, format_name, label, how), label, model, experiment)
    _check_learnable(made)
    _write(target, draft_text(made), overwrites=overwrites)
    following = [
        f"psflow plan {target}",
        f"psflow train {target}",
        f"psflow predict --model models:/psflow-{experiment}@best --input NEW --output predictions",
    ]
    features = made.of(Use.FEATURE)
    what = f"{made.model}, which predicts {label!r} from {len(features)} of {len(made.columns)} columns"
    left_out = [f"leaves out records: column {column.name!r}: {column}" for column in made.invalid]
    left_out += [f"leaves out column {guess.name!r}: {guess.comment}" for guess in made.of(Use.LEFT_OUT)]
    if len(left_out) > MAX_SHOWN:
        left_out[MAX_SHOWN:] = [f"leaves out {len(left_out) - MAX_SHOWN} more, see its comments"]
    lines = [f"wrote {target}: a {what}", *left_out]
    lines += ["check its comments, then run", *(f"  {line}" for line in following)]
    return Answer(_facts(made, str(target), following), lines)


def _experiment(path: str) -> str:
    """Return a name for an experiment on some files.

    Examples
    --------
    >>> _experiment("data/census.2026.csv"), _experiment("s3://bucket/days/*/*.parquet"), _experiment("my people/")
    ('census-2026', 'days', 'my-people')
    """
    fixed = re.split(r"[*?\[{]", path, maxsplit=1)[0]
    if fixed != path:  # a glob: the folder above all matches
        fixed = os.path.dirname(fixed)
    stem = os.path.splitext(os.path.basename(os.path.abspath(fixed)))[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "records"


def _check_learnable(made: Draft) -> None:
    """Fit the preprocessing to the sample, as training will to all records; InputError if that fails."""
    label = LabelOptions(made.label.column, **made.label.options)
    options = {guess.name: ColumnOptions(**guess.options) for guess in made.of(Use.FEATURE) if guess.options}
    used = {made.label.column, *(guess.name for guess in made.of(Use.FEATURE))}
    columns = [column for column in made.sample.columns if column.name in used]
    table = made.sample.table.select([column.name for column in columns])
    try:
        learner = Learner(columns, options, {}, 0, label=label)
        learner.update(table.combine_chunks())
        learner.finish()
    except CellError as error:
        where = f"{shown_path(made.sample.path)}: column {error.column!r}, {made.sample.place(error.row)}"
        raise InputError((f"{where}: {error.reason}",)) from None


def _write(target: Path, text: str, *, overwrites: bool) -> None:
    """Write a file atomically; replace an existing one only if `overwrites`."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        if overwrites:
            beside.replace(target)
        else:
            os.link(beside, target)
    except FileExistsError:
        raise UsageError((f"{target} exists; name another file with --output",)) from None
    except OSError as error:
        raise UsageError((f"cannot write {target}: {error.strerror}",)) from None
    finally:
        beside.unlink(missing_ok=True)


def _facts(made: Draft, output: str, following: list[str]) -> Mapping[str, Any]:
    sample = made.sample
    return {
        "output": output,
        "experiment": made.experiment,
        "format": sample.format_name,
        "records": sample.num_records,
        "records_read": sample.table.num_rows,
        "invalid": [asdict(column) for column in made.invalid],
        "model": {"name": made.model, "reason": made.reason},
        "label": {"column": made.label.column, "comment": made.label.comment, **made.label.options},
        "columns": {
            guess.name: {"use": guess.use.value, "options": guess.options, "comment": guess.comment}
            for guess in made.columns
        },
        "next": following,
    }
