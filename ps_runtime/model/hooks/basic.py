"""A user's own say in when checkpoints are saved."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.hooks.base import (
    CheckpointSaverListener,
    Coordinator,
    Fetches,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    check_period,
)
from psflow.ps_runtime.numeric import whole_number
from psflow.ps_runtime.specs.arguments import ArgumentFaults

logger = logging.getLogger(__name__)


class StopAtStepHook(SessionRunHook):
    """End training, of all replicas, at a global_step.

    Parameters
    ----------
    num_steps : int, optional
        Stop so many steps after the start; or
    last_step : int, optional
        stop at this global_step. Exactly one of them.

    Raises
    ------
    UsageError
        If not exactly one of them is given, or it is negative; an ArgumentTypeError if it is no whole number.

    Notes
    -----
    Of several replicas, others may push while one of them stops; `max_steps` is exact.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise UsageError(
                (
                    "StopAtStepHook takes num_steps or last_step, one of them; got "
                    f"num_steps={num_steps!r}, last_step={last_step!r}",
                )
            )
        faults = ArgumentFaults("StopAtStepHook: ")
        if num_steps is not None:
            faults.whole("num_steps", num_steps, at_least=0)
        if last_step is not None:
            faults.whole("last_step", last_step, at_least=0)
        faults.raise_any()
        self._num_steps = num_steps
        self._last_step = last_step

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Fix the last step, where it counts from the start."""
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = session.global_step + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the global_step."""
        return SessionRunArgs("global_step")

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """End training once the last step is reached."""
        assert self._last_step is not None
        if run_values.results >= self._last_step:
            run_context.coordinator.end_training(f"global_step {run_values.results} has reached {self._last_step}")


def make_stop_at_checkpoint_step_hook(estimator: object, last_step: int) -> StopAtStepHook:
    """Return a hook that ends training at `last_step`, in every role.

    Parameters
    ----------
    estimator : Estimator
        Taken for the sake of programs that pass theirs. No role needs to look for the last checkpoint in its model_dir:
        the job ends once it is committed.
    last_step : int
        A global_step.
    """
    return StopAtStepHook(last_step=last_step)


class GlobalStepWaiterHook(SessionRunHook):
    """Let each worker begin only once the job has reached a global_step. The chief does not wait.

    Give it to a TrainSpec. A worker looks a few times a second, before its first step; it leaves if training is over by
    then.

    Parameters
    ----------
    wait_until_step : int
        0 or less: do not wait.

    Raises
    ------
    UsageError
        When training begins, if the hook comes from a model_fn, or replicas contribute to each step together.
    """

    def __init__(self, wait_until_step: int) -> None:
        step = whole_number(wait_until_step)
        if step is None:
            faults = ArgumentFaults("GlobalStepWaiterHook: ")
            faults.add_type("wait_until_step", "a whole number", wait_until_step)
            faults.raise_any()
        self.wait_until_step = wait_until_step

    def begin(self) -> None:
        """Refuse to stand among other hooks than those of a TrainSpec, which has been waited for by now."""
        raise UsageError(("a GlobalStepWaiterHook has an effect among the hooks of a TrainSpec alone; move it there",))


class NanTensorHook(SessionRunHook):
    """Guard against a loss or a gradient that is NaN or infinite. What such a step computed is never pushed.

    Parameters
    ----------
    loss_tensor : object
        Taken for the sake of programs that pass their loss; it is always the loss that model_fn returns, and its
        gradients, that are looked at.
    fail_on_nan_loss : bool
        Whether such a step fails the job, with NanLossError or NanGradientError. Else it ends training: a warning is
        logged, the job writes its final checkpoint of the updates before that step, and finishes with that reason. A
        weight that becomes infinite by finite gradients fails the job either way, when its checkpoint is written.

    Notes
    -----
    Every training has one that fails, unless its hooks bring one.
    """

    def __init__(self, loss_tensor: Any = "loss", fail_on_nan_loss: bool = True) -> None:
        faults = []
        if isinstance(loss_tensor, bool):
            faults.append(
                f"NanTensorHook takes the loss first, got {loss_tensor}: write fail_on_nan_loss={loss_tensor}"
            )
        if not isinstance(fail_on_nan_loss, bool):
            faults.append(f"fail_on_nan_loss must be True or False, got {fail_on_nan_loss!r}")
        if faults:
            raise UsageError(tuple(faults))
        self._fails = fail_on_nan_loss

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Raise the fault of the run, or end training for it."""
        fault = run_context.session.fault
        if fault is None:
            return
        if self._fails:
            raise fault
        logger.warning("%s; training ends", fault)
        run_context.coordinator.end_training(str(fault))


class FinalOpsHook(SessionRunHook):
    """Fetch values at the end of a session.

    Parameters
    ----------
    final_ops : str, or sequence or mapping of them, or None
        Names as in SessionRunArgs. Variables, the global_step and the metrics of an evaluation are those of the end;
        the rest is as of the last run.

    Notes
    -----
    On a cluster each replica has its own copy of a hook, and the values stay there.
    """

    def __init__(self, final_ops: Fetches) -> None:
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """What was fetched, in the structure of `final_ops`; None before the end."""
        return self._values

    def end(self, session: Any) -> None:
        """Fetch."""
        self._values = session.run(self._final_ops)


class CheckpointSaverHook(SessionRunHook):
    """Has the chief save by this period in place of that of RunConfig: at the start, periodically, and at the end.

    Give it to `Estimator.train` or to a TrainSpec. The chief saves beside training, so the hook itself does nothing.

    Parameters
    ----------
    checkpoint_dir : str, optional
        The model_dir of the Estimator, where all checkpoints are.
    save_secs : float, optional
        Save every so many seconds; or
    save_steps : int, optional
        at each multiple of it, of global_step. Exactly one of them.
    listeners : sequence of CheckpointSaverListener, optional
        Called around each checkpoint, before the ``saving_listeners`` of the training.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0; an ArgumentTypeError for a wrong type; when
        training begins, if the hook stands where it has no effect.
    """

    def __init__(
        self,
        checkpoint_dir: str | None = None,
        save_secs: float | None = None,
        save_steps: int | None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> None:
        check_period(save_secs=save_secs, save_steps=save_steps)
        faults = ArgumentFaults("CheckpointSaverHook: ")
        faults.text("checkpoint_dir", checkpoint_dir)
        self.listeners = faults.items("listeners", listeners, CheckpointSaverListener, "CheckpointSaverListener")
        faults.raise_any()
        self.checkpoint_dir = checkpoint_dir
        self.save_secs = save_secs
        self.save_steps = save_steps

    def begin(self) -> None:
        """Refuse to stand among other hooks than those of a training, which has taken it out by now."""
        raise UsageError(
            (
                "a CheckpointSaverHook has an effect among the hooks of Estimator.train or of a TrainSpec alone; "
                "move it there",
            )
        )
