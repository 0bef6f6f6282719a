"""Waiting for a model_dir that another process trains in."""

from __future__ import annotations

import time
from collections.abc import Callable

from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ModelDirError

__all__ = ["await_turn"]

POLL_SECS = 0.5


def await_turn(parameters: TrainParameters, say: Callable[[str], None]) -> None:
    """Return once nobody else runs the job that `parameters` name.

    Raises
    ------
    ModelDirError
        At once, or after that time, if somebody does; at once if the model_dir is a copy of that of the job.

    Notes
    -----
    Of two that wait, one claims the job and the other is refused then.
    """
    resume, timeout_secs = parameters.resume, parameters.cluster.admission_timeout_secs
    job = JobFile(resume.fork or parameters.model_dir)
    job.check_place()
    deadline = Deadline(timeout_secs)
    has_said = False
    while (refusal := job.refusal()) is not None:
        if resume.when_running == "fail" or deadline.has_passed:
            raise ModelDirError((refusal,))
        if not has_said:
            say(f"waiting up to {timeout_secs:g} s: {refusal.partition(';')[0]}")
            has_said = True
        time.sleep(POLL_SECS)
