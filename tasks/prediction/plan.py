"""Plans a prediction before anything is computed or written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from typing import Any

from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.data.record_formats import TabularFiles
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.tasks.prediction.columns import OutputColumns, chosen_predictions
from psflow.tasks.prediction.folder import PredictionFolder
from psflow.tasks.prediction.inputs import PredictionInput, open_rows
from psflow.tasks.prediction.model import ModelInfo
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.partitions import PARTITION_BYTES, Partition
from psflow.tasks.prediction.record_rows import RecordRows
from psflow.tasks.prediction.rows import PredictionRows
from psflow.tasks.prediction.worker import PredictionWork

logger = logging.getLogger(__name__)

PROGRESS_EVERY_SECS = 10.0


class PredictionPlan:
    """A model, a checked input, and the folder for the predictions."""

    def __init__(
        self,
        model: ModelInfo,
        source: PredictionInput,
        rows: PredictionRows,
        options: PredictionOptions,
        folder: PredictionFolder,
    ) -> None:
        self.model, self.source, self.rows, self.folder = model, source, rows, folder
        predictions = chosen_predictions(model.predictions, options.predict_keys)
        self.columns = OutputColumns(rows.keys, predictions, options.output_format, options.escape_formulas)
        self.columns.schema()  # refuses unsupported types before anything is computed
        self.parts: list[Partition] = list(rows.partitions())
        self._options = options

    @cached_property
    def job(self) -> dict[str, Any]:
        """Identity of the prediction in its folder, as JSON values."""
        return {
            "model": self.model.uuid,
            "format": self.source.kind.__name__,
            "input": self.rows.digest(),
            "records": self.rows.num_records,
            "non_finite": self.source.non_finite,
            "invalid": self.source.invalid,
            "key_columns": [key.name for key in self.rows.keys],
            "predict_keys": [prediction.name for prediction in self.columns.predictions],
            "output_format": self.columns.output_format,
            "escape_formulas": self.columns.escape_formulas,
            "partition_bytes": PARTITION_BYTES,
        }

    @property
    def index(self) -> RecordIndex | None:
        """Record index of the input; None for arrays."""
        return self.rows.index if isinstance(self.rows, RecordRows) else None

    @property
    def work(self) -> PredictionWork:
        """Settings for the workers."""
        return PredictionWork(
            self.model.path,
            self.model.uri,
            self.source,
            self.rows.digest(),
            self.folder.url,
            Owner(ProcessId.current(), self.folder.begun(), 0.0),
            self.columns,
            self._options.on_error,
        )

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        files = list(dict.fromkeys(part.file for part in self.parts))
        return {
            "output": self.folder.url,
            "model_uri": self.model.fixed_uri,
            "files": len(files),
            "rows": self.rows.num_records,
            "bytes": sum(part.num_bytes for part in self.parts),
            "parts": len(self.parts),
            "finished_parts": len(self.parts) - len(self.left()),
            "columns": self.columns.described(),
            "unused": list(self.rows.unused),
            "invalid": self.source.invalid,
        }

    def begin(self) -> None:
        """Assign the folder to this prediction; the caller must hold its claim."""
        about = {"model_uri": self.model.fixed_uri, "began": datetime.now(UTC).isoformat(timespec="seconds")}
        self.folder.begin(self.job, self.index, about)

    def left(self) -> list[Partition]:
        """Return the partitions without a finished part."""
        finished = self.folder.finished(self.parts)
        return [part for part in self.parts if part.index not in finished]

    def complete(self) -> list[PartFacts]:
        """Verify the folder, and write its manifest and success mark."""
        files = [] if self.index is None else [[file.shown, file.size, file.stamp] for file in self.index.files]
        about = {
            "psflow": metadata.version("psflow"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": {
                "uri": self.model.uri,
                "version": self.model.version,
                "uuid": self.model.uuid,
                "global_step": self.model.global_step,
            },
            "input": {
                "location": str(self.source),
                "fingerprint": self.rows.digest(),
                "records": self.rows.num_records,
                "files": files,
            },
            "output": {
                "format": self.columns.output_format,
                "columns": self.columns.described(),
            },
        }
        return self.folder.complete(self.parts, about)


def plan_prediction(
    model: ModelInfo,
    source: PredictionInput,
    options: PredictionOptions,
    output: str,
    files: Sequence[DataFile] | None = None,
) -> PredictionPlan:
    """Check the input and the output; changes nothing.

    Raises UsageError if the model has no such prediction, the input is unreadable or lacks a column, or the output has
    other content.
    """
    check_apart(source, output)
    chosen_predictions(model.predictions, options.predict_keys)  # checked before the input is counted
    folder = PredictionFolder(output)
    # all cells of arrays are known before the start, and those that would stop it refuse the input
    read = replace(source, non_finite="keep") if options.on_error == "reject" else source
    rows = _known_rows(folder, model, source) or open_rows(read, model.schema, _CountingLog(str(source)), files)
    plan = PredictionPlan(model, source, rows, options, folder)
    folder.check(plan.job)
    return plan


def check_apart(source: PredictionInput, output: str) -> None:
    """Raise UsageError if the output is inside the input folder: a later run would read predictions as input."""
    within = f"{source.location.rstrip('/')}/"
    if source.kind.reads_a_file() and f"{output.rstrip('/')}/".startswith(within):
        raise UsageError((f"the output {shown_path(output)} is inside the input {source}; choose a folder outside it",))


def _known_rows(folder: PredictionFolder, model: ModelInfo, source: PredictionInput) -> PredictionRows | None:
    """Return the rows that an earlier run counted with this model and these files.

    Raises InputError if one of these files has changed since.
    """
    record, schema = folder.record(), model.schema
    if record is None or (record["job"].get("model"), record["job"].get("format")) != (
        model.uuid,
        source.kind.__name__,
    ):
        return None
    index = folder.index()
    if index is None or not issubclass(source.kind, TabularFiles) or schema.preprocessing is None:
        return None
    now = list_files(source.location, index.record_format.suffixes)
    if [file.url for file in now] != [file.url for file in index.files]:
        return None  # another input, which the folder will refuse
    changed = [new.shown for new, old in zip(now, index.files, strict=True) if new != old]
    if changed:
        what = f"{_listed(changed)} changed since {folder.shown} was started"
        raise InputError((f"{what}: restore the original, or predict into another folder",))
    return RecordRows(index, schema.preprocessing, source.invalid)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more files" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {'has' if len(names) == 1 else 'have'}"


class _CountingLog:
    """Logs the progress of counting records, if it takes long."""

    def __init__(self, shown: str) -> None:
        self._shown, self._next = shown, Deadline(PROGRESS_EVERY_SECS)

    def __call__(self, done_bytes: int, num_bytes: int) -> None:
        if self._next.has_passed:
            self._next = Deadline(PROGRESS_EVERY_SECS)
            logger.info("counting the records of %s: %d %%", self._shown, 100 * done_bytes // max(1, num_bytes))
