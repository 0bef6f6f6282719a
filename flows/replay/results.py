"""What comes of a replay: into the record, into MLflow, into the answer."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from psflow.flows.replay.plan import ReplayPlan
from psflow.ps_runtime.checkpoint.records import EvaluationRecord
from psflow.ps_runtime.errors import EvaluationFailedError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.evaluation.worker import Failure, Outcome
from psflow.tasks.tracking.points import evaluation_event
from psflow.tasks.tracking.tracker import Tracker

__all__ = ["ReplayResults"]

LoggerLike = logging.Logger | logging.LoggerAdapter[logging.Logger]


class ReplayResults:
    """Takes the outcomes of the evaluations of `plan`, one after the other."""

    def __init__(self, plan: ReplayPlan, logger: LoggerLike) -> None:
        self._plan = plan
        self._logger = logger
        self._tracker: Tracker | None = None
        self.evaluated: list[EvaluationRecord] = []
        self.failures: list[Failure] = []

    def record_in(self, tracker: Tracker) -> None:
        """Hand on to MLflow what comes, and first what is known of the same checkpoints: its curves are whole then."""
        self._tracker = tracker
        for evaluation in self._plan.known:
            tracker.handle(evaluation_event(evaluation))

    def take(self, outcome: Outcome) -> int:
        """Record an evaluation, then report it; a failure is only reported. Return how many are done."""
        done = 1 + len(self.evaluated) + len(self.failures)
        of = f"{outcome.global_step}{f' on {outcome.name}' if outcome.name else ''} ({done}/{self._plan.num_wanted})"
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
            self._logger.error("no evaluation of step %s: %s", of, outcome.reason)
            return done
        self._plan.record.write(outcome, is_forced=self._plan.is_forced)
        self.evaluated.append(outcome)
        if self._tracker is not None:
            self._tracker.handle(evaluation_event(outcome))
        shown = ", ".join(f"{name} {value:.4g}" for name, value in outcome.metrics.items() if name != "global_step")
        self._logger.info("evaluation of step %s: %s", of, shown)
        return done

    def facts(self) -> dict[str, Any]:
        """Return what a person or a program wants to know of the replay."""
        plan, tracker = self._plan, self._tracker
        return {
            "run_id": None if tracker is None else tracker.run_id,
            "parent_run_id": None if plan.tracked.run is None else plan.tracked.run.run_id,
            "model_dir": without_secrets(plan.training.model_dir),
            "checkpoints": list(plan.steps),
            "evals": [spec.name or "eval" for spec in plan.job.eval_specs],
            "num_evaluated": len(self.evaluated),
            "num_known": len(plan.known),
            "failed": [
                {"step": f.global_step, "eval": f.name or "eval", "reason": f.reason}
                for f in sorted(self.failures, key=lambda f: (f.global_step, f.name))
            ],
            "record": plan.record.path if plan.record.is_written else None,
            "results": list(self._results()),
            "mlflow": {"complete": True, "lost": 0}
            if tracker is None
            else {"complete": tracker.is_whole, "lost": tracker.num_lost},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as the rows of a table."""
        return [
            {"step": row["step"], "eval": row["eval"], **{k: _shown(v) for k, v in row["metrics"].items()}}
            for row in self._results()
        ]

    def raise_failures(self, facts: Mapping[str, Any]) -> None:
        """Raise EvaluationFailedError, with `facts`, if an evaluation has failed."""
        if self.failures:
            raise EvaluationFailedError(
                tuple(f"step {f['step']} on {f['eval']}: {f['reason']}" for f in facts["failed"]), dict(facts)
            )

    def _results(self) -> Iterator[dict[str, Any]]:
        order = {spec.name or "": index for index, spec in enumerate(self._plan.job.eval_specs)}
        found = sorted([*self._plan.known, *self.evaluated], key=lambda e: (e.global_step, order[e.name]))
        for evaluation in found:
            metrics = {name: value for name, value in evaluation.metrics.items() if name != "global_step"}
            yield {"step": evaluation.global_step, "eval": evaluation.name or "eval", "metrics": metrics}


def _shown(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else str(value)
