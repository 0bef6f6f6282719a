"""Writes trained models as MLflow models that run without psflow installed."""

from __future__ import annotations

import inspect
import json
import shutil
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.manifest import FORMAT_VERSION
from psflow.ps_runtime.checkpoint.tensor_file import write_tensors
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.feature_columns.kinds import FeatureColumn
from psflow.ps_runtime.model.export.receiver import RawServingInput, ServingInputReceiverFn
from psflow.ps_runtime.optimizers import Optimizer, Schedule
from psflow.ps_runtime.scratch import scratch_directory
from psflow.ps_runtime.shipping.own_modules import is_installed
from psflow.tasks.exports.code import ENGINE, ModelFnSource, RequiredCode, pinned, source_of, source_of_rule
from psflow.tasks.exports.signature import input_example, model_signature, tried_receiver
from psflow.tasks.tracking.store import import_in_background, keep_quiet

if TYPE_CHECKING:
    from psflow.ps_runtime.model.export.bundle import ExportBundle
    from psflow.ps_runtime.tables.table import Table

SCRIPT = Path(__file__).with_name("pyfunc_model.py")
ALWAYS_REQUIRED = ("mlflow", "numpy", "safetensors")


@dataclass(frozen=True, slots=True)
class MlflowModelWriter:
    """Writes MLflow pyfunc models; the `ModelWriter` that flows pass to the evaluator.

    If the training data came from a table, the model takes tables with its columns, else arrays.
    """

    @property
    def recorder(self) -> str:
        """The program that records a job in MLflow."""
        return "psflow.tasks.recorder"

    def check(
        self, model_fn: Callable[..., Any], params: Mapping[str, Any], serving: Iterable[ServingInputReceiverFn] = ()
    ) -> None:
        """Check before training that `write` can export a model and its serving functions.

        Raises
        ------
        ModelFnError
            If a function has no file or is not at its top level, if a file of the user imports all names of psflow,
            or if a parameter cannot be written as JSON.
        UsageError
            If a serving_input_receiver_fn fails on its examples, or model_fn cannot import it.
        """
        source = source_of(model_fn)
        _required_code(source, None, has_engine=False)
        _encoded(dict(params), "params")
        for function in serving:
            _required_code(source, function, has_engine=False)
            tried_receiver(function, None)

    def warm_up(self) -> None:
        """Import MLflow in a thread, so that the first export need not."""
        prepare_environment()
        import_in_background("mlflow.pyfunc")

    def write(self, directory: str, bundle: ExportBundle) -> None:
        """Write the model of `bundle` into the empty local folder `directory`.

        Raises ModelFnError as `check` does.

        Notes
        -----
        The first call in a process imports MLflow, for more than a second, unless `warm_up` has. Nothing in the folder
        is a pickle.
        """
        prepare_environment()
        import mlflow.pyfunc

        keep_quiet()
        source = source_of(bundle.model_fn)
        serving = bundle.serving_input_receiver_fn
        receiver = None if serving is None else tried_receiver(serving, bundle.schema)
        preprocessing = bundle.schema.preprocessing
        parts = list(_parts_of(bundle.params))
        has_columns = preprocessing is not None or any(isinstance(part, get_args(FeatureColumn)) for part in parts)
        required = (*ALWAYS_REQUIRED, "pyarrow") if has_columns else ALWAYS_REQUIRED
        functions = [source_of(part, "the function") for part in parts if _is_code(part)]
        rules = [source_of_rule(part) for part in parts if _is_rule(part)]
        ours = {type(part).__module__ for part in parts if _is_ours(part)}
        code = _required_code(source, serving, (*functions, *rules), ours)
        _check_files(functions, code)
        with scratch_directory() as temporary:
            model, beside, script = Path(temporary, "model"), Path(temporary, "code"), Path(temporary, SCRIPT.name)
            _write_model(model, bundle, source)
            shutil.copyfile(SCRIPT, script)  # MLflow copies the permissions of the original
            for below, path in code.files.items():
                (beside / below).parent.mkdir(parents=True, exist_ok=True)
                if path in code.scripts:
                    (beside / below).write_bytes(code.scripts[path])
                else:
                    shutil.copyfile(path, beside / below)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*input example was not provided")  # the signature is given
                with _refusals_of_the_disk():
                    mlflow.pyfunc.save_model(
                        directory,
                        python_model=str(script),
                        artifacts={"model": str(model)},
                        code_paths=[str(path) for path in sorted(beside.iterdir())],
                        pip_requirements=sorted({*map(pinned, required), *code.requirements()}),
                        signature=model_signature(bundle, receiver),
                        input_example=None if preprocessing is None or receiver else input_example(preprocessing),
                        metadata={"psflow": _metadata(bundle)},
                    )


def _metadata(bundle: ExportBundle) -> dict[str, Any]:
    """Return metadata of an export in addition to those of MLflow: signatures, and types of columns."""
    facts: dict[str, Any] = {"global_step": bundle.global_step, "name": bundle.name}
    if bundle.signatures:
        facts["signatures"] = list(bundle.signatures)
    preprocessing = bundle.schema.preprocessing
    if preprocessing is None:
        return facts
    return facts | {"columns": {column.name: column.type for column in preprocessing.raw_columns}}


@contextmanager
def _refusals_of_the_disk() -> Iterator[None]:
    """Raise the OSError behind MLflow's advice about code paths."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


def _required_code(
    source: ModelFnSource,
    serving: ServingInputReceiverFn | None,
    others: tuple[ModelFnSource, ...] = (),
    modules: Collection[str] = (),
    *,
    has_engine: bool = True,
) -> RequiredCode:
    """Return the code of model_fn, of a serving_input_receiver_fn, of others, and of modules of psflow.

    Raises ModelFnError if model_fn cannot import the file of that function; or as `RequiredCode` does.
    """
    if serving is None or isinstance(serving, RawServingInput):
        return RequiredCode(source, others, tuple(sorted(modules)), has_engine)
    of_serving = source_of(serving, "serving_input_receiver_fn")
    code = RequiredCode(source, (*others, of_serving), tuple(sorted(modules)), has_engine)
    if of_serving.path not in code.files.values():
        raise ModelFnError(
            (
                f"serving_input_receiver_fn {of_serving.qualname} is in {of_serving.path}, which model_fn, in "
                f"{source.path}, cannot import; put both into one module, or side by side",
            )
        )
    return code


def _serving_facts(function: ServingInputReceiverFn | None) -> dict[str, Any] | None:
    """Return a serving_input_receiver_fn for the config of an export: by its name, or by its fields."""
    if function is None:
        return None
    if isinstance(function, RawServingInput):
        facts: dict[str, Any] = _encoded(function, "serving_input_receiver_fn")
        return facts
    source = source_of(function, "serving_input_receiver_fn")
    return {"module": source.module, "qualname": source.qualname}


def _write_model(folder: Path, bundle: ExportBundle, source: ModelFnSource) -> None:
    folder.mkdir()
    files = FileStore(str(folder))
    write_tensors(files, "variables.safetensors", bundle.values.variables)
    states = (state_dict_of(bundle.values) for state_dict_of in _attributes(bundle.params, "state_dict_of"))
    if state := {name: value for found in states for name, value in (found or {}).items()}:
        write_tensors(files, "state_dict.safetensors", state)
    tables = bundle.values.tables.values()
    for index, table in enumerate(tables):
        write_tensors(files, f"table_{index}.safetensors", _created(table))
    config = {
        "format": FORMAT_VERSION,
        "name": bundle.name,
        "global_step": bundle.global_step,
        "model_fn": {"module": source.module, "qualname": source.qualname},
        "params": _encoded(dict(bundle.params), "params"),
        "serving_input_receiver_fn": _serving_facts(bundle.serving_input_receiver_fn),
        "tables": [asdict(replace(table.spec, optimizer=None)) for table in tables],
        "schema": bundle.schema.to_facts(),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def _attributes(params: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield an attribute of those dataclasses of psflow among the parameters that have it."""
    for part in _parts_of(params):
        if _is_ours(part) and hasattr(part, name):
            yield getattr(part, name)


def _created(table: Table) -> dict[str, NDArray[Any]]:
    """Return the created rows; other rows follow from the description of the table."""
    waiting = "candidate"  # not admitted yet, which matters in training only
    return {what: array[:0] if what.startswith(waiting) else array for what, array in table.tensors().items()}


def _parts_of(value: Any) -> Iterator[Any]:
    """Yield a parameter and its parts."""
    yield value
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, partial):
        parts = (value.func, *value.keywords.values())
    elif _is_ours(value) or _is_rule(value):
        parts = (getattr(value, f.name) for f in _exported_fields(value))
    for part in parts:
        yield from _parts_of(part)


def _is_ours(value: Any) -> bool:
    """Whether it is a dataclass of psflow, such as a schedule, a head or a feature column."""
    return is_dataclass(value) and type(value).__module__.startswith(f"{ENGINE}.")


def _is_rule(value: Any) -> TypeGuard[Optimizer | Schedule]:
    """Whether it is an optimizer or a schedule, of psflow or of the user."""
    return isinstance(value, Optimizer) or (isinstance(value, Schedule) and is_dataclass(value))


def _is_code(value: Any) -> bool:
    """Whether it is a function or a class, which an export refers to by its name."""
    return inspect.isroutine(value) or inspect.isclass(value)


def _exported_fields(value: Any) -> list[Field[Any]]:
    """Return the fields of a dataclass that an export holds; the others have defaults, and serve training only."""
    return [f for f in fields(value) if f.init and f.metadata.get("is_exported", True)]


def _check_files(functions: Iterable[ModelFnSource], code: RequiredCode) -> None:
    """Raise ModelFnError if an export cannot find the file of a function."""
    for function in functions:
        if function.path not in code.files.values() and not is_installed(function.path):
            raise ModelFnError(
                (
                    f"{function.qualname}, a parameter of the model, is in {function.path}, which cannot be "
                    "imported; put it into a module on Python's path",
                )
            )


def _encoded(value: Any, where: str) -> Any:
    """Return a parameter as JSON; optimizers, schedules, and heads and columns of psflow, by their fields."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_encoded(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _encoded(item, f"{where}[{key!r}]") for key, item in value.items()}
    cls = type(value)
    if _is_rule(value) or _is_ours(value):
        of_fields = {f.name: _encoded(getattr(value, f.name), f"{where}.{f.name}") for f in _exported_fields(value)}
        module = source_of_rule(value).module if _is_rule(value) else cls.__module__
        return {"$dataclass": f"{module}:{cls.__qualname__}", "fields": of_fields}
    if isinstance(value, partial) and not value.args:
        keywords = {key: _encoded(item, f"{where}({key})") for key, item in value.keywords.items()}
        return _encoded(value.func, where) | {"keywords": keywords}
    if _is_code(value):
        source = source_of(value, where)
        return {"$function": f"{source.module}:{source.qualname}", "keywords": {}}
    raise ModelFnError(
        (
            f"{where} is a {cls.__name__}, which an export cannot hold: expected numbers, strings, lists and mappings "
            "of them, an optimizer, a schedule that is a dataclass, or a head or feature column of psflow; build other "
            "objects inside model_fn",
        )
    )
