"""Runs an exported model in MLflow; this file is copied into every export.

It may import only numpy, safetensors, MLflow and the code in the export.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import json
import operator
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel


class RefusedInputError(MlflowException, ValueError):
    """The input is invalid. A server answers with status 400 and the message; for other errors with the traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(message, error_code=INVALID_PARAMETER_VALUE)


class ExportedModel(PythonModel):
    """Calls the model_fn of an export in PREDICT mode on the exported variables."""

    def load_context(self, context: Any) -> None:
        """Load the export, without training code and pickle."""
        from safetensors.numpy import load_file

        folder = Path(context.artifacts["model"])
        self._config = json.loads((folder / "config.json").read_text())
        code = ExportedCode(folder.parents[1] / "code")
        self._modes = code.load("psflow.ps_runtime.model.spec").ModeKeys
        self._outputs = code.load("psflow.ps_runtime.model.export.outputs")
        values = code.load("psflow.ps_runtime.model.calls.values").ModelValues
        self._schema = code.load("psflow.ps_runtime.specs.schema").InputSchema.from_facts(self._config["schema"])
        self._served_features = code.load("psflow.ps_runtime.model.export.serving_input").served_features
        self._refused = code.load("psflow.ps_runtime.errors").InputError
        self._serving_input = _serving_input(self._config["serving_input_receiver_fn"], code)
        caller = code.load("psflow.ps_runtime.model.calls.caller").ModelCaller
        reference = self._config["model_fn"]
        model_fn = _resolve(code.load(reference["module"]), reference["qualname"])
        tables = _read_tables(folder, self._config["tables"], code)
        self._values = values(load_file(folder / "variables.safetensors"), tables)
        self._call = caller(model_fn, _decoded(self._config["params"], code), None, self._schema)

    # For this annotation of the input MLflow neither warns nor derives a schema.
    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> dict[str, Any]:
        """Return the predictions, each an array with one row per input row.

        `model_input` is a DataFrame with the columns of the training data (others are ignored), or a mapping of
        feature names to arrays, or one array. It has stored values: the model itself scales them. A
        serving_input_receiver_fn converts its inputs to such values. `params` may name a signature.
        """
        features = self._features(model_input)
        step = self._config["global_step"]
        spec = self._call.apply(features, None, self._modes.PREDICT, self._values, step)
        name = (params or {}).get("signature_name", self._outputs.DEFAULT_SIGNATURE)
        outputs = self._outputs.outputs_of(spec.export_outputs, spec.predictions, features)
        with self._refusals():
            return dict(self._outputs.served_outputs(outputs, name))

    def _features(self, given: Any) -> Any:
        """Convert the input to the features of model_fn; RefusedInputError if that is impossible."""
        with self._refusals():
            if self._serving_input is not None:
                given = self._serving_input.features(given, "the input")
            return self._served_features(given, self._schema, "the input")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Convert errors of psflow in the block to RefusedInputError."""
        try:
            yield
        except self._refused as error:
            raise RefusedInputError(str(error)) from None


class ExportedCode:
    """The code of an export, as modules that are isolated from other modules of this process.

    The modules are in a package named after their content and place, and import each other from it. So they do not
    conflict with another installed version of psflow, another version of the model, or a file of the same name in the
    working directory.
    """

    def __init__(self, folder: Path) -> None:
        code = os.path.realpath(folder)
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != code]
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode() + path.read_bytes())
        digest.update(code.encode())  # a copy elsewhere may outlive this one
        self._name = f"_psflow_export_{digest.hexdigest()[:16]}"
        if self._name not in sys.modules:
            sys.meta_path.insert(0, _Finder(self._name, frozenset(path.stem for path in folder.iterdir())))
            package = ModuleType(self._name, f"The code of an export, from {folder}.")
            package.__path__ = [code]
            sys.modules.setdefault(self._name, package)  # visible only when complete

    def load(self, name: str) -> Any:
        """Import a module of the export by its name in training."""
        return importlib.import_module(f"{self._name}.{name}")


class _Finder:
    """Finds the modules of one package for the import system; `_Loader` loads them."""

    def __init__(self, package: str, names: frozenset[str]) -> None:
        self._package = package
        self._names = names

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith(f"{self._package}."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._package, self._names)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module from its source: a compiled file would have the original imports."""

    def __init__(self, fullname: str, path: str, package: str, names: frozenset[str]) -> None:
        super().__init__(fullname, path)
        self._package = package
        self._names = names

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        return compile(_Imports(self._package, self._names).visit(tree), self.path, "exec", dont_inherit=True)


class _Imports(ast.NodeTransformer):
    """Rewrites imports of the modules `names` to `package`."""

    def __init__(self, package: str, names: frozenset[str]) -> None:
        self._package = package
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, ast.expr) else super().generic_visit(node)  # expressions contain no imports

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if not node.level and self._is_ours(node.module or ""):
            node.module = f"{self._package}.{node.module}"
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        imports = [done for alias in node.names for done in self._import(alias)]
        return [ast.fix_missing_locations(ast.copy_location(done, node)) for done in imports]

    def _import(self, alias: ast.alias) -> list[ast.stmt]:
        if not self._is_ours(alias.name):
            return [ast.Import([alias])]
        whole = f"{self._package}.{alias.name}"
        if alias.asname:
            return [ast.Import([ast.alias(whole, alias.asname)])]
        top = alias.name.partition(".")[0]  # the name bound by "import a.b"
        return [ast.Import([ast.alias(whole)]), ast.ImportFrom(self._package, [ast.alias(top)], 0)]

    def _is_ours(self, module: str) -> bool:
        return module.partition(".")[0] in self._names


def _read_tables(folder: Path, specs: Sequence[Mapping[str, Any]], code: ExportedCode) -> dict[str, Any]:
    """Return the sparse tables by name, with the created rows; other rows follow from the seed."""
    from safetensors.numpy import load_file

    spec = code.load("psflow.ps_runtime.specs.variables").TableSpec
    table_of = code.load("psflow.ps_runtime.tables.table").Table
    tables = {}
    for index, facts in enumerate(specs):
        table = tables[facts["name"]] = table_of(spec(**facts), None)
        table.load(load_file(folder / f"table_{index}.safetensors"))
    return tables


def _serving_input(facts: Any, code: ExportedCode) -> Any:
    """Return the serving_input_receiver_fn in config.json; None without one."""
    if facts is None:
        return None
    is_function = "qualname" in facts
    function = _resolve(code.load(facts["module"]), facts["qualname"]) if is_function else _decoded(facts, code)
    return code.load("psflow.ps_runtime.model.export.serving_input").ServingInput.of(function)


def _resolve(module: Any, qualname: str) -> Any:
    owner, found = None, module
    for name in qualname.split("."):
        owner, found = found, getattr(found, name)
    if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, name)):
        return found.__get__(object.__new__(owner))  # a method; its instance has no state
    return found


def _decoded(value: Any, code: ExportedCode) -> Any:
    if isinstance(value, list):
        return [_decoded(item, code) for item in value]
    if not isinstance(value, dict):
        return value
    if "$function" in value:
        module, _, name = value["$function"].partition(":")
        function = operator.attrgetter(name)(code.load(module))
        return functools.partial(function, **_decoded(value["keywords"], code)) if value["keywords"] else function
    if "$dataclass" not in value:
        return {key: _decoded(item, code) for key, item in value.items()}
    module, _, name = value["$dataclass"].partition(":")
    kind = getattr(code.load(module), name)  # only modules of this export are loaded
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ValueError(f"config.json names {value['$dataclass']!r}, expected a dataclass of this export")
    return kind(**_decoded(value["fields"], code))


set_model(ExportedModel())
