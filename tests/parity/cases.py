"""What is compared with TensorFlow 2.15, as plain data: names, arguments, inputs. It imports neither of the two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS_FILE = Path(__file__).with_name("numbers.json")
NUMBERS: dict[str, Any] = json.loads(NUMBERS_FILE.read_text()) if NUMBERS_FILE.exists() else {}
"""What TensorFlow says to the cases below, as `regenerate.py` has written it."""
STEPS = (1, 2, 10, 50, 100, 200)
"""After which updates the variable is compared."""

# TensorFlow holds hyper-parameters in float32, so all of them are numbers that float32 can hold.
OPTIMIZERS: list[tuple[str, dict[str, Any], list[float]]] = [
    ("GradientDescent", {"learning_rate": 1 / 64}, [-2.0, 0.0, 2.0]),
    ("Momentum", {"learning_rate": 1 / 64, "momentum": 7 / 8}, [-2.0, 0.0, 2.0]),
    ("Momentum", {"learning_rate": 1 / 64, "momentum": 1 / 2, "use_nesterov": True}, [-2.0, 0.0, 2.0]),
    ("Adagrad", {"learning_rate": 1 / 8, "initial_accumulator_value": 1 / 8}, [-2.0, 0.0, 2.0]),
    ("Adam", {"learning_rate": 1 / 64, "beta1": 7 / 8, "beta2": 63 / 64, "epsilon": 2**-20}, [-2.0, 0.0, 2.0]),
    ("RMSProp", {"learning_rate": 1 / 64, "decay": 7 / 8, "epsilon": 2**-30}, [-2.0, 0.0, 2.0]),
    ("RMSProp", {"learning_rate": 1 / 64, "decay": 3 / 4, "momentum": 1 / 2, "epsilon": 2**-10}, [-2.0, 0.0, 2.0]),
    (
        "RMSProp",
        {"learning_rate": 1 / 64, "decay": 7 / 8, "momentum": 7 / 8, "epsilon": 2**-30, "centered": True},
        [-2.0, 0.0, 2.0],
    ),
    ("Ftrl", {"learning_rate": 1 / 8, "initial_accumulator_value": 1 / 8}, [0.0, 0.0, 0.0]),
    (
        "Ftrl",
        {
            "learning_rate": 1 / 8,
            "learning_rate_power": -3 / 4,
            "initial_accumulator_value": 1.0,
            "l1_regularization_strength": 1 / 16,
            "l2_regularization_strength": 1 / 8,
        },
        [-2.0, 0.0, 2.0],
    ),
    (
        "Ftrl",
        {
            "learning_rate": 1 / 8,
            "learning_rate_power": 0.0,
            "initial_accumulator_value": 0.0,
            "l1_regularization_strength": 1 / 2,
        },
        [0.0, 0.0, 0.0],
    ),
    (
        "Ftrl",
        {
            "learning_rate": 1 / 8,
            "l2_regularization_strength": 1 / 8,
            "l2_shrinkage_regularization_strength": 1 / 16,
            "beta": 1 / 4,
        },
        [-2.0, 0.0, 2.0],
    ),
]

SCHEDULE_STEPS = (0, 1, 9, 10, 11, 19, 20, 21, 25, 30, 99, 100, 1000)
SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("ExponentialDecay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    ("ExponentialDecay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.96, "staircase": True}),
    ("PolynomialDecay", {"learning_rate": 0.1, "decay_steps": 20}),
    ("PolynomialDecay", {"learning_rate": 1.0, "decay_steps": 20, "end_learning_rate": 0.1, "power": 2.0}),
    ("PolynomialDecay", {"learning_rate": 1.0, "decay_steps": 10, "end_learning_rate": 0.0, "cycle": True}),
    ("PiecewiseConstant", {"boundaries": [10, 20], "values": [1.0, 0.5, 0.1]}),
    ("CosineDecay", {"learning_rate": 0.1, "decay_steps": 20}),
    ("CosineDecay", {"learning_rate": 2.0, "decay_steps": 100, "alpha": 0.25}),
    ("CosineDecayRestarts", {"learning_rate": 0.1, "first_decay_steps": 8}),
    ("CosineDecayRestarts", {"learning_rate": 1.0, "first_decay_steps": 8, "t_mul": 1.0, "m_mul": 0.5, "alpha": 0.1}),
    ("InverseTimeDecay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    ("InverseTimeDecay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": True}),
    ("NaturalExpDecay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    ("NaturalExpDecay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": True}),
]

METRICS = ("accuracy", "mean_squared_error", "mean_absolute_error", "precision", "recall", "auc ROC", "auc PR", "mean")


def gradient(t: int) -> np.ndarray:
    """Of three parameters at the `t`-th update: moderate, small, and large with every third one missing."""
    return np.array([np.sin(t), 0.01 * np.cos(3.0 * t), 100.0 * np.sin(0.5 * t * t) * (t % 3 != 0)])


def metric_batches(metric: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return labels, predictions and weights of three batches of 50: numbers, classes, or probabilities of an event."""
    random = np.random.default_rng(7)
    batches = []
    for _ in range(3):
        labels = (random.random(50) < 0.3).astype(np.float32)
        scores = np.clip(0.5 * labels + random.random(50) * 0.7 - 0.1, 0, 1).astype(np.float32)
        weights = random.integers(0, 4, 50).astype(np.float32)
        if metric in ("mean", "mean_squared_error", "mean_absolute_error"):
            labels = (10 * random.normal(size=50)).astype(np.float32)
        predictions = (scores > 0.5).astype(np.float32) if metric in ("accuracy", "precision", "recall") else scores
        batches.append((labels, predictions, weights))
    return batches
