"""What is known of a replay before it begins, and what it adds: the record of evaluations."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import EVALUATIONS, EvaluationLog, EvaluationRecord
from psflow.ps_runtime.errors import StorageError, UsageError

__all__ = ["ReplayRecord"]

logger = logging.getLogger(__name__)

READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


class ReplayRecord:
    """The evaluations of a model_dir, on disk as far as something may be written there."""

    def __init__(self, model_dir: str, directory: str | None = None) -> None:
        self._model_dir = model_dir
        self.directory = directory or model_dir
        self.is_written = True
        self._log = EvaluationLog(self.directory)
        logs = [EvaluationLog(model_dir), *([self._log] if directory is not None else [])]
        self._known = {(e.name, e.global_step): e for log in logs for e in log.read()}

    @property
    def path(self) -> str:
        """The file."""
        return f"{self.directory.rstrip('/')}/{EVALUATIONS}"

    def find(self, name: str, step: int, saved_at: float) -> EvaluationRecord | None:
        """Return the evaluation of a checkpoint under `name`; None if it is not in the record."""
        found = self._known.get((name, step))
        return found if found is not None and found.checkpoint_saved_at == saved_at else None

    def check_input(self, name: str, digest: str, key: str) -> None:
        """Refuse an input that is another one than that of the evaluations called `name`.

        Raises
        ------
        UsageError
            If the record holds evaluations of that name on another input.
        """
        others = sorted(
            e.global_step
            for e in self._known.values()
            if e.name == name and digest and e.input_digest not in ("", digest)
        )
        if others:
            raise UsageError(
                (
                    f"evaluation {name or 'eval'!r} has different data, batch size or eval.steps than its recorded "
                    f"results (checkpoints {_shown(others)}); rename it ({key}), or repeat all of them (--force)",
                )
            )

    def write(self, evaluation: EvaluationRecord, *, is_forced: bool) -> None:
        """Put `evaluation` down, durably; a warning says so where nothing may be written."""
        self._known[evaluation.name, evaluation.global_step] = evaluation
        if not self.is_written:
            return
        try:
            if self.directory != self._model_dir:
                FileStore(self.directory).create()
            if is_forced:
                self._log.append(evaluation)
            else:
                self._log.add(evaluation)
        except (OSError, StorageError) as error:
            cause = error.__cause__ if isinstance(error, StorageError) else error
            if not isinstance(cause, OSError) or cause.errno not in READ_ONLY:
                raise
            self.is_written = False
            logger.warning(
                "%s cannot be written to, so the results are in MLflow only, and the next evaluation repeats them; "
                "--record DIR keeps the record elsewhere",
                self.directory,
            )


def _shown(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")
