"""Run a trial on a cluster, and keep the measurements of the evaluator."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from distributed import Client

from benchmarks.experiments.networks import estimator_of
from benchmarks.experiments.trials import Trial
from psflow import EvalSpec, Event, TrainSpec, train_and_evaluate
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.errors import PsflowError

__all__ = ["Curve", "run_trial"]


@dataclass(frozen=True, slots=True)
class Curve:
    """What a trial measured.

    Parameters
    ----------
    trial : mapping
        The facts of the trial.
    gradients : list of int
        How many gradients were in at each evaluation.
    errors, losses : list of float or None
        On the test part; errors in [0, 1]; None where a value is not finite.
    mean_staleness, max_staleness : float, int or None
        Over all pushes of the trial, in updates; None where it failed.
    transport : str or None
        How the chief reached the ps.
    secs : float
        Of the whole trial, its start and its evaluations included.
    fault : str or None
        Why it did not come to its end.
    """

    trial: Mapping[str, Any]
    gradients: list[int]
    errors: list[float | None]
    losses: list[float | None]
    mean_staleness: float | None
    max_staleness: int | None
    transport: str | None
    secs: float
    fault: str | None

    def as_json(self) -> dict[str, Any]:
        """Return plain data; ``Curve(**data)`` makes the curve of it again."""
        return asdict(self)

    def error_after(self, num_gradients: int) -> float | None:
        """Return the test error after so many gradients, None where it was not measured."""
        return dict(zip(self.gradients, self.errors, strict=True)).get(num_gradients)


def run_trial(client: Client, trial: Trial, model_dir: str) -> Curve:
    """Train with one ps and evaluate every checkpoint; a trial that fails gives a curve with its fault."""
    train_fn, test_fn = trial.problem.input_fns(trial.seed)
    started = time.monotonic()
    reports: Mapping[str, Any] = {}
    fault = None
    try:
        reports = train_and_evaluate(
            estimator_of(trial, model_dir),
            TrainSpec(train_fn, max_steps=trial.num_gradients // trial.gradients_per_update),
            EvalSpec(test_fn, steps=None, start_delay_secs=0, throttle_secs=0),
            client=client,
            num_workers=trial.num_replicas - 1,
            on_event=_ignore,
        )
    except PsflowError as error:
        fault = str(error)
    chief = reports.get("chief-0", {"transport": None, "statistics": {"job": {}}})
    evaluations = EvaluationLog(model_dir).read()
    return Curve(
        trial=trial.facts(),
        gradients=[e.global_step * trial.gradients_per_update for e in evaluations],
        errors=[_rounded(1 - e.metrics["accuracy"]) for e in evaluations],
        losses=[_rounded(e.metrics["loss"]) for e in evaluations],
        mean_staleness=chief["statistics"]["job"].get("mean_staleness"),
        max_staleness=chief["statistics"]["job"].get("max_staleness"),
        transport=chief["transport"],
        secs=round(time.monotonic() - started, 2),
        fault=fault,
    )


def _rounded(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _ignore(event: Event) -> None:
    """Ignore an event."""
