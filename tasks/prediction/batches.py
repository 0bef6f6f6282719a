"""Output with batches: each run adds the predictions of new files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.data.record_formats import TabularFiles
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.tasks.prediction.folder import PredictionFolder
from psflow.tasks.prediction.inputs import PredictionInput
from psflow.tasks.prediction.model import ModelInfo, found_model
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.plan import PredictionPlan, plan_prediction
from psflow.tasks.prediction.record_rows import RecordRows

NAME = re.compile(r"batch-\d{5,}")


@contextmanager
def planned_batches(
    model: ModelInfo, source: PredictionInput, options: PredictionOptions, output: str
) -> Iterator[list[PredictionPlan]]:
    """Give the predictions to make: first the rest of an interrupted batch, then a batch of new files.

    Raises
    ------
    InputError
        If a predicted file has changed; or as `plan_prediction` does.
    UsageError
        If the output has other content; if the input cannot get new files.
    """
    if not issubclass(source.kind, TabularFiles) or model.schema.preprocessing is None:
        raise UsageError(
            (f"{source}: new_files_only needs tabular files, and a model that was trained on tabular files",)
        )
    names = _batches(output)
    known: dict[str, tuple[DataFile, str]] = {}
    plans: list[PredictionPlan] = []
    with ExitStack() as stack:
        for name in names:
            folder = PredictionFolder(f"{output.rstrip('/')}/{name}")
            if folder.record() is None:
                names = names[: names.index(name)]  # killed before its start
                break
            index = folder.index()
            if index is None:
                raise UsageError((f"{folder.shown} holds predictions of arrays; choose another folder",))
            known |= {file.url: (file, name) for file in index.files}
            if not folder.is_complete:
                plans.append(stack.enter_context(_interrupted(folder, source, options)))
        suffixes = source.kind.for_prediction(source.location, (), ()).read().record_format.suffixes
        new = _new_files(list_files(source.location, suffixes), known)
        if new:
            number = 1 + int(names[-1].partition("-")[2]) if names else 0
            plans.append(plan_prediction(model, source, options, f"{output.rstrip('/')}/batch-{number:05d}", new))
        yield plans


def _batches(output: str) -> list[str]:
    found = [name for name in FileStore(output).names("") if not name.startswith((".", "_owner"))]
    if strange := [name for name in found if not NAME.fullmatch(name)]:
        what = f"the output {shown_path(output)} holds {strange[0]}, which is not a batch"
        raise UsageError((f"{what}; choose another folder for new_files_only, or empty it",))
    return found


def _new_files(files: Sequence[DataFile], known: dict[str, tuple[DataFile, str]]) -> list[DataFile]:
    changed = [(file, known[file.url][1]) for file in files if file.url in known and known[file.url][0] != file]
    if changed:
        raise InputError(
            tuple(
                f"{file.shown} was predicted in {name} and has changed since: restore it, or give it another name"
                for file, name in changed
            )
        )
    return [file for file in files if file.url not in known]


@contextmanager
def _interrupted(
    folder: PredictionFolder, source: PredictionInput, options: PredictionOptions
) -> Iterator[PredictionPlan]:
    """Give the plan of an interrupted batch: its files, model and options."""
    record, index = folder.record(), folder.index()
    assert record is not None
    assert index is not None
    index.check_unchanged()
    job = record["job"]
    with found_model(record["model_uri"]) as model:
        preprocessing = model.schema.preprocessing
        if preprocessing is None or model.uuid != job["model"]:
            raise UsageError((f"{folder.shown} was started with another model than {model.uri}; empty the folder",))
        own = replace(
            options,
            output_format=job["output_format"],
            predict_keys=tuple(job["predict_keys"]),
            escape_formulas=job["escape_formulas"],
        )
        own_source = replace(source, non_finite=job["non_finite"], invalid=job["invalid"])
        plan = PredictionPlan(model, own_source, RecordRows(index, preprocessing, own_source.invalid), own, folder)
        folder.check(plan.job)
        yield plan
