"""Hooks that use evaluations: early stopping, and evaluation while training runs.

Hooks leave no trace in checkpoints: a job that a hook ended trains on when it is started again without the hook. The
last step has a checkpoint, which is evaluated like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from psflow.ps_runtime.checkpoint.records import measured
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.eval_metrics import Crosses, EarlyStoppingHook, Stalls
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import OpenedEvaluation
from psflow.ps_runtime.model.hooks.base import (
    Coordinator,
    SecondOrStepTimer,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    check_period,
)
from psflow.ps_runtime.model.hooks.batch import BatchSession
from psflow.ps_runtime.model.training import EvalSpec
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.specs.arguments import ArgumentFaults


def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Callable[[], Any],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that ends training once `should_stop_fn` returns something true.

    Parameters
    ----------
    estimator : Estimator
        The Estimator that is trained.
    should_stop_fn : callable
        Called without arguments, only on the chief, after its first step and then at the given period. If it returns a
        sentence, that becomes the reason in ``finished.json``.
    run_every_secs : float, optional
        Call it every so many seconds.
    run_every_steps : int, optional
        Call it every so many steps of global_step. Give exactly one period: ``run_every_secs=None`` goes with steps.

    Raises
    ------
    UsageError
        If `estimator` is not an Estimator, `should_stop_fn` is not callable, or not exactly one period is given.
    """
    faults: list[str] = []
    if not isinstance(estimator, Estimator):
        faults.append(f"estimator must be an Estimator, got {type(estimator).__name__}")
    if not callable(should_stop_fn):
        faults.append(f"should_stop_fn must be callable, got {should_stop_fn!r}")
    if faults:
        raise UsageError(tuple(faults))
    check_period(run_every_secs=run_every_secs, run_every_steps=run_every_steps)
    return EarlyStoppingHook(should_stop_fn, SecondOrStepTimer(run_every_secs, run_every_steps))


def stop_if_higher_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that ends training once a metric of an evaluation is higher than `threshold`.

    Parameters
    ----------
    estimator : Estimator
        The Estimator that is trained.
    metric_name : str
        Such as ``accuracy`` or ``loss``.
    threshold : float
        A value equal to it is not higher. NaN never is.
    eval_dir : str, optional
        The evaluation, as ``estimator.eval_dir(name)`` returns it; default: that of the EvalSpec without a name.
    min_steps : int
        Ignore evaluations of an earlier global_step.
    run_every_secs, run_every_steps
        As in `make_early_stopping_hook`.

    Raises
    ------
    UsageError
        As in `make_early_stopping_hook`; during training, if the evaluations lack the metric.
    """
    metric = _metric(estimator, metric_name, eval_dir, min_steps, is_higher=True)
    _check_threshold(threshold)
    return make_early_stopping_hook(estimator, Crosses(*metric, threshold), run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that ends training once a metric of an evaluation is lower than `threshold`.

    The parameters are those of `stop_if_higher_hook`.
    """
    metric = _metric(estimator, metric_name, eval_dir, min_steps, is_higher=False)
    _check_threshold(threshold)
    return make_early_stopping_hook(estimator, Crosses(*metric, threshold), run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that ends training once a metric has not increased for a number of steps.

    Parameters
    ----------
    max_steps_without_increase : int
        Between the global_step of the highest evaluation and that of a later one. NaN is lower than any number.
    estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps
        As in `stop_if_higher_hook`.
    """
    metric = _metric(estimator, metric_name, eval_dir, min_steps, is_higher=True)
    _check_steps(max_steps_without_increase=max_steps_without_increase)
    stalls = Stalls(*metric, max_steps_without_increase)
    return make_early_stopping_hook(estimator, stalls, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Return a hook that ends training once a metric has not decreased for a number of steps.

    Parameters
    ----------
    max_steps_without_decrease : int
        Between the global_step of the lowest evaluation and that of a later one. NaN is higher than any number.
    estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps
        As in `stop_if_higher_hook`.
    """
    metric = _metric(estimator, metric_name, eval_dir, min_steps, is_higher=False)
    _check_steps(max_steps_without_decrease=max_steps_without_decrease)
    stalls = Stalls(*metric, max_steps_without_decrease)
    return make_early_stopping_hook(estimator, stalls, run_every_secs, run_every_steps)


def _metric(
    estimator: Estimator, metric_name: str, eval_dir: str | None, min_steps: int, *, is_higher: bool
) -> tuple[str, str, int, bool]:
    if not isinstance(estimator, Estimator):
        raise UsageError((f"estimator must be an Estimator, got {type(estimator).__name__}",))
    faults = ArgumentFaults()
    if not isinstance(metric_name, str):
        faults.add_type("metric_name", "a str", metric_name)
    faults.text("eval_dir", eval_dir)
    faults.whole("min_steps", min_steps, at_least=0)
    faults.raise_any()
    eval_dir = estimator.eval_dir() if eval_dir is None else eval_dir
    return eval_dir, metric_name, min_steps, is_higher


def _check_threshold(threshold: Any) -> None:
    """Refuse a threshold that no metric can be above or below: a value that is not a number, and NaN."""
    if not is_number(threshold) or math.isnan(threshold):
        faults = ArgumentFaults()
        faults.add_type("threshold", "a number", threshold)
        faults.raise_any()


def _check_steps(**given: Any) -> None:
    faults = ArgumentFaults()
    for name, steps in given.items():
        faults.whole(name, steps, at_least=0)
    faults.raise_any()


class InMemoryEvaluatorHook(SessionRunHook):
    """Evaluates the current variables at the start, every `every_n_iter` steps, and at the end; training waits.

    Reports the metrics like an evaluator, as ``eval/loss`` or ``eval_<name>/loss``. Only for training in one process.

    Parameters
    ----------
    estimator : Estimator
        The Estimator that is trained.
    input_fn : callable
        As in `Estimator.evaluate`.
    steps : int or None
        Maximum number of batches; None: to the end of the input.
    hooks : sequence of SessionRunHook, optional
        Run around each batch of an evaluation.
    name : str, optional
        Distinguishes several evaluations.
    every_n_iter : int
        Evaluate each time after this many steps.

    Raises
    ------
    UsageError
        If an argument is wrong; when training begins, if it runs on a cluster, with `pipeline_depth` 1, or
        trains a model with tables.
    """

    def __init__(
        self,
        estimator: Estimator,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        faults = ArgumentFaults("InMemoryEvaluatorHook: ")
        if not isinstance(estimator, Estimator):
            faults.add_type("estimator", "an Estimator", estimator)
        faults.raise_any()
        self._caller = estimator.caller
        self._spec = EvalSpec(input_fn, steps, name, hooks or (), start_delay_secs=0, throttle_secs=0)
        check_period(every_n_iter=every_n_iter)
        self._timer = SecondOrStepTimer(every_steps=every_n_iter)
        self.results: dict[int, dict[str, float]] = {}
        """The metrics of each evaluation, by global_step."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Evaluate the initial variables."""
        if isinstance(session, BatchSession):
            raise UsageError(("an InMemoryEvaluatorHook works only in training; leave it out of evaluations",))
        faults = []
        if session.config.num_ps_replicas:
            faults.append("an InMemoryEvaluatorHook evaluates in one process; on a cluster use the evaluator")
        if not session.can_pull:
            faults.append("an InMemoryEvaluatorHook needs pipeline_depth 0, got 1")
        if session.model.tables:
            names = ", ".join(table.name for table in session.model.tables)
            faults.append(f"an InMemoryEvaluatorHook evaluates only models without tables, this one has {names}")
        if faults:
            raise UsageError(tuple(faults))
        schema = session.model.schema
        self._opened = OpenedEvaluation(self._caller.reading(schema), self._spec, schema)
        self._count = 0
        self._evaluate(session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Evaluate, if the period has passed."""
        self._count += 1
        if self._timer.should_trigger_for_step(self._count):
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        """Evaluate the final variables."""
        self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        self._timer.update_last_triggered_step(self._count)
        step, values = session.run(["global_step", {name: name for name in session.variables}])
        found = self.results[step] = measured(self._opened.measure(ModelValues(values), step))
        prefix = f"eval_{self._spec.name}" if self._spec.name else "eval"
        session.report(step, {f"{prefix}/{name}": value for name, value in found.items()})
