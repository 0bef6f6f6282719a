"""Exports of one checkpoint of an Estimator to a folder that the caller names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.data.arrays import zeros_of
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.estimator.event_log import logger
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.model.export.bundle import (
    ExportBundle,
    ModelWriter,
    add_version,
    check_export_arguments,
    check_writer,
    installed_writer,
)
from psflow.ps_runtime.model.export.directory import ExportDirectory
from psflow.ps_runtime.model.export.receiver import ServingInputReceiverFn
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.run_config import absolute


def save_model(
    caller: ModelCaller,
    reader: CheckpointReader,
    export_dir_base: str | os.PathLike[str],
    serving_input_receiver_fn: ServingInputReceiverFn | None,
    assets_extra: Mapping[str, Any] | None,
    writer: ModelWriter | None,
) -> str:
    """Write the checkpoint of `reader` as the next version in `export_dir_base`; return its path.

    Raises UsageError if the folder is neither local nor on S3, or the model cannot be exported.
    """
    base = absolute(os.fspath(export_dir_base))
    schema = reader.manifest.model.schema
    assert schema is not None  # set by the plan of the training
    values = read_values(reader)
    with user_code(caller.model_fn, ModelFnError, "in infer mode on a row of zeros"), np.errstate(all="ignore"):
        bundle = ExportBundle.of(
            caller.reading(schema),
            values,
            reader.manifest.step,
            zeros_of(schema.whole.features),
            name="model",
            metrics={},
            saved_at=reader.manifest.saved_at,
            schema=schema,
            serving_input_receiver_fn=serving_input_receiver_fn,
        )
    writer = installed_writer() if writer is None else writer
    with ExportDirectory.opened(base) as directory:
        path = directory.version_path(add_version(directory, bundle, writer, assets_extra))
    logger.info("SavedModel written to: %s", path)
    return path


def check_arguments(
    export_dir_base: Any, serving_input_receiver_fn: Any, assets_extra: Any, as_text: Any, mode: Any, writer: Any
) -> None:
    """Raise UsageError if an argument of an export is invalid; an ArgumentTypeError if its type is wrong."""
    faults = ArgumentFaults("export_saved_model: ")
    if not isinstance(export_dir_base, str | os.PathLike):
        faults.add_type("export_dir_base", "a str or path", export_dir_base)
    check_export_arguments(faults, serving_input_receiver_fn, assets_extra, as_text)
    _check_mode(faults, mode)
    check_writer(faults, writer)
    faults.raise_any()


def _check_mode(faults: ArgumentFaults, mode: Any) -> None:
    """Add a fault if `mode` is not supported by exports."""
    if not isinstance(mode, str) or mode != ModeKeys.PREDICT:
        faults.add(
            f"mode {mode!r}: an export predicts, and cannot train or evaluate; export {ModeKeys.PREDICT!r} alone"
        )


def receiver_fn_of(input_receiver_fn_map: Any) -> ServingInputReceiverFn:
    """Return the function of the mode that is exported.

    Raises
    ------
    UsageError
        If it is missing, or functions of other modes are given; an ArgumentTypeError if it has another type.
    """
    faults = ArgumentFaults()
    if not isinstance(input_receiver_fn_map, Mapping):
        faults.add_type("input_receiver_fn_map", "a mapping of modes to functions", input_receiver_fn_map)
        faults.raise_any()
    for mode in input_receiver_fn_map:
        _check_mode(faults, mode)
    function = input_receiver_fn_map.get(ModeKeys.PREDICT)
    if function is None:
        faults.add(f"input_receiver_fn_map has no function for {ModeKeys.PREDICT!r}: expected one")
    faults.raise_any()
    receiver_fn: ServingInputReceiverFn = function
    return receiver_fn
