"""Metrics against numbers of TensorFlow 2.15.1, which metrics.py beside this file writes."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from psflow import metrics

CASES = json.loads(Path(__file__).with_name("metrics.json").read_text())


def name_of(case):
    options = "-".join(f"{key}={value}" for key, value in case["options"].items())
    weights = np.ndim(case["batches"][0].get("weights"))
    return "-".join(filter(None, [case["metric"], options, f"weights_{weights}d" * bool(weights)]))


def array_of(values):
    """Return the array as TensorFlow had it: floats have 32 bits."""
    array = np.array(values)
    return array.astype(np.float32) if array.dtype == np.float64 else array


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_metric_has_the_numbers_of_tensorflow(case):
    measure = functools.partial(getattr(metrics, case["metric"]), **case["options"])
    parts = (measure(**{name: array_of(value) for name, value in batch.items()}) for batch in case["batches"])
    result = functools.reduce(lambda a, b: a.merge(b), parts).result()
    np.testing.assert_allclose(result, case["result"], rtol=1e-6, atol=1e-6)


def test_every_metric_is_compared_but_those_that_tensorflow_does_not_have():
    functions = {name for name in metrics.__all__ if name[0].islower()}
    assert functions - {case["metric"] for case in CASES} == {"accuracy_baseline"}
