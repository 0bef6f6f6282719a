"""A user's own say in when checkpoints are saved."""

from __future__ import annotations

from collections.abc import Sequence

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.hook_timer import check_period
from psflow.ps_runtime.model.hooks import SessionRunHook
from psflow.ps_runtime.model.listeners import CheckpointSaverListener
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["CheckpointSaverHook"]


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
