"""Calls a model_fn: checks its arguments, builds the model in its first call, and checks its EstimatorSpec."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError, ModelFnTypeError, did_you_mean
from psflow.ps_runtime.model.calls.scope import BuildScope, CallScope, Declared, KeyPath, ModelScope
from psflow.ps_runtime.model.calls.values import ModelValues, WatchedFeatures, observed
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.numeric import is_of_torch, read_only
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.input import ColumnSpec, column_differences
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
ARGUMENTS = ("features", "labels", "mode", "params", "config", "input_schema")


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """Results of the first call of a model_fn in a mode."""

    spec: EstimatorSpec
    model: ModelSpec
    declared: Mapping[str, Declared]
    initial_values: Mapping[str, NDArray[Any]]
    """Initial values of the variables; those of a table follow from its spec."""
    table_features: Mapping[str, tuple[KeyPath, ...]]
    """Positions of the ids in the features, for each table whose ids all are unchanged features."""
    feature_columns: tuple[ColumnSpec, ...]
    """The feature columns that its layers read."""
    reads: frozenset[str] | None
    """The features that it requested by name; None: all of them."""
    seed: int
    """The seed of the job."""


class ModelCaller:
    """A model_fn with its `params`, its `config` and its input schema.

    Raises ModelFnError if model_fn takes unknown arguments.
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        params: Mapping[str, Any],
        config: Any,
        input_schema: InputSchema | None = None,
    ) -> None:
        self.model_fn = model_fn
        self.params = dict(params)
        self.name = getattr(model_fn, "__qualname__", repr(model_fn))
        self.config = config
        given = {"params": self.params, "config": config, "input_schema": input_schema and input_schema.whole}
        accepted = _accepted_arguments(model_fn, self.name)
        self._bound = {name: value for name, value in given.items() if name in accepted}
        self.takes_labels = "labels" in accepted
        """Whether model_fn takes labels; else labels have no effect."""
        self.takes_params = "params" in accepted
        self.left_out: set[str] = set()
        """Features of an input that a first call did not read, so that later calls may not have them."""
        self._columns: dict[str, list[ColumnSpec]] = {}
        """Layers whose columns were not yet compared with those of the training."""
        for spec in () if input_schema is None else input_schema.feature_columns:
            self._columns.setdefault(spec.layer, []).append(spec)
        self._takes_mode = "mode" in accepted
        self._lacks_schema = "input_schema" in accepted and input_schema is None

    def reading(self, input_schema: InputSchema | None) -> Self:
        """Return a caller of the same model_fn that passes this schema of the training input."""
        return type(self)(self.model_fn, self.params, self.config, input_schema)

    def __call__(self, features: Any, labels: Any, mode: ModeKeys, scope: ModelScope) -> EstimatorSpec:
        """Call model_fn on one batch inside `scope`."""
        if self._lacks_schema:
            raise ModelFnError(
                (f"{self.name} takes input_schema, but the schema of its training input is not known here",)
            )
        arguments = dict(self._bound)
        if self.takes_labels:
            arguments["labels"] = labels
        if self._takes_mode:
            arguments["mode"] = mode
        with scope:
            try:
                spec = self.model_fn(features=features, **arguments)
            except KeyError as error:
                self._check_features(features, arguments, mode, error)
                raise
        if not isinstance(spec, EstimatorSpec):
            raise ModelFnTypeError((f"{self.name} must return an EstimatorSpec, got {type(spec).__name__}",))
        if spec.mode != mode:
            raise ModelFnError((f"{self.name} was called for {mode}, but its EstimatorSpec is for {spec.mode}",))
        for op in spec.train_ops:
            if op.global_step is not None and op.global_step != scope.global_step:
                raise _other_step(self.name, op.global_step, scope.global_step)
        if self._columns:
            self._check_columns(scope)
        return spec

    def _check_features(self, features: Any, arguments: Mapping[str, Any], mode: ModeKeys, error: KeyError) -> None:
        """Raise InputError if the missing key is a feature; repeat the call with watched features if needed."""
        watched = features
        if type(features) is dict:
            watched = WatchedFeatures(features)
            with contextlib.suppress(Exception):
                self.model_fn(features=watched, **arguments)
        name = error.args[0] if error.args else None
        if isinstance(watched, WatchedFeatures) and name in watched.missing:
            if name in self.left_out:
                fault = (
                    f"the input is read without its feature {name!r}, which the first call of {self.name} did not read "
                    f"in {mode} mode, and a later one does at {watched.missing[name]}; read it in every call"
                )
            else:
                fault = watched.fault(name, self.name, mode, "the input", list(dict.keys(watched)))
            raise InputError((fault,)) from error

    def _check_columns(self, scope: ModelScope) -> None:
        """Refuse feature columns that differ from those of the training, once per layer."""
        layers = [layer for layer in scope.columns if layer in self._columns]
        lines = [line for layer in layers for line in column_differences(self._columns[layer], scope.columns[layer]())]
        if lines:
            fault = f"{self.name} reads other feature columns than the model was trained on; restore them:"
            raise ModelFnError((fault, *lines))
        for layer in layers:
            self._columns.pop(layer, None)

    def build(self, features: Any, labels: Any, mode: ModeKeys, seed: int) -> BuiltModel:
        """Make the first call in a mode: create variables and tables, and fix the model."""

        def first_call(given: Any) -> tuple[EstimatorSpec, BuildScope]:
            scope = BuildScope(0, seed, features)
            return self(given, labels, mode, scope), scope

        (spec, scope), reads = observed(features, first_call)
        if mode == ModeKeys.TRAIN and not scope.tables and not any(d.trainable for d in scope.declared.values()):
            raise ModelFnError(
                (f"{self.name} created no trainable variable and no table; call get_variable or embedding_lookup",)
            )
        if spec.loss is not None:
            check_loss(spec.loss, self.name)
        model = _model_spec(scope.declared, scope.tables, spec.train_ops)
        columns = _specs_of(scope)
        return BuiltModel(spec, model, scope.declared, scope.values, scope.table_features, columns, reads, seed)

    def apply(self, features: Any, labels: Any, mode: ModeKeys, values: ModelValues, global_step: int) -> EstimatorSpec:
        """Call model_fn on given values, as evaluation and prediction do."""
        declared = {n: Declared(v.shape, v.dtype.name, True) for n, v in values.variables.items()}
        views = {n: read_only(v) for n, v in values.variables.items()}
        tables = {n: table.spec for n, table in values.tables.items()}
        return self(features, labels, mode, CallScope(global_step, views, declared, tables, values))


def _specs_of(scope: ModelScope) -> tuple[ColumnSpec, ...]:
    return tuple(spec for layer in sorted(scope.columns) for spec in scope.columns[layer]())


def _other_step(name: str, given: int, expected: int) -> ModelFnError:
    return ModelFnError(
        (
            f"{name} gave its optimizer global_step {given}, expected {expected}, that of get_or_create_global_step(): "
            "psflow itself counts the updates",
        )
    )


def check_loss(loss: Any, name: str) -> None:
    """Refuse a loss that is not a scalar number."""
    if type(loss) is float:
        return
    value = np.asarray(loss)
    if value.ndim or value.dtype.kind not in "fiu":
        raise ModelFnError(
            (f"the loss of {name} must be a scalar number, got {value.dtype.name}{list(value.shape)}; take its mean",)
        )


def _accepted_arguments(model_fn: Callable[..., Any], name: str) -> frozenset[str]:
    if is_of_torch(model_fn if isinstance(model_fn, type) else type(model_fn)):
        raise ModelFnTypeError(
            (f"model_fn {name} is a torch module: train it with psflow.torch.TorchEstimator, which takes its class",)
        )
    if not callable(model_fn):
        raise ModelFnTypeError((f"model_fn should be callable, got {type(model_fn).__name__}",))
    try:
        parameters = inspect.signature(model_fn).parameters
    except ValueError:  # of functions written in C
        raise ModelFnTypeError((f"model_fn should be a Python function, got {model_fn!r}",)) from None
    faults = [
        f"{name} takes the unknown argument {p!r}; expected some of {', '.join(ARGUMENTS)}{did_you_mean(p, ARGUMENTS)}"
        for p, parameter in parameters.items()
        if p not in ARGUMENTS and parameter.default is parameter.empty and parameter.kind not in _ANY_NUMBER
    ]
    if "features" not in parameters:
        faults.append(f"{name} must take the argument 'features'")
    if faults:
        raise ModelFnError(tuple(faults))
    return frozenset(parameters) & frozenset(ARGUMENTS)


def _model_spec(
    declared: Mapping[str, Declared], tables: Mapping[str, TableSpec], train_ops: tuple[TrainOp, ...]
) -> ModelSpec:
    is_trainable = {name: d.trainable for name, d in declared.items()} | dict.fromkeys(tables, True)
    trainable = [name for name, is_so in is_trainable.items() if is_so]
    optimizer_of: dict[str, int] = {}
    faults = []
    for index, op in enumerate(train_ops):
        named = list(op.gradients or ()) if op.var_list is None else list(op.var_list)
        for name in trainable if len(train_ops) == 1 and op.var_list is None else named:
            if optimizer_of.setdefault(name, index) != index:
                faults.append(f"{'table' if name in tables else 'variable'} {name!r} is trained by two optimizers")
        for name in named:
            if name not in is_trainable:
                faults.append(f"train_op names the unknown variable {name!r}{did_you_mean(name, is_trainable)}")
            elif not is_trainable[name]:
                faults.append(f"train_op names {name!r}, which is not trainable")
    if faults:
        raise ModelFnError(tuple(faults))
    return ModelSpec(
        tuple(VariableSpec(n, d.shape, d.dtype, optimizer_of.get(n), d.num_slices) for n, d in declared.items()),
        tuple(op.optimizer.config() for op in train_ops),
        tuple(replace(table, optimizer=optimizer_of.get(n)) for n, table in tables.items()),
    )
