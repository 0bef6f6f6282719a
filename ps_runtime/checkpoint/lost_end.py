"""The end of training that a lost chief may have come to: taken up if it was saved, else forgotten."""

from __future__ import annotations

from psflow.ps_runtime.checkpoint.records import FinishedMarker, clear_finished, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore

__all__ = ["take_up_end"]


def take_up_end(model_dir: str) -> FinishedMarker | None:
    """Return the end of this attempt, if a chief has marked and saved it; remove what a lost one left unfinished.

    To be called while nobody writes checkpoints. An attempt removes the marker of the one before as it starts, so one
    that is there is of a chief of this attempt.
    """
    store = CheckpointStore(model_dir)
    store.discard_uncommitted()
    end = read_finished(model_dir)
    if end is not None and end.final_step == store.latest():
        return end
    clear_finished(model_dir)
    return None
