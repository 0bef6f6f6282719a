"""Metrics against numbers of TensorFlow 2.15, which `tests/parity/regenerate.py` computes."""

from __future__ import annotations

import pytest

from psflow.ps_runtime import metrics
from tests.parity.cases import METRICS, NUMBERS, metric_batches


def test_every_number_is_compared():
    assert tuple(NUMBERS["metrics"]) == METRICS


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_agrees_with_tensorflow_over_three_batches(name, weighted):
    merged = None
    for labels, predictions, weights in metric_batches(name):
        shares = weights if weighted else None
        if name == "mean":
            metric = metrics.mean(predictions, shares)
        elif name.startswith("auc"):
            metric = metrics.auc(labels, predictions, shares, curve=name.split()[1])
        else:
            metric = getattr(metrics, name)(labels, predictions, shares)
        merged = metric if merged is None else merged.merge(metric)
    assert merged.result() == pytest.approx(NUMBERS["metrics"][name][weighted], rel=1e-6)
