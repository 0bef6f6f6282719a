"""The metrics of a job's evaluations, predicates on one of them, and the early-stopping hook that asks a predicate."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from psflow.ps_runtime.checkpoint.records import ALL_STEPS, EvaluationLog, measured
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.model.hooks.base import (
    Coordinator,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from psflow.ps_runtime.model.hooks.basic import CheckpointSaverHook, GlobalStepWaiterHook, StopAtStepHook
from psflow.ps_runtime.model.hooks.batch import BatchSession
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.optimizers.base import EvaluatedSchedule, TrainOp
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.run_config import RunConfig, absolute

logger = logging.getLogger(__name__)


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Return the metrics of the evaluations so far, in order of global_step.

    Parameters
    ----------
    eval_dir : str
        As ``estimator.eval_dir(name)`` returns it. No such directory exists: the path names evaluations in
        ``evaluations.jsonl`` of the model_dir.

    Raises
    ------
    UsageError
        If `eval_dir` does not name an evaluation; an ArgumentTypeError if it is not a str.
    CheckpointError
        If a line of ``evaluations.jsonl`` is damaged.
    """
    if not isinstance(eval_dir, str):
        faults = ArgumentFaults()
        faults.add_type("eval_dir", "a str", eval_dir)
        faults.raise_any()
    model_dir, name = _split(eval_dir)
    records = [record for record in EvaluationLog(model_dir).read() if record.name == name]
    return {
        record.global_step: measured(record.metrics)
        for record in sorted(records, key=lambda record: record.global_step)
    }


@dataclass(frozen=True)
class MetricPredicate(ABC):
    """Reads one metric of one evaluation, and returns a sentence if training should end."""

    eval_dir: str
    metric_name: str
    min_steps: int
    is_higher: bool

    known_steps: set[int] = field(default_factory=set, init=False, repr=False, compare=False)
    """Steps of the evaluations that were read; holds -1 after the first reading."""

    def __post_init__(self) -> None:
        _split(self.eval_dir)

    @property
    def evaluation(self) -> tuple[str, str]:
        """The model_dir and the name of the evaluation."""
        return _split(self.eval_dir)

    def __call__(self) -> str:
        """Read the evaluations so far; return why training should end, or ""."""
        found = read_eval_metrics(self.eval_dir)
        if not found:
            self._warn_of_others()
        self._check_newest(found)
        name = self.metric_name
        return self.reason({step: of[name] for step, of in found.items() if step >= self.min_steps and name in of})

    @abstractmethod
    def reason(self, values: Mapping[int, float]) -> str:
        """Return why training should end, given the metric by global_step, or ""."""

    def is_better(self, value: float, than: float) -> bool:
        """Return whether `value` is beyond `than`; never for NaN."""
        return value > than if self.is_higher else value < than

    def check_metric(self, metrics: Collection[str], evaluation: str) -> None:
        """Refuse an evaluation that lacks the metric."""
        if self.metric_name not in metrics:
            raise UsageError((_lacks(metrics, "early stopping", self.metric_name, evaluation),))

    def _check_newest(self, found: Mapping[int, Mapping[str, float]]) -> None:
        """Refuse a new evaluation that lacks the metric; evaluations of an earlier training may lack it."""
        is_first, newest = not self.known_steps, max(found, default=None)
        is_new = newest is not None and newest not in self.known_steps
        self.known_steps.update(found, [-1])
        if newest is None or not is_new:
            return
        try:
            self.check_metric(found[newest], f"the evaluation of step {newest}")
        except UsageError as error:
            if not is_first:
                raise
            logger.warning("%s; early stopping waits for an evaluation that has it", error)

    def _warn_of_others(self) -> None:
        others = sorted(EvaluationLog(_split(self.eval_dir)[0]).by_name())
        if others:
            logger.warning(
                "early stopping waits for evaluations of %s, but only those of %s exist; pass "
                "eval_dir=estimator.eval_dir(name) with the name of an EvalSpec",
                self.eval_dir,
                _made(others),
            )


@final
@dataclass(frozen=True)
class Crosses(MetricPredicate):
    """Fires when a value is beyond a threshold."""

    threshold: float

    def reason(self, values: Mapping[int, float]) -> str:  # noqa: D102
        change = "higher" if self.is_higher else "lower"
        for step, value in values.items():
            if self.is_better(value, self.threshold):
                return f"{self.metric_name} of step {step} is {value}, {change} than {self.threshold}"
        return ""


@final
@dataclass(frozen=True)
class Stalls(MetricPredicate):
    """Fires when the best value is too many steps old."""

    max_steps: int

    def reason(self, values: Mapping[int, float]) -> str:  # noqa: D102
        change = "increase" if self.is_higher else "decrease"
        best, best_step = math.nan, -1
        for step, value in values.items():
            is_number = math.isnan(best) and not math.isnan(value)
            if best_step < 0 or is_number or self.is_better(value, best):
                best, best_step = value, step
            if step - best_step >= self.max_steps:
                return f"no {change} of {self.metric_name} for {step - best_step} steps since step {best_step}"
        return ""


@final
class EarlyStoppingHook(SessionRunHook):
    """Asks a predicate at a given period, on the chief."""

    def __init__(self, should_stop_fn: Callable[[], Any], timer: SecondOrStepTimer) -> None:
        self.should_stop_fn = should_stop_fn
        self._timer = timer

    def begin(self) -> None:  # noqa: D102
        self._timer.reset()

    def after_create_session(self, session: Any, coord: Coordinator) -> None:  # noqa: D102
        if isinstance(session, BatchSession):
            raise UsageError(("early stopping works only in training; leave it out of evaluations and predictions",))

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:  # noqa: D102
        return SessionRunArgs("global_step")

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:  # noqa: D102
        step = run_values.results
        if not run_context.session.is_chief or not self._timer.should_trigger_for_step(step):
            return
        self._timer.update_last_triggered_step(step)
        answer = self.should_stop_fn()
        if answer:
            why = f": {answer}" if isinstance(answer, str) else ""
            run_context.coordinator.end_training(f"early stopping at global_step {step}{why}")


def _split(eval_dir: str) -> tuple[str, str]:
    """Return the model_dir and the name of the evaluation."""
    model_dir, _, last = eval_dir.rstrip("/").rpartition("/")
    if last == "eval":
        return model_dir, ""
    if not last.startswith("eval_") or last == "eval_":
        raise UsageError((f"eval_dir must be what estimator.eval_dir(name) returns, got {eval_dir!r}",))
    return model_dir, last.removeprefix("eval_")


def apply_saver_hook(config: RunConfig, train_spec: TrainSpec, model_dir: str) -> tuple[RunConfig, TrainSpec]:
    """Return both arguments with the settings of a CheckpointSaverHook moved from the hooks to the RunConfig.

    Raises UsageError if there are several such hooks, one saves elsewhere, or there are listeners but nothing is saved.
    """
    savers = [hook for hook in train_spec.hooks if isinstance(hook, CheckpointSaverHook)]
    if len(savers) > 1:
        raise UsageError((f"training takes one CheckpointSaverHook, got {len(savers)}; keep one of them",))
    for saver in savers:
        _check_place(saver, model_dir)
        config = config.replace(save_checkpoints_secs=saver.save_secs, save_checkpoints_steps=saver.save_steps)
        later = tuple(listener for listener in train_spec.saving_listeners if listener not in saver.listeners)
        train_spec = replace(
            train_spec,
            hooks=tuple(hook for hook in train_spec.hooks if hook is not saver),
            saving_listeners=(*saver.listeners, *later),
        )
    if train_spec.saving_listeners and not config.saves_checkpoints:
        raise UsageError(
            (
                "saving_listeners are called around checkpoints, but this training saves none; set "
                "save_checkpoints_steps or save_checkpoints_secs of RunConfig",
            )
        )
    return config, train_spec


def stopped_exactly(train_spec: TrainSpec, start: int) -> tuple[TrainSpec, str]:
    """Return a TrainSpec whose max_steps is at most the step at which a StopAtStepHook stops, and the end's reason."""
    hooks = [hook for hook in train_spec.hooks if type(hook) is StopAtStepHook]  # a subclass may stop elsewhere
    last = min((last for hook in hooks if (last := hook.last_step_from(start)) > start), default=math.inf)
    if last == math.inf or (train_spec.max_steps is not None and train_spec.max_steps < last):
        return train_spec, ALL_STEPS
    return replace(train_spec, max_steps=int(last)), f"global_step {last} has reached {last}"


def check_waiters(config: RunConfig, train_spec: TrainSpec) -> None:
    """Refuse a GlobalStepWaiterHook where each update needs every replica.

    Raises UsageError if the other replicas would wait for the worker that waits for them.
    """
    waits = any(isinstance(hook, GlobalStepWaiterHook) for hook in train_spec.hooks)
    if waits and config.consistency.gradients_per_update(2) > 1:
        raise UsageError(
            (
                f"a GlobalStepWaiterHook delays workers, but with {config.consistency.name} consistency the "
                "other replicas wait for them; leave it out",
            )
        )


def check_early_stopping(train_spec: TrainSpec, metrics: Mapping[str, frozenset[str]], model_dir: str) -> None:
    """Warn if early stopping reads an evaluation that this training does not make; another process may make it.

    Raises UsageError if an evaluation lacks the metric that early stopping reads.
    """
    for hook in train_spec.hooks:
        if not isinstance(hook, EarlyStoppingHook) or not isinstance(hook.should_stop_fn, MetricPredicate):
            continue
        predicate = hook.should_stop_fn
        of_dir, name = predicate.evaluation
        if absolute(of_dir) != absolute(model_dir):
            continue
        if name in metrics:
            if not _may_have(metrics[name], predicate.metric_name):
                predicate.check_metric(metrics[name], f"the evaluation {name!r}" if name else "the evaluation")
            continue
        made = _made(metrics)
        logger.warning(
            "early stopping waits for evaluations of %s, but this training makes %s: give train_and_evaluate %s%s",
            predicate.eval_dir,
            f"only those of {made}" if made else "none",
            f"an EvalSpec named {name!r}" if name else "an EvalSpec without a name",
            ", or pass eval_dir=estimator.eval_dir(name) of one that is made" if made else "",
        )


def check_evaluated_schedules(train_ops: Iterable[TrainOp], metrics: Mapping[str, frozenset[str]]) -> None:
    """Raise UsageError if a schedule reads evaluations that this training does not make, or a metric that they lack."""
    faults = []
    for op in train_ops:
        if not isinstance(schedule := op.optimizer.learning_rate, EvaluatedSchedule):
            continue
        reader, name = f"learning_rate: {type(schedule).__name__}", schedule.eval_name or ""
        if name not in metrics:
            faults.append(
                f"{reader} reads the evaluations of {_made([name])}, but this training makes "
                f"{f'those of {_made(metrics)}; set eval_name' if metrics else 'none; call train_and_evaluate'}"
            )
        elif not _may_have(metrics[name], schedule.metric):
            faults.append(_lacks(metrics[name], reader, schedule.metric, "the evaluation"))
    if faults:
        raise UsageError(tuple(faults))


def _made(names: Iterable[str]) -> str:
    return ", ".join(repr(name) if name else "an EvalSpec without a name" for name in sorted(names))


def _may_have(metrics: Collection[str], name: str) -> bool:
    """Return whether an evaluation has the metric, or one of arrays of which it may be an element."""
    array, _, index = name.rpartition("_")
    return name in metrics or (index.isdecimal() and array in metrics)


def _lacks(metrics: Collection[str], reader: str, name: str, evaluation: str) -> str:
    near = did_you_mean(name, metrics)
    return f"{reader} reads the metric {name!r}, but {evaluation} has {', '.join(sorted(metrics))}{near}"


def _check_place(saver: CheckpointSaverHook, model_dir: str) -> None:
    if saver.checkpoint_dir is not None and absolute(saver.checkpoint_dir) != absolute(model_dir):
        raise UsageError(
            (
                f"checkpoint_dir of CheckpointSaverHook is {saver.checkpoint_dir!r}, but checkpoints are in the "
                f"model_dir, {model_dir!r}; leave it out",
            )
        )
