"""Basic hooks: end training, delay workers, guard against NaN, fetch final values, and time checkpoints."""

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
    """Ends training in all replicas at a global_step.

    Parameters
    ----------
    num_steps : int, optional
        Stop this many steps after the start.
    last_step : int, optional
        Stop at this global_step. Give exactly one of them.

    Raises
    ------
    UsageError
        If not exactly one is given, or it is negative; an ArgumentTypeError if it is not a whole number.

    Notes
    -----
    Among the hooks of a TrainSpec, of `Estimator.train` or of a session, the step is exact, as with `max_steps`. Among
    those that model_fn returns, other replicas may push while one of them stops.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise UsageError(
                (
                    "StopAtStepHook takes either num_steps or last_step; got "
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

    def last_step_from(self, start: int) -> int:
        """Return the last global_step of a training that starts at `start`."""
        if self._last_step is not None:
            return self._last_step
        assert self._num_steps is not None
        return start + self._num_steps

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Compute the last step from `num_steps`."""
        self._last_step = self.last_step_from(session.global_step)

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
        Accepted for compatibility. No role waits for the last checkpoint in its model_dir: the job ends once it is
        committed.
    last_step : int
        The global_step at which to end.
    """
    return StopAtStepHook(last_step=last_step)


class GlobalStepWaiterHook(SessionRunHook):
    """Delays each worker until the job has reached a global_step. The chief does not wait.

    Works only in TrainSpec.hooks. A worker checks a few times a second before its first step; it leaves if training has
    ended by then.

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
        """Refuse to run: a TrainSpec has handled and removed its hooks of this class before."""
        raise UsageError(("a GlobalStepWaiterHook works only in TrainSpec.hooks; move it there",))


class NanTensorHook(SessionRunHook):
    """Guards against a loss or a gradient that is NaN or infinite. The gradients of such a step are never pushed.

    Parameters
    ----------
    loss_tensor : object
        Accepted for compatibility; the hook always checks the loss that model_fn returns, and its gradients.
    fail_on_nan_loss : bool
        Whether such a step fails the job, with NanLossError or NanGradientError. Otherwise it ends training: a warning
        is logged, the job writes its final checkpoint of the updates before that step, and finishes with that reason. A
        weight that becomes infinite by finite gradients fails the job either way, when its checkpoint is written.

    Notes
    -----
    Every training has such a hook that fails the job, unless its hooks include one.
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
        """Raise the fault of the run, or end training."""
        fault = run_context.session.fault
        if fault is None:
            return
        if self._fails:
            raise fault
        logger.warning("%s; training ends", fault)
        run_context.coordinator.end_training(str(fault))


class FinalOpsHook(SessionRunHook):
    """Fetches values at the end of a session.

    Parameters
    ----------
    final_ops : str, or sequence or mapping of them, or None
        Names as in SessionRunArgs. Variables, the global_step and the metrics of an evaluation have their final values;
        the other values are those of the last run.

    Notes
    -----
    On a cluster each replica has its own copy of a hook, and the values stay there.
    """

    def __init__(self, final_ops: Fetches) -> None:
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The fetched values, in the structure of `final_ops`; None before the end."""
        return self._values

    def end(self, session: Any) -> None:
        """Fetch."""
        self._values = session.run(self._final_ops)


class CheckpointSaverHook(SessionRunHook):
    """Replaces the saving period of RunConfig: the chief saves at the start, at this period, and at the end.

    Works in `Estimator.train` and TrainSpec.hooks. The chief saves while training continues; the hook itself does
    nothing.

    Parameters
    ----------
    checkpoint_dir : str, optional
        Must be the model_dir of the Estimator, which holds all checkpoints.
    save_secs : float, optional
        Save every so many seconds.
    save_steps : int, optional
        Save at each multiple of it, in global_step. Give exactly one of them.
    listeners : sequence of CheckpointSaverListener, optional
        Called around each checkpoint, before the ``saving_listeners`` of the training.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0; an ArgumentTypeError for a wrong type; when
        training begins, if the hook has no effect where it is.
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
        """Refuse to run: a training has handled and removed its hooks of this class before."""
        raise UsageError(
            ("a CheckpointSaverHook works only in the hooks of Estimator.train or of a TrainSpec; move it there",)
        )
