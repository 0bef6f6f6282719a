"""Contents and writers of an export."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.mode_reads import ModeReads
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.export.directory import ExportDirectory
from psflow.ps_runtime.model.export.outputs import DEFAULT_SIGNATURE, outputs_of
from psflow.ps_runtime.model.export.receiver import ServingInputReceiverFn
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.schema import InputSchema

FOLDER = "assets.extra"


def check_assets(faults: ArgumentFaults, assets_extra: Any) -> None:
    """Add to `faults` the faults of ``assets_extra``, a mapping of names below `FOLDER` to paths of files."""
    if assets_extra is None:
        return
    if not isinstance(assets_extra, Mapping):
        faults.add_type("assets_extra", "a mapping of names to paths of files, or None", assets_extra)
        return
    for name, path in assets_extra.items():
        if not isinstance(name, str):
            faults.add_type("a name of assets_extra", "a str", name)
        elif not _is_below(name):
            faults.add(f"assets_extra[{name!r}]: expected a name below {FOLDER}, such as 'vocabularies/colours.txt'")
        if not isinstance(path, str | os.PathLike):
            faults.add_type(f"assets_extra[{name!r}]", "the path of a file", path)
    for (one, place), (other, below) in itertools.permutations(_places(assets_extra), 2):
        if place in below.parents or (place == below and one < other):
            faults.add(f"assets_extra[{one!r}] and [{other!r}] have the same path: give each a name of its own")


def find_assets(assets_extra: Mapping[str, Any] | None) -> dict[str, Path]:
    """Return the files of ``assets_extra`` by their names; UsageError, with all faults, if a file is missing."""
    files = {name: Path(path) for name, path in (assets_extra or {}).items()}
    missing = [f"assets_extra[{name!r}]: there is no file {path}" for name, path in files.items() if not path.is_file()]
    if missing:
        raise UsageError(tuple(missing))
    return files


def copy_assets(files: Mapping[str, Path], export: str) -> None:
    """Copy files into the folder of an export."""
    for name, path in files.items():
        target = Path(export, FOLDER, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _places(assets_extra: Mapping[Any, Any]) -> list[tuple[str, PurePosixPath]]:
    return [(name, PurePosixPath(name)) for name in assets_extra if isinstance(name, str)]


def _is_below(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


WRITERS = "psflow.model_writers"
"""The group of entry points that names the writers of models; this engine knows none of them."""


@dataclass(frozen=True)
class ExportBundle:
    """A model at one checkpoint, with everything needed to serve it."""

    name: str
    global_step: int
    values: ModelValues
    model_fn: Callable[..., Any]
    params: Mapping[str, Any]
    features: Any
    predictions: Mapping[str, NDArray[Any]]
    metrics: Mapping[str, float]
    saved_at: float
    schema: InputSchema
    signatures: tuple[str, ...] = ()
    serving_input_receiver_fn: ServingInputReceiverFn | None = None

    @classmethod
    def of(
        cls,
        caller: ModelCaller,
        values: ModelValues,
        global_step: int,
        features: Any,
        schema: InputSchema,
        **facts: Any,
    ) -> Self:
        """Return the bundle of a model that predicts `features`; `facts` are the remaining fields.

        The export takes the features that its model reads to predict, whatever training read.
        """
        schema = schema.for_prediction()
        if schema.names:
            reads = ModeReads(caller, (ModeKeys.PREDICT,), values)
            schema = replace(reads(features, None, schema, "the input of the export"), whole_input=None)
            features = {name: features[name] for name in schema.names}
        spec = caller.apply(features, None, ModeKeys.PREDICT, values, global_step)
        outputs = outputs_of(spec.export_outputs, spec.predictions, features)
        return cls(
            global_step=global_step,
            values=values,
            model_fn=caller.model_fn,
            params=caller.params,
            features=features,
            predictions=outputs[DEFAULT_SIGNATURE],
            schema=schema,
            signatures=() if spec.export_outputs is None else tuple(outputs),
            **facts,
        )


class ModelWriter(Protocol):
    """Writes a servable model.

    It may have a method ``warm_up()``, which the evaluator calls as it starts, and which returns at once: to import in
    a thread what the first `write` needs, for example.
    """

    def write(self, directory: str, bundle: ExportBundle) -> None:
        """Write `bundle` to `directory`, a local path that does not exist yet."""


class InstalledWriter(ModelWriter, Protocol):
    """The writer that is installed with psflow, which also checks in advance whether it can write a model."""

    @property
    def recorder(self) -> str:
        """The module of the program that records a job where these models go, as ``python -m`` takes it."""

    def check(
        self,
        model_fn: Callable[..., Any],
        params: Mapping[str, Any],
        serving: Iterable[ServingInputReceiverFn] = (),
    ) -> None:
        """Raise a ModelFnError or UsageError if `write` cannot export model_fn with these serving functions."""


def check_export_arguments(
    faults: ArgumentFaults, serving_input_receiver_fn: Any, assets_extra: Any, as_text: Any
) -> None:
    """Add to `faults` the faults of the arguments that all exports share."""
    if serving_input_receiver_fn is not None:
        faults.callable("serving_input_receiver_fn", serving_input_receiver_fn)
    check_assets(faults, assets_extra)
    if as_text is not False:
        faults.add(f"as_text={as_text!r}: an export has no text form; leave it out")


def check_writer(faults: ArgumentFaults, writer: Any) -> None:
    """Add a fault unless `writer` is a ModelWriter or None."""
    if writer is not None and not callable(getattr(writer, "write", None)):
        faults.add_type("writer", "a ModelWriter, with a method write(directory, bundle), or None", writer)


def add_version(
    directory: ExportDirectory,
    bundle: ExportBundle,
    writer: ModelWriter,
    assets_extra: Mapping[str, Any] | None,
    above: int = 0,
) -> int:
    """Write an export with its extra files as the next version of `directory`, above `above`; return the version."""
    files = find_assets(assets_extra)

    def write(path: str) -> None:
        writer.write(path, bundle)
        copy_assets(files, path)

    return directory.add(write, bundle.global_step, bundle.saved_at, above)


def installed_writer() -> InstalledWriter:
    """Return the writer that the installation of psflow names.

    Raises UsageError if it names none, or several.
    """
    found = entry_points(group=WRITERS)
    if len(found) != 1:
        names = ", ".join(sorted(entry.value for entry in found)) or "none"
        raise UsageError(
            (f"expected one writer of models among the entry points {WRITERS}, found {names}; install psflow again",)
        )
    [entry] = found
    writer: InstalledWriter = entry.load()()
    return writer
