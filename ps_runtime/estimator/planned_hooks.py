"""What hooks of a training change of its plan: when it saves checkpoints, and when workers begin."""

from __future__ import annotations

from dataclasses import replace

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.basic_hooks import GlobalStepWaiterHook
from psflow.ps_runtime.model.saver_hook import CheckpointSaverHook
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.specs.directories import absolute
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["apply_saver_hook", "check_waiters"]


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


def _check_place(saver: CheckpointSaverHook, model_dir: str) -> None:
    if saver.checkpoint_dir is not None and absolute(saver.checkpoint_dir) != absolute(model_dir):
        raise UsageError(
            (
                f"checkpoint_dir of CheckpointSaverHook is {saver.checkpoint_dir!r}, but checkpoints are in the "
                f"model_dir, {model_dir!r}; leave it out",
            )
        )
