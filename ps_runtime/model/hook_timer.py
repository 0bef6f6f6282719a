"""When a hook is to act: every so many steps, or every so many seconds."""

from __future__ import annotations

import time

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["SecondOrStepTimer", "check_period"]


def check_period(**periods: float | None) -> None:
    """Refuse periods of which not exactly one is given, or that are not greater than 0.

    Raises
    ------
    UsageError
        With the names and what was given; an ArgumentTypeError if steps are no whole number, or seconds no number.
    """
    given = {name: value for name, value in periods.items() if value is not None}
    if len(given) != 1:
        raise UsageError((f"give exactly one of {' and '.join(periods)}, got {list(given) or 'none'}",))
    faults = ArgumentFaults()
    for name, value in given.items():
        if name.endswith("_secs"):
            faults.number(name, value, above_zero=True)
        else:
            faults.steps(name, value)
    faults.raise_any()


class SecondOrStepTimer:
    """Says whether it is time again: at the first step, then whenever the period has passed.

    Parameters
    ----------
    every_secs : float, optional
        The period in seconds; or
    every_steps : int, optional
        in steps. Exactly one of them.

    Examples
    --------
    >>> timer = SecondOrStepTimer(every_steps=10)
    >>> timer.should_trigger_for_step(3), timer.update_last_triggered_step(3)
    (True, (None, None))
    >>> timer.should_trigger_for_step(12), timer.should_trigger_for_step(13)
    (False, True)
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        check_period(every_secs=every_secs, every_steps=every_steps)
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forget when it was last time."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether it is time at `step`; never twice for one step."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            return time.monotonic() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that it was time at `step`; return the seconds and steps since the last time, None at the first."""
        now = time.monotonic()
        last_step, last_time = self._last_step, self._last_time
        self._last_step, self._last_time = step, now
        return (None, None) if last_step is None else (now - last_time, step - last_step)

    def last_triggered_step(self) -> int | None:
        """Return the step at which it was last time; None if it never was."""
        return self._last_step
