"""The EstimatorSpec: the result of a model_fn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import ModelFnError, ModelFnTypeError
from psflow.ps_runtime.metrics import Metric
from psflow.ps_runtime.model.export.outputs import ExportOutput, checked_outputs
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.scaffold import Scaffold
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.arguments import ArgumentFaults

RESERVED_METRICS = ("loss", "global_step")
LOSS_ALONE = "a number (a function of psflow.losses returns the loss and its gradient: pass the loss)"
_NUMBERS = frozenset((float, np.float32, np.float64))
HOOKS = ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks")


class ModeKeys(StrEnum):
    """The purpose of a call of model_fn."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True, slots=True)
class EstimatorSpec:
    """The result of a model_fn for one batch.

    Parameters
    ----------
    mode : ModeKeys
        The mode of the call.
    predictions : mapping of str to array of shape (batch, ...), or such an array
        Required in PREDICT.
    loss : scalar, or array of one number
        Mean loss of the batch. Required in TRAIN and EVAL.
    train_op : TrainOp or sequence of TrainOp
        From `Optimizer.apply_gradients` or `Optimizer.minimize`. Required in TRAIN.
    eval_metric_ops : mapping of str to Metric, or None
        Metrics of this batch; an evaluation merges the metrics of all batches. ``loss`` and ``global_step`` are
        reserved.
    export_outputs : mapping of str to ExportOutput, or None
        The outputs of an export, by the names of its signatures; see `psflow.export`. Read in PREDICT. With several,
        one is ``serving_default``; a single one is the default, too. None: the predictions.
    training_hooks, training_chief_hooks, evaluation_hooks, prediction_hooks : sequence of SessionRunHook, or None
        Taken from the first call in their mode.
    scaffold : Scaffold, optional
        Defines the start of a session, and the checkpoints to keep; taken from the first call in its mode.

    Raises
    ------
    ModelFnError
        If something that the mode requires is missing, with all faults in one message; a ModelFnTypeError if an
        argument has the wrong type.
    """

    mode: ModeKeys
    predictions: Any = None
    loss: Any = None
    train_op: TrainOp | Sequence[TrainOp] | None = None
    eval_metric_ops: Mapping[str, Metric] | None = None
    export_outputs: Mapping[str, ExportOutput] | None = None
    _: KW_ONLY
    training_hooks: Sequence[SessionRunHook] = ()
    training_chief_hooks: Sequence[SessionRunHook] = ()
    evaluation_hooks: Sequence[SessionRunHook] = ()
    prediction_hooks: Sequence[SessionRunHook] = ()
    scaffold: Scaffold | None = None

    def __post_init__(self) -> None:
        if self._is_bare_step:
            return
        faults = ArgumentFaults("EstimatorSpec.", ModelFnError, ModelFnTypeError)
        self._check_presence(faults)
        self._check_loss(faults)
        for op in self.train_ops:
            if not isinstance(op, TrainOp):
                faults.add_type("train_op", "of an optimizer's apply_gradients or minimize", op)
        self._check_metrics(faults)
        if self.mode == ModeKeys.PREDICT:
            object.__setattr__(self, "export_outputs", checked_outputs(self.export_outputs, faults))
        for name in HOOKS:
            given = getattr(self, name)
            if given != ():
                object.__setattr__(self, name, faults.items(name, given, SessionRunHook, "SessionRunHook"))
        if self.scaffold is not None and not isinstance(self.scaffold, Scaffold):
            faults.add_type("scaffold", "a psflow.Scaffold or None", self.scaffold)
        faults.raise_any()

    @property
    def train_ops(self) -> tuple[TrainOp, ...]:
        """The train ops, one for each optimizer."""
        if type(self.train_op) is TrainOp:
            return (self.train_op,)
        if self.train_op is None:
            return ()
        return tuple(self.train_op) if isinstance(self.train_op, Sequence) else (self.train_op,)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics by name, or an empty mapping."""
        return {} if self.eval_metric_ops is None else self.eval_metric_ops

    @property
    def _is_bare_step(self) -> bool:
        """Whether it has a loss and a train_op and nothing to check, as in nearly each step of a training."""
        return (
            self.mode is ModeKeys.TRAIN
            and type(self.train_op) is TrainOp
            and type(self.loss) in _NUMBERS
            and self.eval_metric_ops is None
            and self.scaffold is None
            and self.training_hooks == self.training_chief_hooks == self.evaluation_hooks == self.prediction_hooks == ()
        )

    def _check_presence(self, faults: ArgumentFaults) -> None:
        if self.loss is None and self.mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            faults.add(f"an EstimatorSpec for {self.mode} needs a loss")
        if not self.train_ops and self.mode == ModeKeys.TRAIN:
            faults.add("an EstimatorSpec for train needs a train_op: optimizer.apply_gradients or .minimize")
        if self.predictions is None and self.mode == ModeKeys.PREDICT:
            faults.add("an EstimatorSpec for infer needs predictions")

    def _check_loss(self, faults: ArgumentFaults) -> None:
        if isinstance(self.loss, tuple):
            faults.add_type("loss", LOSS_ALONE, self.loss)
        elif getattr(self.loss, "shape", ()) in ((1,), (1, 1)):
            object.__setattr__(self, "loss", self.loss.reshape(()))

    def _check_metrics(self, faults: ArgumentFaults) -> None:
        if not isinstance(self.metrics, Mapping):
            faults.add_type("eval_metric_ops", "a mapping of names to metrics", self.eval_metric_ops)
            return
        for name, metric in self.metrics.items():
            if name in RESERVED_METRICS:
                faults.add(f"eval_metric_ops must not use the reserved name {name!r}")
            if not isinstance(metric, Metric):
                faults.add_type(f"eval_metric_ops[{name!r}]", "a metric of psflow.metrics", metric)
