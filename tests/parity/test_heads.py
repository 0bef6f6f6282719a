"""Heads against TensorFlow 2.15.1: losses, metrics, predictions and signatures on the same logits."""

import json

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.losses import Reduction
from tests.parity.heads import BATCH, CASES, HEADS_FILE, ROWS, data

TENSORFLOW = json.loads(HEADS_FILE.read_text())


def head_of(case):
    given = dict(CASES[case])
    if "loss_reduction" in given:
        given["loss_reduction"] = Reduction[given["loss_reduction"]]
    return getattr(psflow, case.partition(" ")[0])(**given)


def evaluated(case):
    """Return the spec of each batch in EVAL."""
    head, (logits, labels, weights) = head_of(case), data(case)
    for start in range(0, ROWS, BATCH):
        rows = slice(start, start + BATCH)
        yield head.create_estimator_spec({"weight": weights[rows]}, psflow.ModeKeys.EVAL, logits[rows], labels[rows])


@pytest.mark.parametrize("case", CASES)
def test_losses_and_metrics(case):
    specs = list(evaluated(case))
    np.testing.assert_allclose([spec.loss for spec in specs], TENSORFLOW[case]["losses"], rtol=1e-6)
    totals = specs[0].metrics
    for spec in specs[1:]:
        totals = {name: metric.merge(spec.metrics[name]) for name, metric in totals.items()}
    measured = {name: metric.result() for name, metric in totals.items()}
    assert measured == pytest.approx(TENSORFLOW[case]["metrics"], abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_predictions(case):
    logits, _, _ = data(case)
    spec = head_of(case).create_estimator_spec({}, psflow.ModeKeys.PREDICT, logits[:BATCH])
    expected = TENSORFLOW[case]["predictions"]
    assert spec.predictions.keys() == expected.keys()
    for name, values in spec.predictions.items():
        of_tensorflow = np.array(expected[name]["values"])
        assert values.shape == of_tensorflow.shape
        if expected[name]["dtype"] == "float32":
            assert values.dtype == np.float32
            np.testing.assert_allclose(values, of_tensorflow, rtol=1e-6)
        else:
            assert ("str" if values.dtype.kind == "U" else values.dtype.name) == expected[name]["dtype"]
            assert values.tolist() == of_tensorflow.tolist()


@pytest.mark.parametrize("case", CASES)
def test_signatures(case):
    logits, _, _ = data(case)
    outputs = head_of(case).create_estimator_spec({}, psflow.ModeKeys.PREDICT, logits[:BATCH]).export_outputs
    expected = TENSORFLOW[case]["outputs"]
    assert {name: type(output).__name__ for name, output in outputs.items()} == expected | {
        "serving_default": "PredictOutput"
    }
