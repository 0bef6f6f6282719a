"""Plans a job before it starts: checks its model, its inputs, and whether they fit each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import num_rows as count_rows
from psflow.ps_runtime.data.batch_check import batch_named
from psflow.ps_runtime.data.called_input import CalledInput
from psflow.ps_runtime.data.enforcement import check_repeatable, unused_sentence
from psflow.ps_runtime.data.input_pipeline import InputContext
from psflow.ps_runtime.data.splittable import KnownInput, SplittableInput
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import InputError, LabelError, ModelFnError, UsageError
from psflow.ps_runtime.estimator.planned_inputs import (
    Batch,
    PlannedInput,
    eval_inputs,
    first_of_training,
    training_input,
)
from psflow.ps_runtime.model.best import is_better
from psflow.ps_runtime.model.calls.caller import BuiltModel, ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import as_numbers, check_servable, first_rows
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import ModelSpec, unused_lifetimes
from psflow.ps_runtime.tables.bounds import size_faults

MAX_SPLIT_BATCHES = 64
SPLIT_WINDOWS = 4
"""Windows per split, where records are read by windows: two replicas read the windows at the ends of a split."""
SPLITS_PER_REPLICA = 4
"""Minimum number of splits that each replica reads per epoch: more splits end an epoch more evenly."""

LabelCheck = Callable[[Any, str, InputSchema], None]
"""Takes the labels of a data set, its name in messages, and the schema of the training input; raises InputError."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Results of the first call of model_fn and of a look at the input."""

    model: ModelSpec
    trainable: frozenset[str]
    """Names of the variables that an optimizer may change, whether one does or not."""
    optimizers: tuple[Optimizer, ...]
    input: InputSpec
    datasets: Mapping[str, KnownInput]
    """The inputs that are completely known: ``train``, ``eval`` for the first EvalSpec, ``eval_<name>`` for others."""
    called: CalledInput
    """The training input, for reading it in this process."""
    built: BuiltModel
    """The first call of model_fn, for training in this process."""
    eval_metrics: Mapping[str, frozenset[str]]
    """The metrics of each evaluation, by the name of its EvalSpec; "" for one without a name."""
    ignored: tuple[str, ...] = ()
    """A sentence for each input with features that the model does not read."""
    doubts: tuple[str, ...] = ()
    """Sentences on columns of the training input that are probably read as the wrong kind, or should be scaled."""
    substitute_batch: Batch | None = None
    """The first batch, of another input, where the chief's part of the training input is empty."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Results of a look at the inputs of evaluations."""

    datasets: Mapping[str, KnownInput]
    """The inputs that are data sets, named as in `JobPlan`."""
    ignored: tuple[str, ...]
    """As in `JobPlan`."""


def plan_job(
    caller: ModelCaller,
    train_spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    seed: int,
    num_replicas: int,
    check_labels: LabelCheck,
    kept: KeptInputs,
    read_schema: Callable[[InputSchema, str], InputSchema] = lambda schema, _: schema,
    doubts_of: Callable[[Any, InputSchema, str], tuple[str, ...]] = lambda *_: (),
) -> JobPlan:
    """Open the inputs and call model_fn on a batch of each, in every mode that the roles use.

    That includes PREDICT if there are exporters. The first batch of each input is read once. Tabular files are scanned
    unless their scan is cached.

    Raises UsageError if model_fn, the inputs or the comparisons of exporters are wrong, before anything has started.
    """
    training = training_input(caller, train_spec, eval_specs, InputContext(num_replicas, 0), kept)
    first, source = first_of_training(training, caller, train_spec, eval_specs, num_replicas, kept)
    whole = read_schema(training.schema(first), source.where)
    _check_labels([training], check_labels, whole)
    substitute = None if source is training else source.where
    built = _first_call(caller.reading(whole), first, ModeKeys.TRAIN, seed, substitute)
    whole = replace(whole, feature_columns=built.feature_columns)
    schema = whole.narrowed(built.reads) if built.reads else whole
    check_repeatable(schema, source.where)
    read = frozenset(schema.names)
    training.unused += [name for name in whole.names if name not in read]
    caller = caller.reading(schema)
    evaluated = eval_inputs(caller, eval_specs, schema, kept)
    _check_labels(evaluated.values(), check_labels, schema)
    if faults := tuple(size_faults(built.model.tables, [op.optimizer for op in built.spec.train_ops])):
        raise ModelFnError(faults)
    if unused := tuple(unused_lifetimes(whole, built.model.tables)):
        raise InputError(unused)
    measuring: dict[str, BuiltModel] = {}
    for eval_spec, data in zip(eval_specs, evaluated.values(), strict=True):
        batch = data.first_batch()
        where = f"in {ModeKeys.TRAIN}"
        measuring[eval_spec.name or ""] = _check_modes(caller, eval_spec, batch, built.model, where, seed)
        _check_exporters(caller, built, batch, eval_spec)
    return JobPlan(
        replace(built.model, schema=schema),
        frozenset(name for name, declared in built.declared.items() if declared.trainable),
        tuple(replace(op.optimizer, learning_rate=math.nan) for op in built.spec.train_ops),
        _input_spec(training.opened, num_replicas, each_worker_reads_all=train_spec.each_worker_reads_all),
        _datasets({"train": training, **evaluated}),
        training.called,
        built,
        {name: frozenset({"loss", *call.spec.metrics}) for name, call in measuring.items()},
        _ignored({"train": training, **evaluated}),
        (*_column_doubts(schema, training.where), *doubts_of(first[0], schema, source.where)),
        None if source is training else first,
    )


def plan_evaluations(
    caller: ModelCaller, eval_specs: Sequence[EvalSpec], model: ModelSpec, check_labels: LabelCheck, kept: KeptInputs
) -> EvaluationPlan:
    """Open the inputs of evaluations of checkpoints that hold `model`, and call model_fn on a batch of each.

    Where an EvalSpec has exporters, also call it to predict.

    Raises UsageError if model_fn or the inputs are wrong, or if the checkpoints hold another model.
    """
    assert model.schema is not None, "a trained model has one"
    caller = caller.reading(model.schema)
    inputs = eval_inputs(caller, eval_specs, model.schema, kept)
    _check_labels(inputs.values(), check_labels, model.schema)
    for data, spec in zip(inputs.values(), eval_specs, strict=True):
        _check_modes(caller, spec, data.first_batch(), model, "in the checkpoint", 0)
    return EvaluationPlan(_datasets(inputs), _ignored(inputs))


def metric_names(
    caller: ModelCaller, eval_spec: EvalSpec, schema: InputSchema | None, kept: KeptInputs
) -> frozenset[str]:
    """Return the names of an evaluation's metrics, found by calling model_fn on a batch.

    `schema` is that of the training input.

    Raises UsageError if model_fn or the input is wrong.
    """
    caller = caller.reading(schema)
    [data] = eval_inputs(caller, [eval_spec], schema, kept).values()
    measured = _first_call(caller, data.first_batch(), ModeKeys.EVAL, 0).spec.metrics
    return frozenset({"loss", *as_numbers({name: metric.result() for name, metric in measured.items()})})


def _column_doubts(schema: InputSchema, where: str) -> list[str]:
    return [] if schema.preprocessing is None else [f"{where}: {doubt}" for doubt in schema.preprocessing.doubts()]


def _check_labels(inputs: Iterable[PlannedInput], check_labels: LabelCheck, schema: InputSchema) -> None:
    for data in inputs:
        if isinstance(data.opened, KnownInput):
            labels = data.opened.distinct_labels()
            try:
                check_labels(labels, data.where, schema)
            except LabelError as error:
                raise InputError(
                    (f"the label of {data.opened.place_of_label(error.row, data.where)} {error.reason}",)
                ) from None


def _datasets(inputs: Mapping[str, PlannedInput]) -> dict[str, KnownInput]:
    return {name: data.opened for name, data in inputs.items() if isinstance(data.opened, KnownInput)}


def _ignored(inputs: Mapping[str, PlannedInput]) -> tuple[str, ...]:
    return tuple(unused_sentence(data.where, data.unused, data.who) for data in inputs.values() if data.unused)


def _check_modes(
    caller: ModelCaller, spec: EvalSpec, batch: Batch, model: ModelSpec, where: str, seed: int
) -> BuiltModel:
    """Call model_fn as an evaluation does, and as exporters do, without labels; return what the first call built."""
    measuring = _first_call(caller, batch, ModeKeys.EVAL, seed)
    _same_model(caller, model, measuring, ModeKeys.EVAL, where)
    if not spec.all_exporters:
        return measuring
    features = first_rows(batch[0])
    built = _first_call(caller, (features, None), ModeKeys.PREDICT, seed)
    _same_model(caller, model, built, ModeKeys.PREDICT, where)
    check_servable(built.spec, caller.name)
    _check_predictions(caller, built.spec.predictions, count_rows(features))
    return measuring


def _check_predictions(caller: ModelCaller, predictions: Any, rows: int) -> None:
    """Refuse predictions without one row for each row of the input: they cannot be written next to it."""
    named = predictions if isinstance(predictions, Mapping) else {"predictions": predictions}
    shapes = {name: list(np.shape(value)) for name, value in named.items()}
    faults = [
        f"{caller.name} predicts {name!r} of shape {shape} for {rows} examples in {ModeKeys.PREDICT} mode: expected "
        "one row for each"
        for name, shape in shapes.items()
        if shape[:1] != [rows]
    ]
    if faults or not shapes:
        raise ModelFnError(tuple(faults) or (f"{caller.name} predicts nothing in {ModeKeys.PREDICT} mode",))


def _first_call(
    caller: ModelCaller, batch: Batch, mode: ModeKeys, seed: int, substitute: str | None = None
) -> BuiltModel:
    """Return what model_fn builds with a batch of the input of `mode`, or of the `substitute` for it."""
    if batch[1] is not None and not caller.takes_labels:
        raise ModelFnError(
            (
                f"{caller.name} does not take the argument 'labels', but the input for {mode} has labels; take them, "
                "or return (features, None) from the input_fn",
            )
        )
    when = f"in {mode} mode" + (f" with batch 0 of {substitute}" if substitute else "")
    with batch_named(f"batch 0 of {substitute or f'the {mode} input'}"), user_code(caller.model_fn, ModelFnError, when):
        return caller.build(*batch, mode, seed)


def _same_model(caller: ModelCaller, model: ModelSpec, evaluated: BuiltModel, mode: ModeKeys, where: str) -> None:
    """Refuse variables and tables that `mode` uses but `model` lacks; `where` names `model`."""
    shapes = {variable.name: variable.shape for variable in model.variables}
    faults = []
    for name, declared in evaluated.declared.items():
        if name not in shapes:
            faults.append(f"{caller.name} creates variable {name!r} in {mode} but not {where}")
        elif shapes[name] != declared.shape:
            faults.append(
                f"{caller.name} creates variable {name!r} with shape {list(declared.shape)} in {mode}, "
                f"expected {list(shapes[name])} as {where}"
            )
    tables = {table.name: table for table in model.tables}
    for table in evaluated.model.tables:
        if table.name not in tables:
            faults.append(f"{caller.name} uses table {table.name!r} in {mode} but not {where}")
        elif differences := tables[table.name].differences(table):
            faults.append(
                f"{caller.name} uses a different table {table.name!r} in {mode} than {where}: {'; '.join(differences)}"
            )
    if faults:
        raise ModelFnError(tuple(faults))


def _check_exporters(caller: ModelCaller, built: BuiltModel, batch: Batch, eval_spec: EvalSpec) -> None:
    """Compare the metrics of one batch with themselves, so that a failing comparison does not surface at the end."""
    exporters = [exporter for exporter in eval_spec.all_exporters if isinstance(exporter, BestExporter)]
    if not exporters:
        return
    values = ModelValues.initial(built.model, built.initial_values)
    with user_code(caller.model_fn, ModelFnError, f"in {ModeKeys.EVAL} mode"):
        spec = caller.apply(*batch, ModeKeys.EVAL, values, 0)
        measured = {name: metric.result() for name, metric in spec.metrics.items()}
        metrics = as_numbers({**measured, "loss": float(spec.loss), "global_step": 0})
    for exporter in exporters:
        with user_code(exporter.compare_fn, UsageError, f"over the metrics {', '.join(sorted(metrics))}"):
            is_better(exporter.compare_fn, metrics, metrics)


def _input_spec(opened: Any, num_replicas: int, *, each_worker_reads_all: bool) -> InputSpec:
    if not isinstance(opened, SplittableInput):
        return InputSpec(None, each_worker_reads_all=each_worker_reads_all)
    num_batches = -(-opened.num_records // opened.batch_size)
    wanted = max(MAX_SPLIT_BATCHES, SPLIT_WINDOWS * opened.window_records // opened.batch_size)
    split_batches = max(1, min(wanted, num_batches // (SPLITS_PER_REPLICA * num_replicas)))
    return InputSpec(
        opened.num_records,
        opened.batch_size,
        opened.num_epochs,
        split_batches,
        each_worker_reads_all=each_worker_reads_all,
        rows_per_record=opened.rows_per_record,
    )
