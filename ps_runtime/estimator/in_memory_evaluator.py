"""A hook that evaluates while it trains, without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psflow.ps_runtime.checkpoint.records import measured
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.batch_hooks import BatchSession
from psflow.ps_runtime.model.evaluation import OpenedEvaluation
from psflow.ps_runtime.model.hook_timer import SecondOrStepTimer, check_period
from psflow.ps_runtime.model.hooks import Coordinator, SessionRunContext, SessionRunHook, SessionRunValues
from psflow.ps_runtime.model.training import EvalSpec
from psflow.ps_runtime.model.values import ModelValues
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["InMemoryEvaluatorHook"]


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
