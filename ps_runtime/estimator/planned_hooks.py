"""What hooks of a training change of its plan, or need of it: checkpoints, workers that begin, evaluations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.eval_metrics import EarlyStoppingHook, MetricPredicate
from psflow.ps_runtime.model.basic_hooks import GlobalStepWaiterHook
from psflow.ps_runtime.model.saver_hook import CheckpointSaverHook
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.specs.directories import absolute
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["apply_saver_hook", "check_early_stopping", "check_waiters"]

logger = logging.getLogger(__name__)


def apply_saver_hook(config: RunConfig, train_spec: TrainSpec, model_dir: str) -> tuple[RunConfig, TrainSpec]:
    """Return both such that no CheckpointSaverHook is left among the hooks.

    Raises
    ------
    UsageError
        If there are several of them, one is to save elsewhere, or there are listeners and nothing is saved.
    """
    savers = [hook for hook in train_spec.hooks if isinstance(hook, CheckpointSaverHook)]
    if len(savers) > 1:
        raise UsageError((f"a training takes one CheckpointSaverHook, got {len(savers)}; leave one of them",))
    for saver in savers:
        _check_place(saver, model_dir)
        config = config.replace(save_checkpoints_secs=saver.save_secs, save_checkpoints_steps=saver.save_steps)
        later = tuple(listener for listener in train_spec.saving_listeners if listener not in saver.listeners)
        train_spec = replace(
            train_spec,
            hooks=tuple(hook for hook in train_spec.hooks if hook is not saver),
            saving_listeners=(*saver.listeners, *later),
        )
    if train_spec.saving_listeners and not config.saves_checkpoints:
        raise UsageError(
            (
                "saving_listeners are called around checkpoints, and this training saves none; set "
                "save_checkpoints_steps or save_checkpoints_secs of RunConfig",
            )
        )
    return config, train_spec


def check_waiters(config: RunConfig, train_spec: TrainSpec) -> None:
    """Refuse a GlobalStepWaiterHook where each update needs every replica.

    Raises
    ------
    UsageError
        If the others would wait for the worker that waits for them.
    """
    waits = any(isinstance(hook, GlobalStepWaiterHook) for hook in train_spec.hooks)
    if waits and config.consistency.gradients_per_update(2) > 1:
        raise UsageError(
            (
                f"a GlobalStepWaiterHook has workers begin later, and with {config.consistency.name} consistency the "
                "others wait for them; leave it out",
            )
        )


def check_early_stopping(train_spec: TrainSpec, metrics: Mapping[str, frozenset[str]], model_dir: str) -> None:
    """Warn where early stopping looks at an evaluation that this training does not make; another process may.

    Raises
    ------
    UsageError
        If an evaluation does not measure the metric that early stopping looks at.
    """
    for hook in train_spec.hooks:
        if not isinstance(hook, EarlyStoppingHook) or not isinstance(hook.should_stop_fn, MetricPredicate):
            continue
        predicate = hook.should_stop_fn
        of_dir, name = predicate.evaluation
        if absolute(of_dir) != absolute(model_dir):
            continue
        if name in metrics:
            array, _, index = predicate.metric_name.rpartition("_")
            if index.isdecimal() and array in metrics[name]:
                continue  # an element, if the metric is an array
            predicate.check_metric(metrics[name], f"the evaluation {name!r}" if name else "the evaluation")
            continue
        made = ", ".join(repr(name) if name else "an EvalSpec without a name" for name in sorted(metrics))
        logger.warning(
            "early stopping waits for evaluations of %s, but this training makes %s: give train_and_evaluate %s%s",
            predicate.eval_dir,
            f"only those of {made}" if made else "none",
            f"an EvalSpec named {name!r}" if name else "an EvalSpec without a name",
            ", or pass eval_dir=estimator.eval_dir(name) of one that is made" if made else "",
        )


def _check_place(saver: CheckpointSaverHook, model_dir: str) -> None:
    if saver.checkpoint_dir is not None and absolute(saver.checkpoint_dir) != absolute(model_dir):
        raise UsageError(
            (
                f"checkpoint_dir of CheckpointSaverHook is {saver.checkpoint_dir!r}, but checkpoints are in the "
                f"model_dir, {model_dir!r}; leave it out",
            )
        )
