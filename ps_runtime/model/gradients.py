"""One training call of a model_fn: its loss and the gradient of each variable, hand-written or by autograd."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.errors import ModelFnError, did_you_mean
from ps_runtime.model.caller import BuiltModel, ModelCaller, check_loss
from ps_runtime.model.scope import CallScope
from ps_runtime.model.spec import EstimatorSpec, ModeKeys
from ps_runtime.optimizers.base import TrainOp
from ps_runtime.tracing import plain

__all__ = ["GradientFn", "StepResult"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one training call gave, all plain numbers and arrays."""

    spec: EstimatorSpec
    loss: float
    gradients: Mapping[str, NDArray[Any]]
    learning_rates: tuple[float, ...]
    summaries: Mapping[str, Any]


class GradientFn:
    """Calls model_fn in TRAIN mode on variables that are given.

    Parameters
    ----------
    caller : ModelCaller
    built : BuiltModel
        Of the first TRAIN call; it fixes variables, optimizers and the way gradients are had.
    """

    def __init__(self, caller: ModelCaller, built: BuiltModel) -> None:
        self._caller = caller
        self._declared = built.declared
        self._num_ops = len(built.spec.train_ops)
        self._optimizers = built.model.optimizers
        self._traced = [op.gradients is None for op in built.spec.train_ops]
        self._optimizer_of = {v.name: v.optimizer for v in built.model.variables}
        self._trainable = {n for n, d in built.declared.items() if d.trainable}
        if any(self._traced):
            _guard_traced_arrays()

    def __call__(self, features: Any, labels: Any, variables: Mapping[str, Any], global_step: int) -> StepResult:
        """Return loss and gradients of one batch.

        Raises
        ------
        ModelFnError
            If the call differs from the first one, or leaves the traced path (``float(loss)``, plain numpy).
        """
        gradients: dict[str, NDArray[Any]] = {}
        if any(self._traced):
            for index in range(self._num_ops):
                spec, scope, found = self._differentiate(index, features, labels, variables, global_step)
                gradients |= found
        else:
            scope = CallScope(global_step, variables, self._declared)
            spec = self._caller(features, labels, ModeKeys.TRAIN, scope)
            for index, op in enumerate(self._ops(spec)):
                gradients |= self._checked(index, op)
        check_loss(plain(spec.loss), self._caller.name)
        return StepResult(
            spec=_plain_spec(spec),
            loss=float(plain(spec.loss)),
            gradients=gradients,
            learning_rates=tuple(op.optimizer.learning_rate_at(global_step) for op in spec.train_ops),
            summaries={name: plain(value) for name, value in scope.summaries.items()},
        )

    def _ops(self, spec: EstimatorSpec) -> tuple[TrainOp, ...]:
        ops = spec.train_ops
        if len(ops) != self._num_ops or any(
            op.optimizer.config() != known for op, known in zip(ops, self._optimizers, strict=True)
        ):
            raise ModelFnError(
                (f"{self._caller.name} changed its optimizers; the first call in a mode fixes their configuration",)
            )
        if [op.gradients is None for op in ops] != self._traced:
            raise ModelFnError(
                (f"{self._caller.name} changed between minimize and apply_gradients; the first call fixes which",)
            )
        return ops

    def _checked(self, index: int, op: TrainOp) -> dict[str, NDArray[Any]]:
        gradients = {name: np.asarray(plain(gradient)) for name, gradient in (op.gradients or {}).items()}
        self._check_names(index, gradients)
        for name, gradient in gradients.items():
            known = self._declared[name]
            if gradient.shape != known.shape or gradient.dtype.kind not in "fiu":
                raise ModelFnError(
                    (
                        f"the gradient of variable {name!r} is {gradient.dtype.name}{list(gradient.shape)}, "
                        f"expected {known.dtype}{list(known.shape)}",
                    )
                )
        return gradients

    def _check_names(self, index: int, names: Iterable[str]) -> None:
        """Refuse variables that this optimizer did not train in the first call."""
        faults = []
        for name in names:
            if name not in self._declared:
                faults.append(f"gradient for the unknown variable {name!r}{did_you_mean(name, self._declared)}")
            elif self._optimizer_of[name] != index:
                faults.append(f"train_op names {name!r}, which it did not train in the first call")
        if faults:
            raise ModelFnError(tuple(faults))

    def _differentiate(
        self, index: int, features: Any, labels: Any, variables: Mapping[str, Any], global_step: int
    ) -> tuple[EstimatorSpec, CallScope, dict[str, NDArray[Any]]]:
        from autograd import make_vjp  # costs an import of its own; hand-written models go without

        seen: list[tuple[EstimatorSpec, CallScope]] = []
        reached: set[str] = set()

        def loss_of(traced: dict[str, Any]) -> Any:
            scope = CallScope(global_step, {**variables, **{n: traced[n] for n in traced}}, self._declared)
            spec = self._caller(features, labels, ModeKeys.TRAIN, scope)
            seen.append((spec, scope))
            op = self._ops(spec)[index]
            loss = spec.loss if op.loss is None else op.loss
            reached.update(_reached(loss, scope.values))
            if op.gradients is None and not reached:
                raise _left_the_trace("the loss depends on no variable")
            return loss

        names = sorted(self._trainable)
        vjp, value = make_vjp(loss_of)({name: variables[name] for name in names})
        spec, scope = seen[0]
        op = spec.train_ops[index]
        if op.gradients is not None:
            return spec, scope, self._checked(index, op)
        check_loss(plain(value), self._caller.name)
        found = vjp(np.ones_like(value))
        wanted = names if op.var_list is None else op.var_list
        self._check_names(index, wanted)
        return spec, scope, {name: np.asarray(found[name]) for name in wanted if name in reached}


def _plain_spec(spec: EstimatorSpec) -> EstimatorSpec:
    predictions = spec.predictions
    if isinstance(predictions, Mapping):
        predictions = {name: plain(value) for name, value in predictions.items()}
    return replace(spec, predictions=plain(predictions), loss=plain(spec.loss))


def _reached(loss: Any, variables: Mapping[str, Any]) -> list[str]:
    """Return the variables that `loss` was computed from: the others have no gradient, not one of zeros."""
    nodes, waiting = set(), [loss._node] if hasattr(loss, "_node") else []
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes.add(node)
            waiting += node.parents
    return [name for name, value in variables.items() if getattr(value, "_node", None) in nodes]


def _left_the_trace(what: str) -> ModelFnError:
    return ModelFnError(
        (
            f"{what}: a value that autograd traces went through plain numpy; with minimize(loss), compute the loss "
            "with `import autograd.numpy as np`, and do not call float() or .item() on it",
        )
    )


def _guard_traced_arrays() -> None:
    """Make plain numpy refuse traced values at once; left alone it crawls through them element by element."""
    from autograd.numpy.numpy_boxes import ArrayBox
    from autograd.tracer import Box

    def refuse(what: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            raise _left_the_trace(what)

        return method

    if any(cls.__name__ == "TracedArray" for cls in Box.types):
        return
    traced = type(
        "TracedArray",
        (ArrayBox,),
        {
            "__slots__": [],
            "__array__": refuse("a plain numpy function was called on a traced value"),
            "__float__": refuse("float() was called on a traced value"),
            "__int__": refuse("int() was called on a traced value"),
            "__round__": refuse("round() was called on a traced value"),
            "item": refuse(".item() was called on a traced value"),
            "tolist": refuse(".tolist() was called on a traced value"),
        },
    )
    for value_type in [t for t, box in Box.type_mappings.items() if box is ArrayBox and t is not ArrayBox]:
        traced.register(value_type)  # type: ignore[attr-defined]
