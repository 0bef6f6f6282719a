"""What can be known of a job before anything starts: its model, its input, and whether they fit each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import Enforcement, check_repeatable, schema_of, unused_sentence
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError
from psflow.ps_runtime.estimator.user_code import user_code
from psflow.ps_runtime.model.best import is_better
from psflow.ps_runtime.model.caller import BuiltModel, ModelCaller
from psflow.ps_runtime.model.evaluation import batches_of, evaluate
from psflow.ps_runtime.model.exporters import BestExporter
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.model.values import ModelValues
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["EvaluationPlan", "JobPlan", "metric_names", "plan_evaluations", "plan_job"]

MAX_SPLIT_BATCHES = 64
SPLITS_PER_REPLICA = 4
"""Splits that each replica reads of an epoch, at least: more of them end an epoch more evenly."""

Batch = tuple[Any, Any]
LabelCheck = Callable[[Any, str], None]
"""Takes the labels of a whole data set and what to call it; raises InputError."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What the first call of model_fn and a look at the input have shown."""

    model: ModelSpec
    optimizers: tuple[Optimizer, ...]
    input: InputSpec
    datasets: Mapping[str, Dataset]
    """The inputs that are data sets: ``train``, ``eval`` for the first EvalSpec, ``eval_<name>`` for another."""
    ignored: tuple[str, ...] = ()
    """A sentence for each input that has what the model does not read."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What a look at the inputs of evaluations has shown."""

    datasets: Mapping[str, Dataset]
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
) -> JobPlan:
    """Open the inputs and call model_fn on a batch of each, as the roles will.

    Raises
    ------
    UsageError
        Whatever is wrong with model_fn, the inputs or what the exporters compare, before anything has started.
    """
    context = InputContext(num_replicas, 0)
    training = _Input(train_spec.input_fn, ModeKeys.TRAIN, caller.params, "train", None, context)
    first = training.first_batch()
    schema = training.opened.schema() if isinstance(training.opened, Dataset) else schema_of(*first)
    check_repeatable(schema, training.where)
    _check_labels([training], check_labels)
    evaluated = _eval_inputs(caller, eval_specs, schema)
    _check_labels(evaluated.values(), check_labels)
    built = _first_call(caller, first, ModeKeys.TRAIN, seed)
    for eval_spec, data in zip(eval_specs, evaluated.values(), strict=True):
        batch = data.first_batch()
        _same_model(caller, built.model, _first_call(caller, batch, ModeKeys.EVAL, seed), ModeKeys.TRAIN)
        _check_exporters(caller, built, batch, eval_spec)
    return JobPlan(
        replace(built.model, schema=schema),
        tuple(replace(op.optimizer, learning_rate=math.nan) for op in built.spec.train_ops),
        _input_spec(training.opened, num_replicas),
        _datasets({"train": training, **evaluated}),
        _ignored(evaluated),
    )


def plan_evaluations(
    caller: ModelCaller, eval_specs: Sequence[EvalSpec], model: ModelSpec, check_labels: LabelCheck
) -> EvaluationPlan:
    """Open the inputs of evaluations of checkpoints that hold `model`, and call model_fn on a batch of each.

    Raises
    ------
    UsageError
        Whatever is wrong with model_fn or the inputs, or if the checkpoints hold another model.
    """
    inputs = _eval_inputs(caller, eval_specs, model.schema)
    _check_labels(inputs.values(), check_labels)
    for data in inputs.values():
        _same_model(caller, model, _first_call(caller, data.first_batch(), ModeKeys.EVAL, 0), "the checkpoint")
    return EvaluationPlan(_datasets(inputs), _ignored(inputs))


def metric_names(caller: ModelCaller, eval_spec: EvalSpec, schema: InputSchema | None) -> frozenset[str]:
    """Return the names of the metrics that an evaluation will have, as a call of model_fn on a batch tells them.

    `schema` is that of the training input.

    Raises
    ------
    UsageError
        If model_fn or the input is wrong.
    """
    [data] = _eval_inputs(caller, [eval_spec], schema).values()
    batch = data.first_batch()
    return frozenset({"loss", *_first_call(caller, batch, ModeKeys.EVAL, 0).spec.eval_metric_ops})


def _contexts(eval_specs: Sequence[EvalSpec]) -> list[str]:
    return ["eval", *(f"eval_{spec.name or ''}" for spec in eval_specs[1:])][: len(eval_specs)]


class _Input:
    """What an input_fn returned, whom to blame, and what of it the model does not read."""

    def __init__(
        self,
        input_fn: Callable[..., Any],
        mode: ModeKeys,
        params: Mapping[str, Any],
        name: str,
        schema: InputSchema | None,
        context: InputContext | None = None,
    ) -> None:
        self.where = f"the {name} input"
        self.unused: list[str] = []
        self._input_fn = input_fn
        self._mode = mode
        enforcement = Enforcement(schema, self.where, on_unused=self.unused.extend)
        with user_code(input_fn, InputError, f"in {mode} mode"):
            self.opened = open_input(input_fn, context, mode=mode, params=params, enforcement=enforcement)

    def first_batch(self) -> Batch:
        with user_code(self._input_fn, InputError, f"in {self._mode} mode"):
            batch = next(iter(batches_of(self.opened)), None)
        if batch is None:
            raise InputError((f"the input_fn for {self._mode} returned no batch",))
        return batch


def _eval_inputs(caller: ModelCaller, eval_specs: Sequence[EvalSpec], schema: InputSchema | None) -> dict[str, _Input]:
    return {
        name: _Input(spec.input_fn, ModeKeys.EVAL, caller.params, name, schema)
        for name, spec in zip(_contexts(eval_specs), eval_specs, strict=True)
    }


def _check_labels(inputs: Iterable[_Input], check_labels: LabelCheck) -> None:
    for data in inputs:
        if isinstance(data.opened, Dataset):
            check_labels(data.opened.labels, data.where)


def _datasets(inputs: Mapping[str, _Input]) -> dict[str, Dataset]:
    return {name: data.opened for name, data in inputs.items() if isinstance(data.opened, Dataset)}


def _ignored(inputs: Mapping[str, _Input]) -> tuple[str, ...]:
    return tuple(unused_sentence(data.where, data.unused) for data in inputs.values() if data.unused)


def _first_call(caller: ModelCaller, batch: Batch, mode: ModeKeys, seed: int) -> BuiltModel:
    with user_code(caller.model_fn, ModelFnError, f"in {mode} mode"):
        return caller.build(*batch, mode, seed)


def _same_model(caller: ModelCaller, model: ModelSpec, evaluated: BuiltModel, where: str) -> None:
    """Refuse what is asked for in evaluation and `model` does not have; `where` says what `model` is."""
    shapes = {variable.name: variable.shape for variable in model.variables}
    faults = []
    for name, declared in evaluated.declared.items():
        if name not in shapes:
            faults.append(f"{caller.name} creates variable {name!r} in {ModeKeys.EVAL} but not in {where}")
        elif shapes[name] != declared.shape:
            faults.append(
                f"{caller.name} creates variable {name!r} with shape {list(declared.shape)} in {ModeKeys.EVAL}, "
                f"expected {list(shapes[name])} as in {where}"
            )
    tables = {table.name: table for table in model.tables}
    for table in evaluated.model.tables:
        if table.name not in tables:
            faults.append(f"{caller.name} uses table {table.name!r} in {ModeKeys.EVAL} but not in {where}")
        elif differences := tables[table.name].differences(table):
            faults.append(
                f"{caller.name} uses a different table {table.name!r} in {ModeKeys.EVAL} than in {where}: "
                f"{'; '.join(differences)}"
            )
    if faults:
        raise ModelFnError(tuple(faults))


def _check_exporters(caller: ModelCaller, built: BuiltModel, batch: Batch, eval_spec: EvalSpec) -> None:
    """Compare the metrics of one batch with themselves, so that what cannot be compared is not found out at the end."""
    exporters = [exporter for exporter in eval_spec.all_exporters if isinstance(exporter, BestExporter)]
    if not exporters:
        return
    values = ModelValues.initial(built.model, built.initial_values)
    with user_code(caller.model_fn, ModelFnError, f"in {ModeKeys.EVAL} mode"):
        metrics = evaluate(caller, iter([batch]), values, 0, None)
    for exporter in exporters:
        with user_code(exporter.compare_fn, UsageError, f"over the metrics {', '.join(sorted(metrics))}"):
            is_better(exporter.compare_fn, metrics, metrics)


def _input_spec(opened: Any, num_replicas: int) -> InputSpec:
    if not isinstance(opened, Dataset):
        return InputSpec(None)
    num_batches = -(-opened.num_records // opened.batch_size)
    split_batches = max(1, min(MAX_SPLIT_BATCHES, num_batches // (SPLITS_PER_REPLICA * num_replicas)))
    return InputSpec(opened.num_records, opened.batch_size, opened.num_epochs, split_batches)
