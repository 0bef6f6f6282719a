"""How long a worker may take for a step before the other replicas go on without it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["StepDeadline"]


@dataclass(frozen=True)
class StepDeadline:
    """How long a worker may take for a step while another replica waits for it: a multiple of its usual step.

    A worker that takes longer is lost, as if it was killed: its batch goes to another replica, and it begins a new
    life. While nobody waits it may take as long as it likes. The chief has no such deadline.

    Parameters
    ----------
    multiple : float
        Of the usual duration of a step of this worker; more than 1.
    min_secs, max_secs : float
        The least and the most that the deadline is; more than 0, in seconds. The first step of a worker, which calls
        model_fn for the first time, has `max_secs`.

    Raises
    ------
    UsageError
        All faults in one message; an ArgumentTypeError if one of them is a wrong type.

    Notes
    -----
    A worker that was lost so, and was slow in truth, should not be lost again and again: `min_secs` doubles for it each
    time, up to `max_secs`. For a batch that was given to such a worker, the deadline doubles each time without a limit.

    Examples
    --------
    >>> deadline = StepDeadline(multiple=10, min_secs=1, max_secs=600)
    >>> [deadline.secs(usual_secs) for usual_secs in (0.01, 0.5, 300)]
    [1.0, 5.0, 600.0]
    >>> deadline.secs(0.01, num_lost=2)
    4.0
    """

    multiple: float = 10.0
    min_secs: float = 1.0
    max_secs: float = 600.0

    def __post_init__(self) -> None:
        faults = ArgumentFaults("StepDeadline.")
        for name in ("multiple", "min_secs", "max_secs"):
            faults.number(name, getattr(self, name), above_zero=True)
        faults.raise_any()
        if self.multiple <= 1:
            faults.add(f"StepDeadline.multiple should be greater than 1, got {self.multiple!r}")
        if self.min_secs > self.max_secs:
            faults.add(f"StepDeadline.min_secs should be at most max_secs, got {self.min_secs!r} and {self.max_secs!r}")
        if math.isinf(self.max_secs):
            faults.add("StepDeadline.max_secs should be finite, for every wait ends; got inf")
        faults.raise_any()

    def secs(self, usual_secs: float, num_lost: int = 0) -> float:
        """Return the deadline of a step.

        Parameters
        ----------
        usual_secs : float
            How long a step of this worker takes, from 0.
        num_lost : int, optional
            Earlier lives of the worker that ended because of a deadline.
        """
        least = self.min_secs * 2 ** min(num_lost, 64)  # which is more than any maximum
        return float(min(self.max_secs, max(least, self.multiple * usual_secs)))
