"""Listeners that the chief calls around each checkpoint."""

__all__ = ["CheckpointSaverListener"]


class CheckpointSaverListener:
    """Told before and after each checkpoint, in the chief's saver thread."""

    def begin(self) -> None:
        """Before training."""

    def before_save(self, global_step: int) -> None:
        """Before the checkpoint of `global_step` is written."""

    def after_save(self, global_step: int) -> bool | None:
        """After the checkpoint of `global_step` is committed; return True to end training."""

    def end(self, global_step: int) -> None:
        """After the final checkpoint, unless training failed."""
