"""What to train and what to evaluate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.data.non_finite import NonFinite, policy_faults
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.exporters import Exporter
from psflow.ps_runtime.model.hooks import SessionRunHook, as_hooks
from psflow.ps_runtime.model.listeners import CheckpointSaverListener

__all__ = ["EvalSpec", "EvalSpecs", "TrainSpec", "all_eval_specs", "input_names"]


@dataclass(frozen=True)
class TrainSpec:
    """What to train on, and how far.

    Parameters
    ----------
    input_fn : callable
        Returns a psflow Dataset, or yields batches ``(features, labels)``.
    max_steps : int or None
        The last global_step; None: until the input ends.
    hooks : sequence of SessionRunHook, or None
        Run on the chief and on every worker, each with its own copy.
    saving_listeners : sequence of CheckpointSaverListener, or None
        Run on the chief.
    non_finite : {"error", "drop", "keep"}
        What becomes of rows with a blank, NaN or infinite cell, in features or labels: they are refused, left out, or
        given to model_fn.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[SessionRunHook] = ()
    saving_listeners: Sequence[CheckpointSaverListener] = ()
    non_finite: NonFinite = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hooks", as_hooks("TrainSpec.hooks", self.hooks))
        object.__setattr__(self, "saving_listeners", tuple(self.saving_listeners or ()))
        faults = policy_faults("TrainSpec.non_finite", self.non_finite)
        if not callable(self.input_fn):
            faults.append(f"TrainSpec.input_fn must be callable, got {type(self.input_fn).__name__}")
        if self.max_steps is not None and self.max_steps <= 0:
            faults.append(f"TrainSpec.max_steps should be greater than 0, got {self.max_steps}")
        if faults:
            raise UsageError(tuple(faults))


@dataclass(frozen=True)
class EvalSpec:
    """What to evaluate on, how often, and what to export.

    Parameters
    ----------
    input_fn : callable
        As `TrainSpec.input_fn`; read once for each evaluation.
    steps : int or None
        Batches of an evaluation; None: to the end of the input.
    name : str or None
        Tells several evaluations apart.
    hooks : sequence of SessionRunHook, or None
        Run around each batch of each evaluation.
    exporters : Exporter or sequence of them
        Called after every evaluation; unique names.
    start_delay_secs, throttle_secs : float
        Wait so long before the first evaluation, and between the starts of two. The final checkpoint does not wait.
    non_finite : {"error", "drop", "keep"}
        As of a TrainSpec.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[SessionRunHook] = ()
    exporters: Exporter | Sequence[Exporter] = ()
    start_delay_secs: float = 120
    throttle_secs: float = 600
    non_finite: NonFinite = "error"

    def __post_init__(self) -> None:
        if not isinstance(self.exporters, Sequence):
            object.__setattr__(self, "exporters", (self.exporters,))
        object.__setattr__(self, "hooks", as_hooks("EvalSpec.hooks", self.hooks))
        faults = policy_faults("EvalSpec.non_finite", self.non_finite)
        if not callable(self.input_fn):
            faults.append(f"EvalSpec.input_fn must be callable, got {type(self.input_fn).__name__}")
        if self.steps is not None and self.steps <= 0:
            faults.append(f"EvalSpec.steps should be greater than 0, got {self.steps}")
        faults += [
            f"EvalSpec.{name} should be 0 or more, got {getattr(self, name)}"
            for name in ("start_delay_secs", "throttle_secs")
            if getattr(self, name) < 0
        ]
        names = [exporter.name for exporter in self.all_exporters]
        faults += [f"two exporters are called {n!r}" for n in sorted({n for n in names if names.count(n) > 1})]
        if "" in names:
            faults.append("an exporter has no name")
        if faults:
            raise UsageError(tuple(faults))

    @property
    def all_exporters(self) -> tuple[Exporter, ...]:
        """The exporters as a tuple."""
        exporters = self.exporters
        return tuple(exporters) if isinstance(exporters, Sequence) else (exporters,)


EvalSpecs = EvalSpec | Sequence[EvalSpec] | None
"""One evaluation of each checkpoint, several, or none."""


def all_eval_specs(given: EvalSpecs) -> tuple[EvalSpec, ...]:
    """Return one or several EvalSpecs as a tuple; the first is the one whose exporters choose.

    Raises
    ------
    UsageError
        If two have the same name, or another than the first has exporters.
    """
    specs = (given,) if isinstance(given, EvalSpec) else tuple(given or ())
    names = [spec.name or "" for spec in specs]
    faults = [
        f"two EvalSpecs {f'are called {name!r}' if name else 'have no name'}; names tell their results apart"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    faults += [
        f"EvalSpec {spec.name!r} has exporters, but only those of the first EvalSpec choose; move them there"
        for spec in specs[1:]
        if spec.all_exporters
    ]
    if faults:
        raise UsageError(tuple(faults))
    return specs


def input_names(eval_specs: Sequence[EvalSpec]) -> list[str]:
    """Return what their inputs are called beside ``train``: ``eval`` for the first, ``eval_<name>`` for the others."""
    return ["eval", *(f"eval_{spec.name or ''}" for spec in eval_specs[1:])][: len(eval_specs)]
