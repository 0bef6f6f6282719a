"""Hooks: user code around each step of a session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psflow.ps_runtime.errors import UsageError, did_you_mean

__all__ = ["Coordinator", "SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues"]


class Coordinator:
    """Asks a session to end."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None

    def request_stop(self, reason: str = "a hook asked to stop") -> None:
        """End training after this step; the first reason stays."""
        self.stop_reason = self.stop_reason or reason

    def should_stop(self) -> bool:
        """Whether an end was asked for."""
        return self.stop_reason is not None


class SessionRunArgs(NamedTuple):
    """What a hook wants to see of a step.

    Parameters
    ----------
    fetches : str, or sequence or mapping of str
        ``loss``, ``global_step``, keys of predictions, metrics or summaries, names of variables; not of tables.
    """

    fetches: str | Sequence[str] | Mapping[str, str] = ()


class SessionRunValues(NamedTuple):
    """What a hook sees of a step: `results` has the structure of its fetches."""

    results: Any


@dataclass(frozen=True)
class SessionRunContext:
    """The step that is about to run, or has just run."""

    session: Any
    coordinator: Coordinator = field(repr=False)

    def request_stop(self) -> None:
        """End training after this step."""
        self.coordinator.request_stop()

    @property
    def stop_requested(self) -> bool:
        """Whether some hook asked to stop."""
        return self.coordinator.should_stop()


class SessionRunHook:
    """User code around each step; override what you need.

    The calls: ``begin``, ``after_create_session``, then ``before_run`` and ``after_run`` around each step, then
    ``end``, which is not called after an exception.
    """

    def begin(self) -> None:
        """Before the session is made."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """After the variables have their values."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Before a step; return what to fetch of it."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """After a step, whose push is committed."""

    def end(self, session: Any) -> None:
        """After the last step."""


def pick(
    fetches: str | Sequence[str] | Mapping[str, str], values: Mapping[str, Any], tables: Collection[str] = ()
) -> Any:
    """Return the fetched `values` in the structure of `fetches`.

    Parameters
    ----------
    fetches : str, or sequence or mapping of str
        Names, as in SessionRunArgs.
    values : mapping of str to anything
        All that a hook may fetch of this step.
    tables : collection of str
        Names of the sparse tables, which cannot be fetched.

    Raises
    ------
    UsageError
        If a name is unknown, or that of a table.
    """
    if isinstance(fetches, str):
        try:
            return values[fetches]
        except KeyError:
            raise UsageError((_unknown(fetches, values, tables),)) from None
    if isinstance(fetches, list) or not isinstance(fetches, Mapping):
        return [pick(name, values, tables) for name in fetches]
    return {key: pick(name, values, tables) for key, name in fetches.items()}


def _unknown(name: str, values: Iterable[str], tables: Collection[str]) -> str:
    hint = did_you_mean(name, values)
    if near := [table for table in tables if did_you_mean(name, [table])]:
        hint += (
            f"; {near[0]!r} is a table: let model_fn return the rows that it looks up as predictions, and fetch these"
        )
    return f"a hook fetches {name!r}, which this step does not have{hint}"
