"""TrainSpec and EvalSpec: the settings of a training and of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.data.non_finite import NonFinite, policy_faults
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.export.exporters import BestExporter, Exporter
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, SessionRunHook
from psflow.ps_runtime.specs.arguments import ArgumentFaults


@dataclass(frozen=True)
class TrainSpec:
    """The input of a training, and its end.

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
        How to treat rows with a missing, NaN or infinite cell in features or labels: refuse them, drop them, or pass
        them to model_fn.
    each_worker_reads_all : bool
        False: all replicas share the input, so that each example is used once per epoch. True: the chief and each
        worker read the whole input themselves, so that an epoch of W replicas is W times the data, and training without
        `max_steps` ends when each has read all of it. A shuffled data set has another order in each replica; a
        generator runs in each of them, and may depend on its ``input_context``.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message; an ArgumentTypeError if an argument has the wrong
        type.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[SessionRunHook] = ()
    saving_listeners: Sequence[CheckpointSaverListener] = ()
    non_finite: NonFinite = "error"
    each_worker_reads_all: bool = False

    def __post_init__(self) -> None:
        faults = ArgumentFaults("TrainSpec.")
        faults.flag("each_worker_reads_all", self.each_worker_reads_all)
        faults.add(*policy_faults("TrainSpec.non_finite", self.non_finite))
        faults.input_fn("input_fn", self.input_fn)
        max_steps = faults.steps("max_steps", self.max_steps)
        hooks = faults.items("hooks", self.hooks, SessionRunHook, "SessionRunHook")
        listeners = faults.items(
            "saving_listeners", self.saving_listeners, CheckpointSaverListener, "CheckpointSaverListener"
        )
        faults.raise_any()
        object.__setattr__(self, "max_steps", max_steps)
        object.__setattr__(self, "hooks", hooks)
        object.__setattr__(self, "saving_listeners", listeners)


@dataclass(frozen=True)
class EvalSpec:
    """The input of evaluations, their period, and the exporters.

    Parameters
    ----------
    input_fn : callable
        As in `TrainSpec.input_fn`; read once for each evaluation.
    steps : int or None
        Number of batches of an evaluation; None: to the end of the input.
    name : str or None
        Distinguishes several evaluations.
    hooks : sequence of SessionRunHook, or None
        Run around each batch of each evaluation.
    exporters : Exporter, sequence of them, or None
        Called after every evaluation; unique names.
    start_delay_secs, throttle_secs : float
        Seconds before the first evaluation, and between the starts of two. The final checkpoint does not wait.
    non_finite : {"error", "drop", "keep"}
        As in TrainSpec.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message; an ArgumentTypeError if an argument has the wrong
        type.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[SessionRunHook] = ()
    exporters: Exporter | Sequence[Exporter] | None = ()
    start_delay_secs: float = 120
    throttle_secs: float = 600
    non_finite: NonFinite = "error"

    def __post_init__(self) -> None:
        faults = ArgumentFaults("EvalSpec.")
        faults.add(*policy_faults("EvalSpec.non_finite", self.non_finite))
        faults.input_fn("input_fn", self.input_fn)
        faults.name("name", self.name)
        steps = faults.steps("steps", self.steps)
        for name in ("start_delay_secs", "throttle_secs"):
            faults.number(name, getattr(self, name))
        hooks = faults.items("hooks", self.hooks, SessionRunHook, "SessionRunHook")
        given = (self.exporters,) if isinstance(self.exporters, Exporter) else self.exporters
        exporters = faults.items("exporters", given, Exporter, "Exporter")
        names = [exporter.name for exporter in exporters if isinstance(exporter, Exporter)]
        faults.add(*(f"two exporters are named {n!r}" for n in sorted({n for n in names if names.count(n) > 1})))
        faults.raise_any()
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "hooks", hooks)
        object.__setattr__(self, "exporters", exporters)

    @property
    def all_exporters(self) -> tuple[Exporter, ...]:
        """The exporters as a tuple."""
        assert isinstance(self.exporters, tuple)
        return self.exporters


EvalSpecs = EvalSpec | Sequence[EvalSpec] | None
"""One evaluation of each checkpoint, several, or none."""


def all_eval_specs(given: EvalSpecs) -> tuple[EvalSpec, ...]:
    """Return one or several EvalSpecs as a tuple; the exporters of the first one choose.

    Raises UsageError if two have the same name, or another than the first has exporters.
    """
    specs = (given,) if isinstance(given, EvalSpec) else tuple(given or ())
    names = [spec.name or "" for spec in specs]
    faults = [
        f"two EvalSpecs {f'are named {name!r}' if name else 'have no name'}; names tell their results apart"
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
    """Return the names of their inputs: ``eval`` for the first, ``eval_<name>`` for the others."""
    return ["eval", *(f"eval_{spec.name or ''}" for spec in eval_specs[1:])][: len(eval_specs)]


def best_steps(eval_specs: Sequence[EvalSpec], model_dir: str) -> set[int]:
    """Return the best steps of BestExporters: their checkpoints stay, to be evaluated and exported."""
    exporters = [exporter for spec in eval_specs for exporter in spec.all_exporters]
    records = [exporter.best(model_dir) for exporter in exporters if isinstance(exporter, BestExporter)]
    return {record.step for record in records if record is not None}
