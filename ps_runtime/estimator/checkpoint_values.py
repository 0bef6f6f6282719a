"""Looks up variables and rows of tables in one checkpoint."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import ModelFnError, NoCheckpointError, UsageError, did_you_mean
from psflow.ps_runtime.estimator.event_log import log_restoring
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.scope import GLOBAL_STEP
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.lookups import integer_ids
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.run_config import RunConfig, absolute
from psflow.ps_runtime.specs.variables import TableSpec


def checked_config(
    model_dir: str | os.PathLike[str] | None, config: RunConfig | None, params: Mapping[str, Any] | None
) -> RunConfig:
    """Return the RunConfig of an Estimator, including its model_dir, if one is given.

    Raises UsageError if two different model_dirs are given, or an empty one, or none for a process of a cluster; an
    ArgumentTypeError if an argument has the wrong type.
    """
    if isinstance(model_dir, os.PathLike):
        model_dir = os.fspath(model_dir)
    faults = ArgumentFaults("Estimator: ")
    faults.text("model_dir", model_dir)
    if config is not None and not isinstance(config, RunConfig):
        faults.add_type("config", "a RunConfig or None", config)
    if params is not None and not isinstance(params, Mapping):
        faults.add_type("params", "a mapping or None", params)
    faults.raise_any()
    config = RunConfig() if config is None else config
    if model_dir is None and config.model_dir is None and config.cluster is not None:  # each process would make its own
        raise UsageError(
            ("this process belongs to a cluster, but no model_dir is given: give a directory that all processes see",)
        )
    if model_dir is None or model_dir == config.model_dir:
        return config
    if config.model_dir is not None:
        raise UsageError((f"model_dir is {model_dir!r}, but that of config is {config.model_dir!r}; give only one",))
    return config.replace(model_dir=model_dir)


def check_params(caller: ModelCaller) -> None:
    """Raise ModelFnError if hyper-parameters are given but model_fn does not take them."""
    if caller.params and not caller.takes_params:
        names = ", ".join(map(str, caller.params))
        raise ModelFnError((f"{caller.name} does not take the argument 'params', but params are given: {names}",))


def checked_steps(steps: int | None) -> int | None:
    """Return a number of steps, or None; UsageError unless it is a whole number greater than 0."""
    faults = ArgumentFaults()
    number = faults.steps("steps", steps)
    faults.raise_any()
    return number


def checked_keys(predict_keys: str | Sequence[str] | None, yield_single_examples: bool) -> Sequence[str]:
    """Return the names of predictions, a str is one, none means all; ArgumentTypeError for a wrong type."""
    faults = ArgumentFaults()
    keys = faults.items("predict_keys", [predict_keys] if isinstance(predict_keys, str) else predict_keys, str, "str")
    faults.flag("yield_single_examples", yield_single_examples)
    faults.raise_any()
    return keys


def check_name(given: Any) -> None:
    """Raise ArgumentTypeError if the name of a variable or a table is not a str."""
    faults = ArgumentFaults()
    if not isinstance(given, str):
        faults.add_type("name", "a str", given)
    faults.raise_any()


def check_texts(**arguments: Any) -> None:
    """Raise ArgumentTypeError if one of the arguments is neither a str nor None."""
    faults = ArgumentFaults()
    for name, given in arguments.items():
        faults.text(name, given)
    faults.raise_any()


def checkpoint_at(model_dir: str, checkpoint_path: str | None) -> tuple[CheckpointStore, int]:
    """Return the store and the step of a checkpoint: that of `checkpoint_path`, or else the latest of `model_dir`.

    Raises NoCheckpointError if `model_dir` has no checkpoint, or `checkpoint_path` is not a path of one. The path need
    not exist.
    """
    store = CheckpointStore(model_dir)
    if checkpoint_path is None:
        latest = store.latest()
        if latest is None:
            raise NoCheckpointError(model_dir, "there is no checkpoint yet; train first")
        return store, latest
    path = absolute(checkpoint_path).rstrip("/")
    parent, _, name = path.rpartition("/checkpoints/")
    digits = name.removeprefix("step_")
    if not parent or not digits.isdecimal():
        raise NoCheckpointError(checkpoint_path, "expected a directory such as MODEL_DIR/checkpoints/step_00001200")
    step = int(digits)
    return store if store.path(step) == path else CheckpointStore(parent), step


MAX_WHOLE_TABLE_BYTES = 2**26


@contextmanager
def opened_checkpoint(
    model_dir: str, checkpoint_path: str | None = None, *, logs: bool = False
) -> Iterator[CheckpointReader]:
    """Open a checkpoint of a model_dir, by default the latest, which is kept meanwhile; raise as `checkpoint_at`."""
    store, step = checkpoint_at(model_dir, checkpoint_path)
    if logs:
        log_restoring(store.path(step))
    with CheckpointReader.pinned(store, step, "estimator") as reader:
        yield reader


def variable_names(reader: CheckpointReader) -> list[str]:
    """Return the names of the variables and tables, and ``global_step``, sorted."""
    model = reader.manifest.model
    return sorted([GLOBAL_STEP, *(v.name for v in model.variables), *(t.name for t in model.tables)])


def variable_value(reader: CheckpointReader, name: str) -> NDArray[Any]:
    """Return a variable, or a whole table; UsageError if the variable does not exist, or the table is too large."""
    check_name(name)
    tables = {table.name: table for table in reader.manifest.model.tables}
    if name not in tables:
        _check_name(name, variable_names(reader), "variable")
        return np.array(reader.manifest.step) if name == GLOBAL_STEP else reader.variable(name)
    spec = tables[name]
    if spec.num_rows * spec.row_nbytes > MAX_WHOLE_TABLE_BYTES:
        raise UsageError(
            (
                f"table {name!r} has {spec.num_rows} rows of {spec.row_nbytes} bytes, too many to return at "
                f"once; read the rows you need: estimator.get_table_rows({name!r}, ids)",
            )
        )
    return _rows(reader, spec, np.arange(spec.num_rows))


def table_rows(reader: CheckpointReader, name: str, ids: Any) -> NDArray[Any]:
    """Return rows of a table; UsageError if the table does not exist, or `ids` are not rows of it."""
    check_name(name)
    tables = {table.name: table for table in reader.manifest.model.tables}
    _check_name(name, tables, "table")
    return _rows(reader, tables[name], integer_ids(name, ids))


def _rows(reader: CheckpointReader, spec: TableSpec, ids: NDArray[Any]) -> NDArray[Any]:
    rows = ModelValues({}, {spec.name: reader.table(spec)}).rows(spec, ids.astype(np.int64).reshape(-1))
    return rows.reshape((*ids.shape, spec.dim))


def _check_name(name: str, known: Collection[str], what: str) -> None:
    if name not in known:
        raise UsageError((f"there is no {what} {name!r}{did_you_mean(name, known)}",))
