"""Evaluates and predicts: metrics and predictions of a model over an input."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.arrays import num_rows
from psflow.ps_runtime.data.batch_check import batch_named
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.kept_scan import KeptScan
from psflow.ps_runtime.data.non_finite import RecordSource, non_finite_cells
from psflow.ps_runtime.data.splittable import KnownInput, SplittableInput
from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.metrics import Metric, mean
from psflow.ps_runtime.model.calls.caller import ModelCaller, check_loss
from psflow.ps_runtime.model.calls.mode_reads import ModeReads
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.hooks.batch import BatchHooks, BatchSession
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    from psflow.ps_runtime.checkpoint.reader import CheckpointReader
    from psflow.ps_runtime.model.training import EvalSpec

EXAMPLE_ROWS = 3
"""Number of input rows in the example of an export."""

Batch = tuple[Any, Any]


def batches_of(opened: SplittableInput | Iterator[Batch], first: int = 0, every: int = 1) -> Iterator[Batch]:
    """Return the batches of one epoch, in record order: all, or `every` so many from number `first` on, from 0."""
    if not isinstance(opened, SplittableInput):
        return itertools.islice(opened, first, None, every)
    starts = range(0, opened.num_records, opened.batch_size)[first::every]
    return (opened.read(0, start, min(start + opened.batch_size, opened.num_records)) for start in starts)


def read_values(reader: CheckpointReader) -> ModelValues:
    """Return the values of the whole model in a checkpoint. Blocks.

    Raises CheckpointError if bytes of the checkpoint are missing or have changed.
    """
    model = reader.manifest.model
    return ModelValues(
        reader.variables(variable.name for variable in model.variables),
        {table.name: reader.table(table) for table in model.tables},
    )


def evaluate(
    caller: ModelCaller,
    opened: SplittableInput | Iterator[Batch],
    values: ModelValues,
    global_step: int,
    steps: int | None,
    hooks: Sequence[SessionRunHook] = (),
) -> dict[str, Any]:
    """Return the metrics of a model over an input, including ``loss`` (mean over batches) and ``global_step``.

    A metric with several numbers is an array, others are floats.

    Raises
    ------
    InputError
        If there is no batch.
    ModelFnError
        If model_fn returns other metrics for a later batch than for the first.
    """
    merged: dict[str, Metric] = {}
    session = BatchSession(values, global_step)
    calls = BatchHooks(hooks, session)
    for number, (features, labels) in enumerate(itertools.islice(batches_of(opened), steps)):
        calls.before_batch()
        with batch_named(f"batch {number} of the {ModeKeys.EVAL} input"):
            spec = session.spec = caller.apply(features, labels, ModeKeys.EVAL, values, global_step)
        if calls.called(spec.scaffold, spec.evaluation_hooks, "loss"):
            spec = session.spec = caller.apply(features, labels, ModeKeys.EVAL, values, global_step)
        check_loss(spec.loss, caller.name)
        measured: dict[str, Metric] = {**spec.metrics, "loss": mean(np.asarray([spec.loss]))}
        if merged and measured.keys() != merged.keys():
            raise _other_metrics(caller.name, measured, merged)
        merged = {name: merged[name].merge(metric) if merged else metric for name, metric in measured.items()}
        session.metrics = merged
        if calls.after_batch():
            break
    if not merged:
        raise InputError(("the input_fn for evaluation returned no batch",))
    calls.end()
    results = {name: metric.result() for name, metric in merged.items()}
    return {name: value if np.ndim(value) else float(value) for name, value in results.items()} | {
        "global_step": global_step
    }


def as_numbers(results: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as single numbers: the elements of an array ``m`` are named ``m_0``, ``m_1``, ...

    Raises ModelFnError if two metrics then have the same name.

    Examples
    --------
    >>> as_numbers({"loss": 0.5, "recalls": np.array([0.25, 1.0])})
    {'loss': 0.5, 'recalls_0': 0.25, 'recalls_1': 1.0}
    """
    numbers: dict[str, float] = {}
    for name, value in results.items():
        array = np.asarray(value)
        named = {"_".join([name, *map(str, place)]): array[place].item() for place in np.ndindex(array.shape)}
        if twice := sorted(numbers.keys() & named.keys()):
            raise ModelFnError((f"metric {name!r} is an array, whose {twice[0]!r} is a metric already; rename one",))
        numbers |= named
    return numbers


def predict_batch(caller: ModelCaller, features: Any, values: ModelValues, global_step: int) -> dict[str, NDArray[Any]]:
    """Return the predictions of an export for a batch, each of shape (batch, ...); see `check_servable`."""
    spec = caller.apply(features, None, ModeKeys.PREDICT, values, global_step)
    check_servable(spec, caller.name)
    return _predictions(spec)


def check_servable(spec: EstimatorSpec, name: str) -> None:
    """Refuse a model that an export cannot serve because it needs a session to prepare it.

    Raises ModelFnError if `spec`, of PREDICT, has a scaffold with `local_init_fn`.
    """
    if spec.scaffold is not None and spec.scaffold.local_init_fn is not None:
        raise ModelFnError(
            (
                f"{name} has a Scaffold with local_init_fn in {ModeKeys.PREDICT} mode, which exports skip; prepare "
                "the predictions in model_fn, or leave the exporters out",
            )
        )


def predict_batches(
    caller: ModelCaller,
    opened: SplittableInput | Iterator[Batch],
    values: ModelValues,
    global_step: int,
    hooks: Sequence[SessionRunHook] = (),
) -> Iterator[tuple[Any, int]]:
    """Yield predictions, which are arrays by name or one array, and number of rows for each batch of an input.

    `hooks` run around each batch, and after them the ``prediction_hooks`` of the first EstimatorSpec. A hook that
    requests a stop ends the prediction after the batch. ``end`` is not called if the iteration stops early.
    """
    session = BatchSession(values, global_step)
    calls = BatchHooks(hooks, session)
    for features, _ in batches_of(opened):
        calls.before_batch()
        spec = session.spec = caller.apply(features, None, ModeKeys.PREDICT, values, global_step)
        if calls.called(spec.scaffold, spec.prediction_hooks, list(_predictions(spec))):
            spec = session.spec = caller.apply(features, None, ModeKeys.PREDICT, values, global_step)
        is_over = calls.after_batch()
        yield spec.predictions, num_rows(features)
        if is_over:
            break
    calls.end()


def _predictions(spec: EstimatorSpec) -> dict[str, NDArray[Any]]:
    predictions = spec.predictions if isinstance(spec.predictions, Mapping) else {"predictions": spec.predictions}
    return {name: np.asarray(value) for name, value in predictions.items()}


def input_digest(opened: SplittableInput | Iterator[Batch], steps: int | None) -> str:
    """Return 32 hexadecimal digits that depend on the examples and their batches; "" for a stream.

    Reads all data. Also "" for batches that are computed while they are read.
    """
    if not isinstance(opened, KnownInput):
        return ""
    facts = [opened.digest(), *opened.order_facts(), steps]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def first_rows(features: Any) -> Any:
    """Return a few rows of a batch of features, as the example of an export."""
    if isinstance(features, Mapping):
        return {name: first_rows(value) for name, value in features.items()}
    return np.asarray(features)[:EXAMPLE_ROWS]


class OpenedEvaluation:
    """An EvalSpec whose data set, if its input is one, is opened once for all evaluated models."""

    def __init__(
        self,
        caller: ModelCaller,
        spec: EvalSpec,
        schema: InputSchema | None,
        check: Callable[[], None] = lambda: None,
        kept: KeptScan | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name or ""
        self.digest = ""
        """`input_digest` of the input, once it is open."""
        self.example: Any = None
        """A few rows of the features, once a batch was read."""
        self._first_cell = ""
        self._caller = caller
        self._check = check
        self._kept = kept
        self._enforcement = Enforcement(schema, f"the input of evaluation {self.name or 'eval'!r}")
        self._dataset: SplittableInput | None = None

    def measure(self, values: ModelValues, global_step: int) -> dict[str, float]:
        """Return the metrics of a model, as `evaluate` does, with the names of `as_numbers`. Blocks."""
        batches, steps = self._batches(values), self.spec.steps
        return as_numbers(evaluate(self._caller, batches, values, global_step, steps, self.spec.hooks))

    def first_non_finite_cell(self) -> str:
        """Return column and row of the first missing, NaN or infinite cell; "" if none was found so far."""
        opened = self._open(None)
        return opened.non_finite.first if isinstance(opened, KnownInput) else self._first_cell

    def _batches(self, values: ModelValues) -> Iterator[Batch]:
        opened = self._open(values)
        is_known = isinstance(opened, KnownInput)
        for number, (features, labels) in enumerate(batches_of(opened)):
            self._check()
            if self.example is None:
                self.example = first_rows(features)
            if not is_known and not self._first_cell:
                self._first_cell = non_finite_cells(features, labels, source=RecordSource(f"batch {number}"))[0].first
            yield features, labels

    def _open(self, values: ModelValues | None) -> SplittableInput | Iterator[Batch]:
        if self._dataset is not None:
            return self._dataset
        spec = self.spec
        opened = open_input(
            spec.input_fn,
            mode=ModeKeys.EVAL,
            params=self._caller.params,
            config=self._caller.config,
            non_finite=spec.non_finite,
            enforcement=replace(self._enforcement, reads=ModeReads.of(self._caller, spec, values)),
            kept=self._kept,
        )
        if isinstance(opened, SplittableInput):
            self.digest = input_digest(opened, spec.steps)
            self._dataset = opened
        return opened


def _other_metrics(name: str, measured: Mapping[str, Metric], first: Mapping[str, Metric]) -> ModelFnError:
    return ModelFnError(
        (
            f"{name} returned the metrics {', '.join(sorted(measured))}, but {', '.join(sorted(first))} for the first "
            "batch; the first call in a mode fixes the metrics",
        )
    )
