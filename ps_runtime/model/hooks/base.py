"""Hooks: user code around each run of a session, which is a training step or a batch of an evaluation."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.arguments import ArgumentFaults


class CheckpointSaverListener:
    """Run before and after each checkpoint, in the saver thread of the chief, while training continues.

    `session` has ``global_step`` and ``run(fetches)``, which returns ``global_step`` and, once they are saved,
    variables of the checkpoint.
    """

    def begin(self) -> None:
        """Run before training."""

    def before_save(self, session: Any, global_step: int) -> None:
        """Run before the checkpoint of `global_step` is written."""

    def after_save(self, session: Any, global_step: int) -> bool | None:
        """Run after the checkpoint of `global_step` is committed; return True to end training."""

    def end(self, session: Any, global_step: int) -> None:
        """Run after the final checkpoint, unless training failed."""


def check_period(**periods: float | None) -> None:
    """Refuse periods unless exactly one is given and it is greater than 0.

    Raises UsageError with the names and the values; an ArgumentTypeError unless steps are whole numbers and seconds
    numbers.
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
    """Triggers at the first step, then whenever the period has passed.

    Parameters
    ----------
    every_secs : float, optional
        The period in seconds.
    every_steps : int, optional
        The period in steps. Give exactly one of them.

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
        """Forget the last trigger."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether to trigger at `step`; never twice for one step."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            return time.monotonic() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record a trigger at `step`; return the seconds and steps since the last one, None at the first."""
        now = time.monotonic()
        last_step, last_time = self._last_step, self._last_time
        self._last_step, self._last_time = step, now
        return (None, None) if last_step is None else (now - last_time, step - last_step)

    def last_triggered_step(self) -> int | None:
        """Return the step of the last trigger; None before the first."""
        return self._last_step


MAX_NAMED = 20
"""Number of names to list, where none is similar to the requested one."""
Fetches = str | list[Any] | tuple[Any, ...] | Mapping[str, Any] | None
"""A name, or a list, tuple or mapping of Fetches; None fetches nothing."""


class Coordinator:
    """Requests the end of a session."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.ends_training = False
        """Whether all replicas of the job should end, not only this one."""

    def request_stop(self, reason: str = "a hook asked to stop") -> None:
        """End this session after the current run; the first reason is kept.

        Ending the chief's session ends training. A worker that ends leaves alone, and the others continue to train.
        """
        if self.stop_reason is None:
            self.stop_reason = reason

    def end_training(self, reason: str) -> None:
        """End training in all replicas after the current step; the first reason is kept."""
        self.request_stop(reason)
        self.ends_training = True

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self.stop_reason is not None


class SessionRunArgs(NamedTuple):
    """The values that a hook requests from a run.

    Parameters
    ----------
    fetches : str, or sequence or mapping of them, or None
        ``loss``, ``global_step``, keys of predictions, metrics or summaries, names of variables; not of tables.
    """

    fetches: Fetches = ()


class SessionRunValues(NamedTuple):
    """The values of a run that a hook requested: `results` has the structure of its fetches."""

    results: Any


@dataclass(frozen=True)
class SessionRunContext:
    """The run that is about to begin, or has just ended.

    Parameters
    ----------
    original_args : SessionRunArgs
        The fetches of the loop itself, without those of hooks.
    session : object
        Has ``global_step`` and ``run(fetches)``, which returns values of the last run, or variables.
    """

    original_args: SessionRunArgs
    session: Any
    coordinator: Coordinator = field(default_factory=Coordinator, repr=False)

    def request_stop(self) -> None:
        """End this session after this run, as `Coordinator.request_stop` does."""
        self.coordinator.request_stop()

    @property
    def stop_requested(self) -> bool:
        """Whether a hook requested a stop."""
        return self.coordinator.should_stop()


class SessionRunHook:
    """User code around each run of a session; override the methods you need.

    Order of the calls: ``begin``, ``after_create_session``, then ``before_run`` and ``after_run`` around each run, then
    ``end``, which is not called after an exception.
    """

    def begin(self) -> None:
        """Run before the session is created."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Run after the variables have their values."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Run before a run; return what to fetch from it."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Run after a run; the push of a training step is committed by then."""

    def end(self, session: Any) -> None:
        """Run after the last run."""


def as_hooks(what: str, given: Iterable[SessionRunHook] | None) -> tuple[SessionRunHook, ...]:
    """Return `given` as a tuple, empty for None.

    Raises UsageError if an element is not a SessionRunHook, with all faults in one message.
    """
    faults = ArgumentFaults()
    hooks = faults.items(what, given, SessionRunHook, "SessionRunHook")
    faults.raise_any()
    return hooks


_NOTHING_FETCHED = SessionRunValues(None)


_BEFORE_RUN, _AFTER_RUN = SessionRunHook.before_run, SessionRunHook.after_run


def _called_in_runs(hooks: Iterable[SessionRunHook]) -> list[tuple[SessionRunHook, bool]]:
    """Return the hooks that do something before or after a run, and whether before it."""

    def is_own(method: Any, inherited: Any) -> bool:
        return getattr(method, "__func__", None) is not inherited

    asking = [(hook, is_own(hook.before_run, _BEFORE_RUN)) for hook in hooks]
    return [(hook, asks) for hook, asks in asking if asks or is_own(hook.after_run, _AFTER_RUN)]


class HookCalls:
    """Calls the hooks of one session in order."""

    def __init__(self, hooks: Sequence[SessionRunHook], session: Any, tables: Collection[str] = ()) -> None:
        self.coordinator = Coordinator()
        self._hooks = hooks
        self._called: list[tuple[SessionRunHook, bool]] | None = None
        """The hooks that do something in a run, and whether before it; None before the first run."""
        self._context = SessionRunContext(SessionRunArgs(), session, self.coordinator)
        self._tables = tables
        self._wanted: list[SessionRunArgs | None] = []

    def begin(self) -> None:
        """Call `begin` of each hook."""
        for hook in self._hooks:
            hook.begin()

    def after_create_session(self) -> None:
        """Call `after_create_session` of each hook."""
        for hook in self._hooks:
            hook.after_create_session(self._context.session, self.coordinator)

    def before_run(self, original_args: SessionRunArgs) -> None:
        """Ask each hook for its fetches of a run whose loop fetches `original_args`."""
        if original_args is not self._context.original_args:
            self._context = replace(self._context, original_args=original_args)
        if self._called is None:
            self._called = _called_in_runs(self._hooks)
        self._wanted = [hook.before_run(self._context) if asks else None for hook, asks in self._called]

    def after_run(self, values: Mapping[str, Any]) -> None:
        """Pass each hook the values that it fetched.

        Raises UsageError if a hook fetches a name that `values` lacks, or its ``before_run`` returned a wrong type.
        """
        for (hook, _), args in zip(self._called or (), self._wanted, strict=True):
            if args is None:
                hook.after_run(self._context, _NOTHING_FETCHED)
            elif isinstance(args, SessionRunArgs):
                who = f"the hook {type(hook).__name__}"
                hook.after_run(self._context, SessionRunValues(pick(args.fetches, values, self._tables, who)))
            else:
                raise UsageError(
                    (
                        f"before_run of {type(hook).__name__} must return SessionRunArgs or None, got {args!r}; "
                        "write SessionRunArgs(fetches)",
                    )
                )

    def end(self) -> None:
        """Call `end` of each hook, unless an exception was raised."""
        for hook in self._hooks:
            hook.end(self._context.session)


def pick(fetches: Fetches, values: Mapping[str, Any], tables: Collection[str] = (), who: str = "session.run") -> Any:
    """Return the fetched `values` in the structure of `fetches`.

    Raises UsageError if a name is unknown, names a table, or is not a str.
    """
    if isinstance(fetches, str):
        try:
            return values[fetches]
        except KeyError:
            raise UsageError((_unknown(fetches, values, tables, who),)) from None
    if isinstance(fetches, list | tuple):
        picked = [pick(name, values, tables, who) for name in fetches]
        return type(fetches)(*picked) if hasattr(fetches, "_fields") else type(fetches)(picked)
    if fetches is None:
        return None
    if isinstance(fetches, Mapping):
        return {key: pick(name, values, tables, who) for key, name in fetches.items()}
    raise UsageError((f"{who} fetches {fetches!r}; expected a name, or a list or dict of names, such as 'loss'",))


def _unknown(name: str, values: Iterable[str], tables: Collection[str], who: str) -> str:
    known = sorted(set(values))
    hint = did_you_mean(name, known)
    if near := [table for table in tables if did_you_mean(name, [table])]:
        hint += f"; {near[0]!r} is a table: return the looked-up rows as predictions of model_fn, and fetch those"
    hint = hint or f"; it has {', '.join(known[:MAX_NAMED])}{', ...' if known[MAX_NAMED:] else ''}"
    return f"{who} fetches {name!r}, which this step does not have{hint}"
