"""The model_fn of TorchEstimator, and the parts of it that other model_fns use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.metrics import Metric
from psflow.ps_runtime.model.canned.base import HeadSpec
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.torch_modules.bound import BoundModule
from psflow.ps_runtime.torch_modules.inputs import call, targets
from psflow.ps_runtime.torch_modules.module import TorchModule

LABELS = ("labels", "label", "target", "targets")
"""Usual names of labels among the features of a collate function."""


@dataclass(frozen=True)
class FreeLoss:
    """A loss in place of a head; an export leaves it out, since it only predicts."""

    loss: Callable[..., Any] | None = field(default=None, metadata={"is_exported": False})
    metrics: Callable[..., Mapping[str, Metric]] | None = field(default=None, metadata={"is_exported": False})


def spec(
    mode: ModeKeys,
    net: BoundModule,
    *,
    loss: torch.Tensor | None = None,
    optimizer: Optimizer | None = None,
    predictions: Any = None,
    **others: Any,
) -> EstimatorSpec:
    """Return the EstimatorSpec of a model_fn with a torch module; see `TorchModule`.

    Parameters
    ----------
    mode : ModeKeys
        The mode of the call.
    net : BoundModule
        The module, from `TorchModule.bound`.
    loss : torch.Tensor, optional
        The loss, one number; not in PREDICT.
    optimizer : Optimizer, optional
        Trains the parameters of `net`; required in TRAIN.
    predictions : torch.Tensor, or mapping or tuple of them, optional
        The predictions of the batch.
    **others
        Further fields of `EstimatorSpec`, as arrays.

    Raises
    ------
    ModelFnError
        If the loss is not one number, or depends on no parameter; in TRAIN, if loss or optimizer is missing.
    """
    found = None if predictions is None else predictions_of(net.label, predictions)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=found, **others)
    if not isinstance(loss, torch.Tensor) or loss.ndim:
        shape = list(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ModelFnError((f"the loss of {net.label} must be a tensor with one number, got {shape}; take its mean",))
    train_op = None
    if mode == ModeKeys.TRAIN:
        if optimizer is None:
            raise ModelFnError((f"the spec of {net.label} for {mode} has no optimizer; give one, such as Adam(0.001)",))
        train_op = net.train_ops(optimizer, loss)
    return EstimatorSpec(mode, predictions=found, loss=loss.item(), train_op=train_op, **others)


def torch_model(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], config: Any, input_schema: InputSchema
) -> EstimatorSpec:
    """Train, evaluate or call a torch module; a model_fn.

    `params` has the ``module``, for training the ``optimizer``, and the ``head`` or a ``loss``.
    """
    module: TorchModule = params["module"]
    if labels is None and mode != ModeKeys.PREDICT:
        raise InputError((_without_labels(module.label, features, mode),))
    net = module.bound(mode, config)
    positional, named = net.arguments.of(features, input_schema, net.float_dtype)
    try:
        outputs = net(*positional, **named)
    except ModelFnError as error:
        if hint := net.arguments.hint(features, positional, error.__cause__):
            raise ModelFnError(tuple(fault + hint for fault in error.faults)) from error.__cause__
        raise
    template: HeadSpec | None = params["head"]
    if template is None:
        return _with_loss(net, outputs, labels, mode, params)
    head = template.reading(input_schema)
    logits = _logits(net, outputs, head.logits_dimension)
    return head.create_estimator_spec(
        features,
        mode,
        logits.detach().numpy(),
        labels,
        lambda gradient: net.train_ops(params["optimizer"], logits, torch.from_numpy(gradient)),
    )


def _without_labels(name: str, features: Any, mode: ModeKeys) -> str:
    """Return what to do about a batch of features alone, which may hold the labels, as many collate functions do."""
    known = [key for key in LABELS if isinstance(features, Mapping) and key in features]
    fault = f"{name} needs labels in {mode} mode, and the batch has none: return (features, labels) from the input_fn"
    if not known:
        return fault
    key = repr(known[0])
    return (
        f"{fault}; the feature {key} becomes the labels with psflow.torch.batches(..., label={key}), or in a generator "
        f"with: labels = batch.pop({key}); yield batch, labels"
    )


def _logits(net: BoundModule, outputs: Any, dimension: int) -> torch.Tensor:
    if not isinstance(outputs, torch.Tensor):
        raise ModelFnError(
            (
                f"forward of {net.label} returned a {type(outputs).__name__}, but a head takes one tensor of logits: "
                "return that tensor, or give a loss in place of the head",
            )
        )
    logits = outputs.unsqueeze(1) if outputs.ndim == 1 and dimension == 1 else outputs
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _with_loss(net: BoundModule, outputs: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any]) -> EstimatorSpec:
    free: FreeLoss = params["loss"]
    if mode == ModeKeys.PREDICT:
        return spec(mode, net, predictions=outputs)
    assert free.loss is not None, "only an export has none, and it only predicts"
    wanted = targets(labels, net.float_dtype)
    _check_columns(net.label, outputs, wanted)
    with torch.set_grad_enabled(mode == ModeKeys.TRAIN):
        loss = call(free.loss, mode, outputs, wanted)
    if mode == ModeKeys.TRAIN:
        return spec(mode, net, loss=loss, optimizer=params["optimizer"])
    metrics = None
    if free.metrics is not None:
        metrics = call(free.metrics, mode, labels, predictions_of(net.label, outputs))
    return spec(mode, net, loss=loss, predictions=outputs, eval_metric_ops=metrics)


def _check_columns(name: str, outputs: Any, wanted: Any) -> None:
    """Refuse ``(batch, 1)`` beside ``(batch,)``: most losses would compare each output with each label."""
    if not isinstance(outputs, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return
    shapes = {tuple(outputs.shape), tuple(wanted.shape)}
    rows = len(outputs) if outputs.ndim else 0
    if rows > 1 and shapes == {(rows,), (rows, 1)}:
        raise ModelFnError(
            (
                f"forward of {name} returned {list(outputs.shape)} for labels of shape {list(wanted.shape)}, which a "
                "loss would compare each with each: return outputs.squeeze(1), or outputs.unsqueeze(1)",
            )
        )


def predictions_of(name: str, outputs: Any) -> dict[str, NDArray[Any]]:
    """Return the outputs of a module by name: a tensor as ``outputs``, others by their names or places.

    None is left out, and so is a tensor with another number of rows than the first, such as the state of a recurrent
    layer, which is no prediction of an example.

    Raises ModelFnError for other outputs.
    """
    found = dict(_tensors(outputs, ""))
    if not found or not all(isinstance(value, torch.Tensor) for value in found.values()):
        kinds = ", ".join(sorted({type(value).__name__ for value in found.values()})) or type(outputs).__name__
        raise ModelFnError(
            (f"forward of {name} returned {kinds}, expected a tensor, or tensors by name or in a tuple",)
        )
    rows = next(iter(found.values())).shape[:1]
    return {key or "outputs": array_of(value) for key, value in found.items() if value.shape[:1] == rows}


def _tensors(outputs: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of what a forward returned, with their names."""
    if hasattr(outputs, "_asdict"):
        outputs = outputs._asdict()
    if isinstance(outputs, tuple | list):
        outputs = {f"output_{index}" if not name else str(index): part for index, part in enumerate(outputs)}
    if isinstance(outputs, Mapping):
        for key, part in outputs.items():
            yield from _tensors(part, f"{name}_{key}" if name else str(key))
    elif outputs is not None:
        yield name, outputs


def array_of(value: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as an array of a type that numpy has."""
    found = value.detach()
    array: NDArray[Any] = (found.float() if found.dtype == torch.bfloat16 else found).cpu().numpy()
    return np.asarray(array)
