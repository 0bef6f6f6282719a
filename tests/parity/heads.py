"""Heads that are compared with TensorFlow 2.15, as plain data. Run, it writes what TensorFlow's say.

Run from the root of the checkout, in an environment with tensorflow-cpu==2.15.1 and numpy:
``PATH/TO/THAT/python tests/parity/heads.py``. Imported it needs neither TensorFlow nor psflow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

HEADS_FILE = Path(__file__).with_name("heads.json")
ROWS, BATCH = 40, 16

CASES: dict[str, dict[str, Any]] = {
    "BinaryClassHead": {},
    "BinaryClassHead of words, SUM": {"label_vocabulary": ["no", "yes"], "loss_reduction": "SUM"},
    "BinaryClassHead weighted": {"weight_column": "weight", "thresholds": [0.25, 0.5, 0.875], "name": "head"},
    "MultiClassHead": {"n_classes": 3},
    "MultiClassHead of words": {"n_classes": 3, "label_vocabulary": ["cat", "dog", "elk"], "name": "pets"},
    "MultiClassHead weighted, SUM": {"n_classes": 3, "weight_column": "weight", "loss_reduction": "SUM"},
    "MultiLabelHead": {"n_classes": 3},
    "MultiLabelHead weighted": {
        "n_classes": 3,
        "weight_column": "weight",
        "thresholds": [0.25, 0.5],
        "classes_for_class_based_metrics": [0, 2],
    },
    "MultiLabelHead of words, SUM": {
        "n_classes": 3,
        "label_vocabulary": ["cat", "dog", "elk"],
        "classes_for_class_based_metrics": ["dog"],
        "loss_reduction": "SUM",
        "name": "head",
    },
    "RegressionHead": {},
    "RegressionHead of two, weighted": {"label_dimension": 2, "weight_column": "weight"},
    "RegressionHead of two, weighted, SUM": {"label_dimension": 2, "weight_column": "weight", "loss_reduction": "SUM"},
}
"""Arguments by head and what is special."""


def data(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits, labels and weights; quarters, so that neither library rounds them."""
    random = np.random.default_rng(21)
    given = CASES[case]
    kind = case.partition(" ")[0]
    width = {"BinaryClassHead": 1, "RegressionHead": given.get("label_dimension", 1)}.get(kind, 3)
    logits = (random.integers(-12, 12, (ROWS, width)) / 4 + 1 / 16).astype(np.float32)
    noisy = logits + random.normal(size=logits.shape)
    weights = random.integers(0, 4, ROWS).astype(np.float32)
    if kind == "RegressionHead":
        return logits, np.round(noisy * 4).astype(np.float32) / 4, weights
    if kind == "MultiLabelHead":
        return logits, (noisy > 0).astype(np.int64), weights
    class_ids = (noisy > 0).astype(np.int64) if width == 1 else noisy.argmax(axis=1)[:, np.newaxis]
    return logits, np.array(given["label_vocabulary"])[class_ids] if "label_vocabulary" in given else class_ids, weights


def heads_of_tensorflow(case: str) -> dict[str, Any]:
    """Return the loss of the first batch, the metrics of all, the predictions, and what an export answers with."""
    import tensorflow as tf

    given = dict(CASES[case])
    if "loss_reduction" in given:
        given["loss_reduction"] = getattr(tf.losses.Reduction, given["loss_reduction"])
    head = getattr(tf.estimator, case.partition(" ")[0])(**given)
    logits, labels, weights = data(case)
    metrics = head.metrics()
    losses = []
    for start in range(0, ROWS, BATCH):
        rows = slice(start, start + BATCH)
        features = {"weight": weights[rows]}
        losses.append(float(head.loss(labels[rows], logits[rows], features)))
        metrics = head.update_metrics(metrics, features, logits[rows], labels[rows])
    predictions = {name: values.numpy() for name, values in head.predictions(tf.constant(logits[:BATCH])).items()}
    with tf.Graph().as_default():
        spec = head.create_estimator_spec({}, "infer", tf.constant(logits[:BATCH]))
    return {
        "losses": losses,
        "metrics": {name: float(metric.result()) for name, metric in metrics.items()},
        "predictions": {name: _as_json(values) for name, values in predictions.items()},
        "outputs": {name: type(output).__name__ for name, output in spec.export_outputs.items()},
    }


def _as_json(values: np.ndarray) -> dict[str, Any]:
    is_text = values.dtype.kind in "OSU"
    plain = [[each.decode() for each in row] for row in values.tolist()] if is_text else values.tolist()
    return {"dtype": "str" if is_text else values.dtype.name, "values": plain}


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    HEADS_FILE.write_text(json.dumps({case: heads_of_tensorflow(case) for case in CASES}) + "\n")
