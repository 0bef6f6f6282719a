"""Listeners that the chief calls around each checkpoint."""

from typing import Any

__all__ = ["CheckpointSaverListener"]


class CheckpointSaverListener:
    """Told before and after each checkpoint, in the chief's saver thread: training goes on meanwhile.

    `session` has ``global_step`` and ``run(fetches)``, which returns the ``global_step`` and, once they are saved, the
    variables of the checkpoint.
    """

    def begin(self) -> None:
        """Before training."""

    def before_save(self, session: Any, global_step: int) -> None:
        """Before the checkpoint of `global_step` is written."""

    def after_save(self, session: Any, global_step: int) -> bool | None:
        """After the checkpoint of `global_step` is committed; return True to end training."""

    def end(self, session: Any, global_step: int) -> None:
        """After the final checkpoint, unless training failed."""
