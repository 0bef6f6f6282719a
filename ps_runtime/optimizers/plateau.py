"""A learning rate that falls where the evaluations of a training no longer improve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import EvaluatedSchedule, Evaluations
from psflow.ps_runtime.optimizers.schedules import check

SMALLEST_CHANGE = 1e-8
"""Of a rate; smaller changes are left out, as in torch."""


@dataclass(frozen=True)
class ReduceOnPlateau(EvaluatedSchedule):
    """Multiply the rate by `factor` after more than `patience` evaluations in a row without an improvement.

    Parameters
    ----------
    learning_rate : float
        First rate, >= 0.
    factor : float
        Multiplies the rate, between 0 and 1.
    patience : int
        Evaluations without an improvement that change nothing, >= 0.
    metric : str
        The metric of an evaluation.
    mode : {"min", "max"}
        Whether lower or higher values are better.
    threshold : float
        Least improvement as a share of the best value so far, >= 0.
    cooldown : int
        Evaluations after a reduction that do not count as ones without an improvement, >= 0.
    min_learning_rate : float
        Lowest rate, >= 0.
    eval_name : str, optional
        The name of the EvalSpec.

    Raises
    ------
    UsageError
        If a parameter is invalid. In training, if no evaluation of that name, with that metric, is made.

    Notes
    -----
    As ``torch.optim.lr_scheduler.ReduceLROnPlateau``, called with each evaluation in the order of global_step. The rate
    is a function of the evaluations up to the global_step of an update, each counted once, so that a resumed job
    continues with it; a fork, whose model_dir has no evaluations yet, starts at the first rate. Replicas look for new
    evaluations about once a second. It cannot be part of another schedule.

    Examples
    --------
    >>> rate = ReduceOnPlateau(0.1, patience=1)
    >>> [round(rate.after(losses), 6) for losses in ([], [3, 2, 1], [3, 3, 3], [3, 3, 3, 3, 3])]
    [0.1, 0.1, 0.01, 0.001]
    """

    learning_rate: Annotated[float, Key("First rate.", ge=0)]
    factor: Annotated[float, Key("Multiplies the rate.", gt=0, lt=1)] = 0.1
    patience: Annotated[int, Key("Evaluations without an improvement that change nothing.", ge=0)] = 10
    metric: Annotated[str, Key("Metric of an evaluation.")] = "loss"
    mode: Annotated[Literal["min", "max"], Key("Whether lower or higher values are better.")] = "min"
    threshold: Annotated[float, Key("Least improvement as a share of the best value so far.", ge=0)] = 1e-4
    cooldown: Annotated[int, Key("Evaluations after a reduction that do not count.", ge=0)] = 0
    min_learning_rate: Annotated[float, Key("Lowest rate.", ge=0)] = 0.0
    eval_name: Annotated[str | None, Key("Name of the evaluation: eval.name, or a key of evals.")] = None

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: 0 <= rate < math.inf,
            factor=lambda factor: 0 < factor < 1,
            patience=_is_count,
            threshold=lambda share: 0 <= share < math.inf,
            cooldown=_is_count,
            min_learning_rate=lambda rate: 0 <= rate < math.inf,
        )
        fits = {
            "metric": (isinstance(self.metric, str) and self.metric, "the name of a metric"),
            "mode": (self.mode in ("min", "max"), "'min' or 'max'"),
            "eval_name": (isinstance(self.eval_name, str | None), "the name of an EvalSpec, or None"),
        }
        faults = [
            f"ReduceOnPlateau: {name} is {getattr(self, name)!r}, expected {expected}"
            for name, (is_fit, expected) in fits.items()
            if not is_fit
        ]
        if faults:
            raise UsageError(tuple(faults))

    def rate(self, global_step: int, evaluations: Evaluations) -> float:
        """Return the learning rate at `global_step`."""
        found = evaluations(self.eval_name or "")
        return self.after(
            found[step][self.metric] for step in sorted(found) if step <= global_step and self.metric in found[step]
        )

    def after(self, values: Iterable[float]) -> float:
        """Return the learning rate after evaluations with these values of the metric."""
        rate, best, num_bad, cooling = float(self.learning_rate), math.nan, 0, 0
        for value in values:
            is_better = self._is_better(value, best)
            best, num_bad = (value, 0) if is_better else (best, num_bad + 1)
            if cooling:
                cooling, num_bad = cooling - 1, 0
            if num_bad > self.patience:
                reduced = max(rate * self.factor, self.min_learning_rate)
                rate = reduced if rate - reduced > SMALLEST_CHANGE else rate
                cooling, num_bad = self.cooldown, 0
        return rate

    def _is_better(self, value: float, best: float) -> bool:
        """Return whether a value is an improvement: NaN never is, and the first number always."""
        if math.isnan(best):
            return value < math.inf if self.mode == "min" else value > -math.inf
        if self.mode == "min":
            return value < best * (1.0 - self.threshold)
        return value > best * (1.0 + self.threshold)


def _is_count(number: float) -> bool:
    return number >= 0 and float(number).is_integer()
