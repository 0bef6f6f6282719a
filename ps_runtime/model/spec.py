"""What a model_fn returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.metrics import Metric
from psflow.ps_runtime.model.hooks import SessionRunHook, as_hooks
from psflow.ps_runtime.optimizers.base import TrainOp

__all__ = ["EstimatorSpec", "ModeKeys"]

RESERVED_METRICS = ("loss", "global_step")
HOOKS = ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks")


class ModeKeys(StrEnum):
    """Why model_fn is called."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True, slots=True)
class EstimatorSpec:
    """The answer of a model_fn to one batch.

    Parameters
    ----------
    mode : ModeKeys
        The mode that model_fn was called with.
    predictions : mapping of str to array of shape (batch, ...), or such an array
        Needed in PREDICT.
    loss : scalar
        Mean loss of the batch. Needed in TRAIN and EVAL.
    train_op : TrainOp or sequence of TrainOp
        From `Optimizer.apply_gradients` or `Optimizer.minimize`. Needed in TRAIN.
    eval_metric_ops : mapping of str to Metric
        Metrics of this batch; an evaluation merges those of all batches. ``loss`` and ``global_step`` are reserved.
    training_hooks, training_chief_hooks, evaluation_hooks, prediction_hooks : sequence of SessionRunHook, or None
        Taken from the first call in their mode.

    Raises
    ------
    ModelFnError
        If something that the mode needs is missing, all faults in one message.
    """

    mode: ModeKeys
    predictions: Any = None
    loss: Any = None
    train_op: TrainOp | Sequence[TrainOp] | None = None
    eval_metric_ops: Mapping[str, Metric] = field(default_factory=dict)
    training_hooks: Sequence[SessionRunHook] = ()
    training_chief_hooks: Sequence[SessionRunHook] = ()
    evaluation_hooks: Sequence[SessionRunHook] = ()
    prediction_hooks: Sequence[SessionRunHook] = ()

    def __post_init__(self) -> None:
        for name in HOOKS:
            if given := getattr(self, name):
                object.__setattr__(self, name, as_hooks(f"EstimatorSpec.{name}", given))
            elif given is None:
                object.__setattr__(self, name, ())
        if faults := tuple(self._faults()):
            raise ModelFnError(faults)

    @property
    def train_ops(self) -> tuple[TrainOp, ...]:
        """The train ops, one for each optimizer."""
        if isinstance(self.train_op, TrainOp):
            return (self.train_op,)
        if self.train_op is None:
            return ()
        return tuple(self.train_op) if isinstance(self.train_op, Sequence) else (self.train_op,)

    def _faults(self) -> Iterator[str]:
        if self.loss is None and self.mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            yield f"an EstimatorSpec for {self.mode} needs a loss"
        ops = self.train_ops
        if not ops and self.mode == ModeKeys.TRAIN:
            yield "an EstimatorSpec for train needs a train_op: optimizer.apply_gradients or .minimize"
        for op in ops:
            if not isinstance(op, TrainOp):
                yield f"train_op must come from an optimizer's apply_gradients or minimize, got {type(op).__name__}"
        if self.predictions is None and self.mode == ModeKeys.PREDICT:
            yield "an EstimatorSpec for infer needs predictions"
        for name, metric in self.eval_metric_ops.items():
            if name in RESERVED_METRICS:
                yield f"eval_metric_ops must not use the reserved name {name!r}"
            if not isinstance(metric, Metric):
                yield f"metric {name!r} must come from psflow.metrics, got {type(metric).__name__}"
