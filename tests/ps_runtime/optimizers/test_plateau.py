"""A learning rate that falls where evaluations no longer improve, beside that of torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.optimizers import Adam, ChainedSchedules, LinearWarmup, ReduceOnPlateau

FALLING = 3.0 * 0.9 ** np.arange(40)
NOISY = 1.0 + np.random.default_rng(5).random(40)
STEPS = np.repeat([3.0, 2.0, 1.9999, 1.0, math.nan, -0.5, -0.50001, math.inf], 5)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"patience": 0},
    {"patience": 2, "factor": 0.5, "cooldown": 3},
    {"patience": 1, "factor": 0.5, "min_learning_rate": 0.02},
    {"patience": 1, "mode": "max", "threshold": 0.05},
    {"patience": 0, "mode": "max", "threshold": 0.0, "cooldown": 1},
]


@pytest.mark.parametrize("values", [FALLING, -FALLING, NOISY, STEPS], ids=["falling", "rising", "noisy", "steps"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_sequence_of_metrics_gives_the_rates_of_torch(options: dict[str, Any], values: Any) -> None:
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1)], 0.1)
    names = {"min_learning_rate": "min_lr"}
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, **{names.get(name, name): value for name, value in options.items()}
    )
    ours = ReduceOnPlateau(0.1, **options)
    expected = []
    for value in values.tolist():
        theirs.step(value)
        expected.append(optimizer.param_groups[0]["lr"])
    assert [ours.after(values[: n + 1].tolist()) for n in range(len(values))] == expected
    if options and values is STEPS:
        assert len(set(expected)) > 1, "it falls"


def test_the_rate_of_a_step_counts_the_evaluations_up_to_it_in_their_order() -> None:
    rule = Adam(ReduceOnPlateau(0.1, 0.5, patience=0, metric="m", eval_name="test"))
    found = {300: {"m": 1.0}, 100: {"m": 1.0}, 200: {"loss": 9.0}, 400: {"m": 1.0, "loss": 9.0}}

    def evaluations(name: str) -> dict[int, dict[str, float]]:
        assert name == "test"
        return found

    rates = {step: rule.learning_rate_at(step, evaluations) for step in (0, 100, 299, 300, 399, 400)}
    assert rates == {0: 0.1, 100: 0.1, 299: 0.1, 300: 0.05, 399: 0.05, 400: 0.025}
    assert rule.learning_rate_at(400) == 0.1, "without evaluations"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"factor": 1.0}, r"factor is 1\.0, expected a number between 0 and 1"),
        ({"patience": 0.5}, r"patience is 0\.5, expected a number of evaluations >= 0"),
        ({"cooldown": -1}, r"cooldown is -1, expected a number of evaluations >= 0"),
        ({"mode": "lower"}, r"mode is 'lower', expected 'min' or 'max'"),
        ({"metric": ""}, r"metric is '', expected the name of a metric"),
        ({"threshold": math.inf}, r"threshold is inf, expected a number >= 0"),
        ({"eval_name": 3}, r"eval_name is 3, expected the name of an EvalSpec, or None"),
    ],
)
def test_a_wrong_parameter(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=f"ReduceOnPlateau: {fault}"):
        ReduceOnPlateau(0.1, **options)


def test_it_is_no_part_of_another_schedule() -> None:
    plateau, words = ReduceOnPlateau(0.1), "ReduceOnPlateau depends on evaluations, and cannot be part of another"
    with pytest.raises(UsageError, match=f"LinearWarmup: {words}"):
        LinearWarmup(plateau, 5)
    with pytest.raises(UsageError, match=f"ChainedSchedules: {words}"):
        ChainedSchedules([LinearWarmup(0.1, 5), plateau], [5])
