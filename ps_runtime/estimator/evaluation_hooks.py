"""Hooks that use evaluations: early stopping, and evaluation while training runs.

Nothing of it enters a checkpoint: a job that was ended so trains on when it is started again without the hook. The last
step has its checkpoint, which is evaluated as any other.
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
        Whose training it is for.
    should_stop_fn : callable
        Called without arguments, on the chief alone, after its first step and then now and then. A sentence that it
        returns becomes the reason in ``finished.json``.
    run_every_secs : float, optional
        Call it every so many seconds; or
    run_every_steps : int, optional
        every so many steps of global_step. Exactly one of them: ``run_every_secs=None`` goes with steps.

    Raises
    ------
    UsageError
        If `estimator` is no Estimator, `should_stop_fn` cannot be called, or not exactly one period is given.
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
        Whose training it is for.
    metric_name : str
        Such as ``accuracy`` or ``loss``.
    threshold : float
        Equal to it is not higher. NaN never is.
    eval_dir : str, optional
        Which evaluation, as ``estimator.eval_dir(name)`` says; that of the EvalSpec without a name if left out.
    min_steps : int
        Evaluations of an earlier global_step do not count.
    run_every_secs, run_every_steps
        As of `make_early_stopping_hook`.

    Raises
    ------
    UsageError
        As of `make_early_stopping_hook`; in training, if the evaluations have no such metric.
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
    """Return a hook that ends training once a metric has not become higher for so many steps.

    Parameters
    ----------
    max_steps_without_increase : int
        Between the global_step of the highest evaluation and that of a later one. NaN is lower than any number.
    estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps
        As of `stop_if_higher_hook`.
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
    """Return a hook that ends training once a metric has not become lower for so many steps.

    Parameters
    ----------
    max_steps_without_decrease : int
        Between the global_step of the lowest evaluation and that of a later one. NaN is higher than any number.
    estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps
        As of `stop_if_higher_hook`.
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
    """Refuse what no metric can be higher or lower than: what is no number, and NaN."""
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
    """Evaluate the variables of now at the start, every so many steps, and at the end. Training waits meanwhile.

    Reports the metrics as those of an evaluator, ``eval/loss`` or ``eval_<name>/loss``. For a training in one process.

    Parameters
    ----------
    estimator : Estimator
        Which is trained.
    input_fn : callable
        As of `Estimator.evaluate`.
    steps : int or None
        At most so many batches; None: to the end.
    hooks : sequence of SessionRunHook, optional
        Run around each batch of an evaluation.
    name : str, optional
        Tells several evaluations apart.
    every_n_iter : int
        Evaluate after each so many steps.

    Raises
    ------
    UsageError
        If an argument is wrong; when training begins, on a cluster, with `pipeline_depth` 1, or of a model with tables.
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
        """Evaluate the variables that training begins with."""
        if isinstance(session, BatchSession):
            raise UsageError(("an InMemoryEvaluatorHook evaluates within training; leave it out of evaluations",))
        faults = []
        if session.config.num_ps_replicas:
            faults.append("an InMemoryEvaluatorHook evaluates in one process; on a cluster there is an evaluator")
        if not session.can_pull:
            faults.append("an InMemoryEvaluatorHook needs pipeline_depth 0, got 1")
        if session.model.tables:
            names = ", ".join(table.name for table in session.model.tables)
            faults.append(f"an InMemoryEvaluatorHook evaluates models without tables, this one has {names}")
        if faults:
            raise UsageError(tuple(faults))
        schema = session.model.schema
        self._opened = OpenedEvaluation(self._caller.reading(schema), self._spec, schema)
        self._count = 0
        self._evaluate(session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Evaluate, if it is time to."""
        self._count += 1
        if self._timer.should_trigger_for_step(self._count):
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        """Evaluate the variables that training has ended with."""
        self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        self._timer.update_last_triggered_step(self._count)
        step, values = session.run(["global_step", {name: name for name in session.variables}])
        found = self.results[step] = measured(self._opened.measure(ModelValues(values), step))
        prefix = f"eval_{self._spec.name}" if self._spec.name else "eval"
        session.report(step, {f"{prefix}/{name}": value for name, value in found.items()})
