"""Compute ``numbers.json`` with TensorFlow 2.15, in an environment with tensorflow-cpu==2.15.1 and numpy.

Run from the root of the checkout: ``PATH/TO/THAT/python tests/parity/regenerate.py``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorflow as tf

from tests.parity.cases import (
    METRICS,
    NUMBERS_FILE,
    OPTIMIZERS,
    SCHEDULE_STEPS,
    SCHEDULES,
    STEPS,
    gradient,
    metric_batches,
)

v1 = tf.compat.v1
RULES = {
    "GradientDescent": v1.train.GradientDescentOptimizer,
    "Momentum": v1.train.MomentumOptimizer,
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "RMSProp": v1.train.RMSPropOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
}
DECAYS = {
    "ExponentialDecay": v1.train.exponential_decay,
    "PolynomialDecay": v1.train.polynomial_decay,
    "CosineDecay": v1.train.cosine_decay,
    "CosineDecayRestarts": v1.train.cosine_decay_restarts,
    "InverseTimeDecay": v1.train.inverse_time_decay,
    "NaturalExpDecay": v1.train.natural_exp_decay,
}


def trained(rule: str, arguments: dict[str, Any], start: list[float]) -> dict[str, list[float]]:
    """Return the variable after each of `STEPS` updates, in float64."""
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", initializer=tf.constant(start, tf.float64))
        given = v1.placeholder(tf.float64, [3])
        update = RULES[rule](**arguments).apply_gradients([(given, variable)])
        session.run(v1.global_variables_initializer())
        found = {}
        for t in range(1, max(STEPS) + 1):
            session.run(update, {given: gradient(t)})
            if t in STEPS:
                found[str(t)] = session.run(variable).tolist()
    return found


def rates(schedule: str, arguments: dict[str, Any]) -> list[float]:
    """Return the learning rate at each of `SCHEDULE_STEPS`: in float64 where TensorFlow can."""
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.placeholder(tf.int64, [])
        if schedule == "PiecewiseConstant":
            values = [tf.constant(value, tf.float64) for value in arguments["values"]]
            rate = v1.train.piecewise_constant(step, arguments["boundaries"], values)
        else:
            others = dict(arguments)
            dtype = tf.float32 if schedule.startswith("CosineDecay") or others.get("cycle") else tf.float64
            first = tf.constant(others.pop("learning_rate"), dtype)
            rate = DECAYS[schedule](first, step, **others)
        return [float(session.run(rate, {step: at})) for at in SCHEDULE_STEPS]


def measured(metric: str, *, weighted: bool) -> float:
    """Return a metric over the three batches."""
    with tf.Graph().as_default(), v1.Session() as session:
        given = [v1.placeholder(tf.float32, [50]) for _ in range(3)]
        labels, predictions, weights = given
        shares = weights if weighted else None
        if metric == "mean":
            value, update = v1.metrics.mean(predictions, shares)
        elif metric.startswith("auc"):
            value, update = v1.metrics.auc(labels, predictions, shares, curve=metric.split()[1])
        else:
            value, update = getattr(v1.metrics, metric)(labels, predictions, shares)
        session.run(v1.local_variables_initializer())
        for batch in metric_batches(metric):
            session.run(update, dict(zip(given, batch, strict=True)))
        return float(session.run(value))


def main() -> None:
    """Write the numbers beside this file."""
    numbers = {
        "tensorflow": tf.__version__,
        "optimizers": [trained(*case) for case in OPTIMIZERS],
        "schedules": [rates(*case) for case in SCHEDULES],
        "metrics": {metric: [measured(metric, weighted=False), measured(metric, weighted=True)] for metric in METRICS},
    }
    NUMBERS_FILE.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
