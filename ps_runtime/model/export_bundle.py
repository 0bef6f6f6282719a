"""A model on its way into an export: what an export holds, and who writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.caller import ModelCaller
from psflow.ps_runtime.model.export_directory import ExportDirectory
from psflow.ps_runtime.model.export_outputs import DEFAULT_SIGNATURE, outputs_of
from psflow.ps_runtime.model.extra_assets import check_assets, copy_assets, find_assets
from psflow.ps_runtime.model.mode_reads import ModeReads
from psflow.ps_runtime.model.serving_receiver import ServingInputReceiverFn
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.values import ModelValues
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["ExportBundle", "ModelWriter", "add_version", "check_export_arguments", "installed_writer"]

WRITERS = "psflow.model_writers"
"""The group of entry points that names what can write models; this engine knows none of them."""


@dataclass(frozen=True)
class ExportBundle:
    """A model at one checkpoint, and what is needed to serve it."""

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
        """Return the bundle of a model that predicts `features`; `facts` are the fields that this does not tell.

        The export asks for the features that its model reads to predict, whatever training read.
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
    """Knows how to write a servable model."""

    def write(self, directory: str, bundle: ExportBundle) -> None:
        """Write `bundle` to `directory`, a local path that does not exist yet."""


def check_export_arguments(
    faults: ArgumentFaults, serving_input_receiver_fn: Any, assets_extra: Any, as_text: Any
) -> None:
    """Add what is wrong with the arguments that all exports have to `faults`."""
    if serving_input_receiver_fn is not None:
        faults.callable("serving_input_receiver_fn", serving_input_receiver_fn)
    check_assets(faults, assets_extra)
    if as_text is not False:
        faults.add(f"as_text={as_text!r}: an export has no text form; leave it out")


def check_writer(faults: ArgumentFaults, writer: Any) -> None:
    """Add what is no ModelWriter, nor None, to `faults`."""
    if writer is not None and not callable(getattr(writer, "write", None)):
        faults.add_type("writer", "a ModelWriter, with a method write(directory, bundle), or None", writer)


def add_version(
    directory: ExportDirectory,
    bundle: ExportBundle,
    writer: ModelWriter,
    assets_extra: Mapping[str, Any] | None,
    above: int = 0,
) -> int:
    """Write an export with its extra files as the next version of `directory`, `above` another; return that."""
    files = find_assets(assets_extra)

    def write(path: str) -> None:
        writer.write(path, bundle)
        copy_assets(files, path)

    return directory.add(write, above)


def installed_writer() -> ModelWriter:
    """Return the `ModelWriter` that the installation of psflow names.

    Raises
    ------
    UsageError
        If it names none, or several.
    """
    found = entry_points(group=WRITERS)
    if len(found) != 1:
        names = ", ".join(sorted(entry.value for entry in found)) or "none"
        raise UsageError(
            (f"expected one writer of models among the entry points {WRITERS}, found {names}; install psflow again",)
        )
    [entry] = found
    writer: ModelWriter = entry.load()()
    return writer
