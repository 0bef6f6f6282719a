"""An exported model as MLflow runs it; this file is copied into every export.

It stands alone: numpy, safetensors, MLflow and the code beside it in the export are all there is.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel


class ExportedModel(PythonModel):
    """The model_fn of an export, called in PREDICT mode on the exported variables."""

    def load_context(self, context: Any) -> None:
        """Read the export: no training code, no pickle."""
        from safetensors.numpy import load_file

        folder = Path(context.artifacts["model"])
        self._config = json.loads((folder / "config.json").read_text())
        reference = self._config["model_fn"]
        with _own_code_first(folder.parents[1] / "code"):
            module = importlib.import_module(reference["module"])
            _check_version(module, reference["sha256"])
            from ps_runtime.model.caller import ModelCaller
            from ps_runtime.model.values import ModelValues

            tables = _read_tables(folder, self._config["tables"])
            self._values = ModelValues(load_file(folder / "variables.safetensors"), tables)
            model_fn = _resolve(module, reference["qualname"])
            self._call = ModelCaller(model_fn, _decoded(self._config["params"]), None)

    # Of the annotations of the input this is one that MLflow neither warns of nor makes a schema of.
    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> dict[str, Any]:
        """Return the predictions, each an array with one row for each row of the input.

        `model_input` is a DataFrame with the columns of the training data (others are ignored), or a mapping of
        feature names to arrays, or one array.
        """
        from ps_runtime.model.spec import ModeKeys

        features = self._features(model_input)
        step = self._config["global_step"]
        predictions = self._call.apply(features, None, ModeKeys.PREDICT, self._values, step).predictions
        if not isinstance(predictions, Mapping):
            predictions = {"predictions": predictions}
        return {name: np.asarray(value) for name, value in predictions.items()}

    def _features(self, given: Any) -> Any:
        """Bring the input into the form that model_fn was trained on."""
        wanted = self._config["features"]
        columns = self._config["columns"]
        if set(wanted) == {""}:  # one array without a name
            return _array(given, "", wanted[""])
        if columns and not isinstance(given, Mapping) and hasattr(given, "columns"):
            [name] = wanted
            return {name: _array(given[columns], name, wanted[name])}
        if len(wanted) == 1 and isinstance(given, np.ndarray):
            [name] = wanted
            return {name: _array(given, name, wanted[name])}
        missing = [name for name in wanted if name not in given]
        if missing:
            raise ValueError(f"the input has no feature {missing[0]!r}, expected {', '.join(map(repr, wanted))}")
        return {name: _array(given[name], name, form) for name, form in wanted.items()}


@contextmanager
def _own_code_first(code: Path) -> Iterator[None]:
    """Import from the export, but leave a psflow that is installed here whole.

    The export has only a part of psflow's engine. MLflow puts it first on the path, and leaves it there for all that
    is imported later, and for the processes that are started later: it goes to the end.
    """
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != os.path.realpath(code)]
    with suppress(ModuleNotFoundError):
        importlib.import_module("ps_runtime")
    sys.path.insert(0, str(code))
    try:
        yield
    finally:
        sys.path.remove(str(code))
        sys.path.append(str(code))


def _read_tables(folder: Path, specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sparse tables by name: the rows that training created; the others follow from their seed."""
    from safetensors.numpy import load_file

    from ps_runtime.specs.tables import TableSpec
    from ps_runtime.tables.table import Table

    tables = {}
    for index, facts in enumerate(specs):
        table = tables[facts["name"]] = Table(TableSpec(**facts), None)
        table.load(load_file(folder / f"table_{index}.safetensors"))
    return tables


def _array(given: Any, name: str, form: Mapping[str, Any]) -> Any:
    array = np.asarray(given)
    if array.dtype == object and form["shape"]:
        array = np.stack(list(array))  # a column of a DataFrame whose cells are arrays
    array = np.asarray(array, np.dtype(form["dtype"]))
    if list(array.shape[1:]) != form["shape"]:
        got, expected = list(array.shape), ["batch", *form["shape"]]
        raise ValueError(f"feature {name!r} has shape {got}, expected {expected}".replace("'batch'", "batch"))
    return array


def _check_version(module: Any, sha256: str | None) -> None:
    """Refuse the code of another version of the model, which this process has imported before."""
    if sha256 is None:
        return
    path = Path(inspect.getfile(module))
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ImportError(
            f"this process has another version of {module.__name__!r} from {path} than the exported model needs; "
            "load the model in a process of its own"
        )


def _resolve(module: Any, qualname: str) -> Any:
    owner, found = None, module
    for name in qualname.split("."):
        owner, found = found, getattr(found, name)
    if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, name)):
        return found.__get__(object.__new__(owner))  # a method; its instance has no state here
    return found


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$dataclass" not in value:
        return {key: _decoded(item) for key, item in value.items()}
    module, _, name = value["$dataclass"].partition(":")
    if not module.startswith("ps_runtime."):
        raise ValueError(f"config.json names the class {value['$dataclass']!r}, which is not one of psflow")
    return getattr(importlib.import_module(module), name)(**_decoded(value["fields"]))


set_model(ExportedModel())
