"""Training calls of a model_fn: the loss and the gradient of each variable and table, manual or by autograd."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnError, did_you_mean
from psflow.ps_runtime.model.calls.caller import BuiltModel, ModelCaller, check_loss
from psflow.ps_runtime.model.calls.scope import CallScope, Declared, current_scope
from psflow.ps_runtime.model.calls.values import RowSource
from psflow.ps_runtime.model.lookups import Lookups, RowGradient, SparseGradient, row_gradient
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.model.summary_files import FileSummary
from psflow.ps_runtime.numeric import plain
from psflow.ps_runtime.optimizers.base import (
    EvaluatedSchedule,
    Evaluations,
    Optimizer,
    TrainOp,
    no_evaluations,
)
from psflow.ps_runtime.specs.variables import TableSpec

if TYPE_CHECKING:
    from psflow.ps_runtime.model.calls.autodiff import Trace

logger = logging.getLogger(__name__)


def gradient_buffer(name: str) -> NDArray[Any]:
    """Return an array for computing the gradient of a variable in it, which avoids a copy before the push.

    Parameters
    ----------
    name : str
        Name of a trainable variable, after `get_variable` was called for it.

    Returns
    -------
    array of the variable's shape and dtype
        Uninitialised. Fill it completely and pass it to `apply_gradients`. Valid during this call of model_fn.

    Raises
    ------
    ModelFnError
        Outside a model_fn; for a name that is not a trainable variable of the model; for the same name a second time.

    Notes
    -----
    With one ps, and without sparse tables, it is the memory that is sent, or that the ps itself reads. Otherwise it is
    ordinary memory, and the gradient is copied like any other.

    Examples
    --------
    >>> def model_fn(features, labels, mode):
    ...     w = get_variable("w", (10_000_000,))
    ...     gradient = np.multiply(w, 0.01, out=gradient_buffer("w"))
    ...     train_op = GradientDescent(learning_rate=0.1).apply_gradients({"w": gradient})
    ...     return EstimatorSpec(mode, loss=w[0], train_op=train_op)
    """
    return current_scope("gradient_buffer").gradient_buffer(name)


Gradients = dict[str, NDArray[Any] | RowGradient]


class StepResult(NamedTuple):
    """Results of one training call, as plain numbers and arrays."""

    spec: EstimatorSpec
    loss: float
    gradients: Mapping[str, NDArray[Any] | RowGradient]
    """An array for a variable, a RowGradient for a table; no entry where nothing changes."""
    learning_rates: tuple[float, ...]
    summaries: Mapping[str, Any]
    file_summaries: Mapping[str, FileSummary]
    """Histograms, images and texts, by file name."""


class GradientFn:
    """Calls model_fn in TRAIN mode on given variables and rows."""

    def __init__(self, caller: ModelCaller, built: BuiltModel, evaluations: Evaluations = no_evaluations) -> None:
        self._caller = caller
        self._evaluations = evaluations
        self._rates: dict[int, float] = {}
        """Last learning rates that depend on evaluations, by the index of the optimizer."""
        self._declared = built.declared
        self._seed = built.seed
        self._tables = {table.name: table for table in built.model.tables}
        self._first_ops = built.spec.train_ops
        self._are_minimized = [op.gradients is None for op in self._first_ops]
        self._is_traced = True in self._are_minimized
        self._optimizer_of = {v.name: v.optimizer for v in built.model.variables}
        self._optimizer_of |= {t.name: t.optimizer for t in built.model.tables}
        self._names_of = [
            frozenset(name for name, optimizer in self._optimizer_of.items() if optimizer == index)
            for index in range(len(self._first_ops))
        ]
        self._trainable = sorted(n for n, d in built.declared.items() if d.trainable)

    def __call__(
        self,
        features: Any,
        labels: Any,
        variables: Mapping[str, Any],
        global_step: int,
        rows: RowSource | None = None,
        lookups: Lookups | None = None,
        buffers: Callable[[], Mapping[str, NDArray[Any]]] | None = None,
    ) -> StepResult:
        """Return loss and gradients of one batch.

        Raises ModelFnError if the call differs from the first one, or breaks the trace (``float(loss)``, plain numpy).
        """
        scope = CallScope(
            global_step,
            variables,
            self._declared,
            self._tables,
            rows,
            buffers,
            seed=self._seed,
            lookups=Lookups() if lookups is None else lookups,
        )
        summaries: Mapping[str, Any] = scope.summaries
        if self._is_traced:
            spec, ops, gradients = self._differentiate(features, labels, scope)
            spec = _plain_spec(spec)
            summaries = {name: plain(value) for name, value in summaries.items()}
        else:
            spec = self._caller(features, labels, ModeKeys.TRAIN, scope)
            ops, gradients = self._ops(spec), {}
            for index, op in enumerate(ops):
                gradients |= clipped(op.optimizer, self._checked(index, op, scope))
        check_loss(spec.loss, self._caller.name)
        rates = tuple([self._learning_rate(i, op.optimizer, global_step) for i, op in enumerate(ops)])
        return StepResult(spec, float(spec.loss), gradients, rates, summaries, scope.file_summaries)

    def _learning_rate(self, index: int, optimizer: Optimizer, global_step: int) -> float:
        rate = optimizer.learning_rate_at(global_step, self._evaluations)
        if isinstance(schedule := optimizer.learning_rate, EvaluatedSchedule):
            if rate != self._rates.get(index, schedule(0)):
                logger.info(
                    "learning rate is %g from global_step %d, by evaluated %s", rate, global_step, schedule.metric
                )
            self._rates[index] = rate
        return rate

    def _ops(self, spec: EstimatorSpec) -> tuple[TrainOp, ...]:
        ops = spec.train_ops
        if len(ops) != len(self._first_ops) or True in map(_is_other_rule, ops, self._first_ops):
            raise ModelFnError(
                (
                    f"{self._caller.name} must return optimizers with the same configuration in every call; "
                    "only their learning rates may change",
                )
            )
        if [op.gradients is None for op in ops] != self._are_minimized:
            raise ModelFnError(
                (f"{self._caller.name} must use either minimize or apply_gradients in every call, as in the first one",)
            )
        return ops

    def _checked(self, index: int, op: TrainOp, scope: CallScope) -> Gradients:
        """Return the gradients that were given to an optimizer, after checking them."""
        given = op.gradients or {}
        self._check_names(index, given)
        if all(map(is_, given.values(), map(scope.provided.get, given))):
            return dict(given)  # of the right shapes and dtypes
        gradients: Gradients = {}
        for name, value in given.items():
            known = self._declared.get(name)
            if known is None:
                gradient = row_gradient(self._tables[name], value, scope.lookups)
                if len(gradient.ids):
                    gradients[name] = gradient
            elif type(value) is np.ndarray and value.shape == known.shape and value.dtype.kind == "f":
                gradients[name] = value
            else:
                gradients[name] = _dense_gradient(name, value, known)
        return gradients

    def _check_names(self, index: int, names: Iterable[str]) -> None:
        """Refuse variables and tables that this optimizer did not train in the first call."""
        if self._names_of[index].issuperset(names):
            return
        faults = []
        for name in names:
            if name not in self._optimizer_of:
                faults.append(f"gradient for the unknown variable {name!r}{did_you_mean(name, self._optimizer_of)}")
            elif self._optimizer_of[name] != index:
                faults.append(f"train_op names {name!r}, which it did not train in the first call")
        if faults:
            raise ModelFnError(tuple(faults))

    def _differentiate(
        self, features: Any, labels: Any, scope: CallScope
    ) -> tuple[EstimatorSpec, tuple[TrainOp, ...], Gradients]:
        from psflow.ps_runtime.model.calls.autodiff import Trace, left_the_trace  # autograd is slow to import

        gradients: Gradients = {}
        with Trace.opened() as trace:
            scope.values = {**scope.values, **{n: trace.follow(n, scope.values[n]) for n in self._trainable}}
            rows = scope.row_source = _FollowedRows(trace, scope.row_source)
            spec = self._caller(features, labels, ModeKeys.TRAIN, scope)
            for index, op in enumerate(ops := self._ops(spec)):
                if op.gradients is not None:
                    gradients |= clipped(op.optimizer, self._checked(index, op, scope))
                    continue
                loss = spec.loss if op.loss is None else op.loss
                check_loss(plain(loss), self._caller.name)
                found = trace.gradients(loss)
                if not found:
                    raise left_the_trace("the loss depends on no variable")
                wanted = [*self._trainable, *self._tables] if op.var_list is None else op.var_list
                self._check_names(index, wanted)
                of_loss: Gradients = {n: np.asarray(found[n], self._declared[n].dtype) for n in wanted if n in found}
                gradients |= clipped(op.optimizer, {**of_loss, **rows.gradients(found, wanted)})
        return spec, ops, gradients


class _FollowedRows:
    """Provides rows traced by autograd. One table may be looked up several times."""

    def __init__(self, trace: Trace, source: RowSource | None) -> None:
        self._trace = trace
        self._source = source
        self._given: dict[tuple[str, int], tuple[TableSpec, NDArray[np.int64], Any]] = {}

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> Any:
        assert self._source is not None
        key = (spec.name, id(ids))
        if key not in self._given:
            self._given[key] = (spec, ids, self._trace.follow(key, self._source.rows(spec, ids)))
        return self._given[key][2]

    def gradients(self, found: Mapping[Any, Any], wanted: Collection[str]) -> dict[str, RowGradient]:
        """Return the gradient of each of the `wanted` tables, summed over its lookups."""
        parts: dict[str, list[tuple[NDArray[np.int64], NDArray[Any]]]] = {}
        for key, (spec, ids, _) in self._given.items():
            if key in found and spec.name in wanted and len(ids):
                parts.setdefault(spec.name, []).append((ids, found[key]))
        specs = {spec.name: spec for spec, _, _ in self._given.values()}
        return {name: RowGradient.sum(specs[name], of_table) for name, of_table in parts.items()}


def clipped(optimizer: Optimizer, gradients: Gradients) -> Gradients:
    """Return the gradients of one optimizer as its `clip_value`, `clip_variable_norm` and `clip_norm` limit them.

    A norm that is not finite limits nothing: such gradients are refused later, with their variable.
    """
    if not optimizer.clips:
        return gradients
    if (limit := optimizer.clip_value) is not None:
        within = partial(np.clip, a_min=-limit, a_max=limit)
        gradients = {name: _each(gradient, within) for name, gradient in gradients.items()}
    if (limit := optimizer.clip_variable_norm) is not None:
        gradients = {name: _scaled(gradient, limit, _norm([gradient])) for name, gradient in gradients.items()}
    if (limit := optimizer.clip_norm) is not None:
        norm = _norm(gradients.values())
        gradients = {name: _scaled(gradient, limit, norm) for name, gradient in gradients.items()}
    return gradients


def _norm(gradients: Iterable[NDArray[Any] | RowGradient]) -> float:
    arrays = (gradient.values if isinstance(gradient, RowGradient) else gradient for gradient in gradients)
    return math.sqrt(sum(map(_square, arrays)))


def _square(array: NDArray[Any]) -> float:
    square = float(np.vdot(array, array))
    if math.isfinite(square):
        return square
    wide = array.astype(np.float64)  # of large numbers, whose squares no float32 can hold
    return float(np.vdot(wide, wide))


def _scaled(gradient: NDArray[Any] | RowGradient, limit: float, norm: float) -> NDArray[Any] | RowGradient:
    return _each(gradient, lambda values: values * (limit / norm)) if limit < norm < math.inf else gradient


def _each(
    gradient: NDArray[Any] | RowGradient, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[Any] | RowGradient:
    if isinstance(gradient, RowGradient):
        return replace(gradient, values=change(gradient.values))
    return change(gradient)


def _is_other_rule(op: TrainOp, first: TrainOp) -> bool:
    """Return whether two optimizers differ in more than the learning rate."""
    one, other = op.optimizer, first.optimizer
    is_same = one is other or (type(one) is type(other) and vars(one) == vars(other))
    return not is_same and one.config() != other.config()


def _dense_gradient(name: str, value: Any, known: Declared) -> NDArray[Any]:
    if isinstance(value, SparseGradient):
        raise ModelFnError((f"{name!r} is a variable: its gradient must be an array, got a SparseGradient",))
    gradient: NDArray[Any] = value if type(value) is np.ndarray else np.asarray(plain(value))
    if gradient.shape != known.shape or gradient.dtype.kind not in "fiu":
        raise ModelFnError(
            (
                f"the gradient of variable {name!r} is {gradient.dtype.name}{list(gradient.shape)}, "
                f"expected {known.dtype}{list(known.shape)}",
            )
        )
    return gradient


def _plain_spec(spec: EstimatorSpec) -> EstimatorSpec:
    predictions = spec.predictions
    if isinstance(predictions, Mapping):
        predictions = {name: plain(value) for name, value in predictions.items()}
    return replace(spec, predictions=plain(predictions), loss=plain(spec.loss))
