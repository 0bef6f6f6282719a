"""Exports: a trained model as an MLflow model that runs where psflow is not installed."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.tensor_file import write_tensors
from psflow.ps_runtime.columns.example import example_record
from psflow.ps_runtime.config.environment import telemetry_off
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.optimizers import Optimizer
from psflow.tasks.serving.code import ENGINE, ModelFnSource, RequiredCode, module_of_optimizer, source_of
from psflow.tasks.tracking.store import keep_quiet

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec

    from psflow.ps_runtime.columns.preprocessing import Preprocessing
    from psflow.ps_runtime.columns.reading import Column
    from psflow.ps_runtime.model.exporters import ExportBundle
    from psflow.ps_runtime.tables.table import Table

__all__ = ["MlflowModelWriter", "check_exportable", "checkpoint_of"]

SCRIPT = Path(__file__).parents[1] / "serving" / "pyfunc_model.py"
ALWAYS_REQUIRED = ("mlflow", "numpy", "safetensors")
COLUMN_TYPES = {"float32": "float", "float64": "double", "int32": "integer", "int64": "long"}
"""MLflow's names."""
STORED_DTYPE = "int64"
"""Of the values that a model scales itself: whole numbers."""


@dataclass(frozen=True, slots=True)
class MlflowModelWriter:
    """Writes MLflow pyfunc models: the `ModelWriter` that a flow hands to the evaluator.

    Where the training data came from a table the model takes tables with its columns, else arrays.
    """

    def write(self, directory: str, bundle: ExportBundle) -> None:
        """Write the model of `bundle` into the empty local folder `directory`.

        Raises
        ------
        ModelFnError
            As `check_exportable` does.

        Notes
        -----
        The first call in a process imports MLflow, for more than a second. Nothing in the folder is a pickle.
        """
        telemetry_off()
        import mlflow.pyfunc

        keep_quiet()
        source = source_of(bundle.model_fn)
        preprocessing = bundle.schema.preprocessing
        required = ALWAYS_REQUIRED if preprocessing is None else (*ALWAYS_REQUIRED, "pyarrow")
        modules = {module_of_optimizer(rule) for rule in _optimizers_in(bundle.params)}
        code = RequiredCode(source, tuple(sorted(modules)))
        with tempfile.TemporaryDirectory(prefix="psflow-export-") as temporary:
            model, beside, script = Path(temporary, "model"), Path(temporary, "code"), Path(temporary, SCRIPT.name)
            _write_model(model, bundle, source)
            shutil.copyfile(SCRIPT, script)  # MLflow gives a copy the rights of the original
            for below, path in code.files.items():
                (beside / below).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, beside / below)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*input example was not provided")  # the signature is
                with _refusals_of_the_disk():
                    mlflow.pyfunc.save_model(
                        directory,
                        python_model=str(script),
                        artifacts={"model": str(model)},
                        code_paths=[str(path) for path in sorted(beside.iterdir())],
                        pip_requirements=sorted({*map(_pinned, required), *code.requirements()}),
                        signature=_signature(bundle),
                        input_example=None if preprocessing is None else _input_example(preprocessing),
                        metadata={"psflow": _metadata(bundle)},
                    )


def _metadata(bundle: ExportBundle) -> dict[str, Any]:
    """Return what people may want to know of an export beside what MLflow says: the types of raw columns, too."""
    facts = {"global_step": bundle.global_step, "name": bundle.name}
    preprocessing = bundle.schema.preprocessing
    if preprocessing is None:
        return facts
    return facts | {"columns": {column.name: column.type for column in preprocessing.raw_columns}}


def _signature(bundle: ExportBundle) -> ModelSignature:
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ColSpec, Schema

    predictions = bundle.predictions
    if not isinstance(predictions, Mapping):
        predictions = {"predictions": predictions}
    outputs = {name: np.asarray(value) for name, value in predictions.items()}
    schema, dtype = bundle.schema, bundle.schema.features[0].dtype
    if schema.preprocessing is not None:
        filled = schema.preprocessing.filled_columns
        inputs = Schema([_column_spec(column, column.name in filled) for column in schema.preprocessing.columns])
        return ModelSignature(inputs, infer_signature(None, outputs).outputs)
    if not schema.is_table or dtype not in COLUMN_TYPES:
        return infer_signature(bundle.features, outputs)
    kind = COLUMN_TYPES[dtype if schema.scaling is None else STORED_DTYPE]
    columns = Schema([ColSpec(kind, name) for name in schema.columns])
    return ModelSignature(columns, infer_signature(None, outputs).outputs)


def _column_spec(column: Column, is_filled: bool) -> ColSpec:
    """Return how MLflow calls a raw column: optional where a blank is nothing unusual.

    MLflow would change values on the way: 26.5 of a column of whole numbers becomes 26, the text "no" true, and the
    number 2026 a time. Other whole numbers than those of its own size it refuses. So it gives the model whatever comes
    for all columns but those of words, and the model itself judges it.
    """
    from mlflow.types import ColSpec, DataType
    from mlflow.types.schema import AnyType

    required = not (is_filled or column.num_blanks)
    kind = DataType.string if column.raw.type == "string" else AnyType()  # type: ignore[no-untyped-call]
    return ColSpec(kind, column.name, required=required)


def _input_example(preprocessing: Preprocessing) -> pd.DataFrame:
    """Return two records that are made up: one in full, and one with blanks where a blank is nothing unusual."""
    import pandas as pd

    record = example_record(preprocessing)
    optional = {column.name for column in preprocessing.columns if column.num_blanks} | preprocessing.filled_columns
    blank = {name: None if name in optional else value for name, value in record.items()}
    return pd.DataFrame([record, blank] if optional else [record], dtype=object)


@contextmanager
def _refusals_of_the_disk() -> Iterator[None]:
    """Raise the OSError that MLflow has turned into an advice about code paths."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


def check_exportable(model_fn: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Find out before training whether a model can be exported.

    Raises
    ------
    ModelFnError
        If model_fn has no file or is not at its top level, if a file of the user imports all names of psflow, or if a
        parameter cannot be written as JSON.
    """
    RequiredCode(source_of(model_fn), has_engine=False)
    _encoded(dict(params), "params")


def checkpoint_of(directory: str) -> tuple[int, float] | None:
    """Return step and ``saved_at`` of the checkpoint that an export in `directory` was made of, if it says so."""
    try:
        config = json.loads(Path(directory, "artifacts", "model", "config.json").read_text())
        return int(config["global_step"]), float(config["checkpoint_saved_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_model(folder: Path, bundle: ExportBundle, source: ModelFnSource) -> None:
    folder.mkdir()
    files = FileStore(str(folder))
    write_tensors(files, "variables.safetensors", bundle.values.variables)
    tables = bundle.values.tables.values()
    for index, table in enumerate(tables):
        write_tensors(files, f"table_{index}.safetensors", _created(table))
    config = {
        "name": bundle.name,
        "global_step": bundle.global_step,
        "checkpoint_saved_at": bundle.saved_at,
        "model_fn": {"module": source.module, "qualname": source.qualname},
        "params": _encoded(dict(bundle.params), "params"),
        "tables": [asdict(replace(table.spec, optimizer=None)) for table in tables],
        "schema": bundle.schema.to_facts(),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def _created(table: Table) -> dict[str, NDArray[Any]]:
    """Return the rows that training created; the others follow from the description of the table."""
    waiting = "candidate"  # for their admission, which only training knows
    return {what: array[:0] if what.startswith(waiting) else array for what, array in table.tensors().items()}


def _pinned(distribution: str) -> str:
    return f"{distribution}=={metadata.version(distribution)}"


def _optimizers_in(value: Any) -> Iterator[Optimizer]:
    if isinstance(value, Optimizer):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _optimizers_in(item)


def _encoded(value: Any, where: str) -> Any:
    """Return a parameter as JSON has it; optimizers, and schedules of psflow, by their fields."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_encoded(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _encoded(item, f"{where}[{key!r}]") for key, item in value.items()}
    cls = type(value)
    if isinstance(value, Optimizer) or (is_dataclass(value) and cls.__module__.startswith(f"{ENGINE}.")):
        of_fields = {f.name: _encoded(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value) if f.init}
        module = module_of_optimizer(value) if isinstance(value, Optimizer) else cls.__module__
        return {"$dataclass": f"{module}:{cls.__qualname__}", "fields": of_fields}
    raise ModelFnError(
        (
            f"{where} is a {cls.__name__}, which an export cannot hold: expected numbers, strings, lists and mappings "
            "of them, an optimizer, or a schedule of psflow; build other objects inside model_fn",
        )
    )
