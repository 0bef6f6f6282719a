"""Writes metrics.json: what the metrics of TensorFlow make of small inputs, which it holds as well.

Run it in an environment with tensorflow-cpu==2.15.1: ``python tests/parity/metrics.py``. Names of arguments are ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SIZES = (7, 1, 12)
RNG = np.random.default_rng(20)
Batch = dict[str, Any]


def float32(values: Any) -> Any:
    """Return numbers that float32 can hold, for TensorFlow computes with these."""
    return np.asarray(values, np.float32).astype(float)


def batches(**makers: Any) -> list[Batch]:
    return [{name: make(size) for name, make in makers.items()} for size in SIZES]


def bits(*shape: int) -> Any:
    return lambda size: RNG.integers(0, 2, (size, *shape))


def ids(*shape: int, of: int = 5) -> Any:
    return lambda size: RNG.integers(0, of, (size, *shape))


def normal(*shape: int) -> Any:
    return lambda size: float32(RNG.normal(0, 2, (size, *shape)))


def probabilities(*shape: int) -> Any:
    """Some of them 0, 1 or just on a threshold."""

    def make(size: int) -> Any:
        values = RNG.random((size, *shape))
        values = np.where(
            RNG.random(values.shape) < 0.4, RNG.choice([0.0, 1.0, 0.1, 0.25, 100 / 199], values.shape), values
        )
        return float32(values)

    return make


def inside(size: int) -> Any:
    """Return probabilities that are neither 0 nor 1, of which TensorFlow rounds the logarithms in float32."""
    return float32(RNG.uniform(0.02, 0.98, size))


def distributions(classes: int) -> Any:
    def make(size: int) -> Any:
        values = RNG.random((size, classes)) + 0.05
        return float32(values / values.sum(axis=1, keepdims=True))

    return make


def one_hot(classes: int) -> Any:
    return lambda size: np.eye(classes, dtype=int)[RNG.integers(0, classes, size)]


def distinct(count: int, of: int) -> Any:
    return lambda size: np.stack([RNG.permutation(of)[:count] for _ in range(size)])


def weights(*shape: int) -> Any:
    return lambda size: RNG.integers(0, 5, (size, *shape)) / 2


def unit_vectors(length: int) -> Any:
    def make(size: int) -> Any:
        values = RNG.normal(size=(size, length))
        return float32(values / np.linalg.norm(values, axis=1, keepdims=True))

    return make


BINARY = {"labels": bits(), "predictions": bits()}
SCORES = {"labels": bits(), "predictions": probabilities()}
INSIDE = {"labels": bits(), "predictions": inside}
NUMBERS = {"labels": normal(), "predictions": normal()}
COLUMNS = {"labels": normal(3), "predictions": normal(3)}
CLASSES = {"labels": ids(), "predictions": ids()}
LOGITS = {"labels": ids(of=4), "predictions": normal(4)}
TAGS = {"labels": bits(4), "predictions": probabilities(4)}
RANKED = {"labels": distinct(2, 6), "predictions": normal(6)}
CHOSEN = {"labels": distinct(2, 6), "predictions_idx": distinct(3, 6)}
PAIRS = {"labels": distributions(4), "predictions": distributions(4)}
ONE_HOT = {"labels": one_hot(4), "predictions": distributions(4)}
ONE_HOT_SCORES = {"labels": one_hot(4), "predictions": normal(4)}
THRESHOLDS = {"thresholds": [0.5, 0.1, 0.25, 0.9]}

V1: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("accuracy", CLASSES, {}),
    ("auc", SCORES, {}),
    ("auc", SCORES, {"curve": "PR"}),
    ("auc", SCORES, {"curve": "PR", "summation_method": "careful_interpolation"}),
    ("auc", SCORES, {"curve": "ROC", "summation_method": "careful_interpolation"}),
    ("auc", SCORES, {"curve": "PR", "summation_method": "minoring"}),
    ("auc", SCORES, {"curve": "ROC", "summation_method": "majoring"}),
    ("auc", SCORES, {"num_thresholds": 11}),
    ("auc", SCORES, {"thresholds": [0.7, 0.3]}),
    ("average_precision_at_k", RANKED, {"k": 3}),
    ("false_negatives", BINARY, {}),
    ("false_negatives_at_thresholds", SCORES, THRESHOLDS),
    ("false_positives", BINARY, {}),
    ("false_positives_at_thresholds", SCORES, THRESHOLDS),
    ("mean", {"values": normal()}, {}),
    ("mean", {"values": normal(3)}, {}),
    ("mean_absolute_error", NUMBERS, {}),
    ("mean_absolute_error", COLUMNS, {}),
    ("mean_cosine_distance", {"labels": unit_vectors(3), "predictions": unit_vectors(3)}, {"dim": 1}),
    ("mean_iou", CLASSES, {"num_classes": 6}),
    ("mean_per_class_accuracy", CLASSES, {"num_classes": 6}),
    ("mean_relative_error", {**NUMBERS, "normalizer": lambda size: RNG.integers(0, 3, size).astype(float)}, {}),
    ("mean_squared_error", NUMBERS, {}),
    ("mean_tensor", {"values": lambda _: float32(RNG.normal(size=(2, 3)))}, {}),
    ("percentage_below", {"values": normal()}, {"threshold": 0.5}),
    ("precision", BINARY, {}),
    ("precision_at_k", RANKED, {"k": 3}),
    ("precision_at_k", RANKED, {"k": 3, "class_id": 2}),
    ("precision_at_k", {"labels": ids(of=6), "predictions": normal(6)}, {"k": 1}),
    ("precision_at_thresholds", SCORES, THRESHOLDS),
    ("precision_at_top_k", CHOSEN, {"k": 3}),
    ("recall", BINARY, {}),
    ("recall_at_k", RANKED, {"k": 2}),
    ("recall_at_k", RANKED, {"k": 2, "class_id": 4}),
    ("recall_at_thresholds", SCORES, THRESHOLDS),
    ("recall_at_top_k", CHOSEN, {"k": 3, "class_id": 1}),
    ("root_mean_squared_error", NUMBERS, {}),
    ("sensitivity_at_specificity", SCORES, {"specificity": 0.6}),
    ("sparse_average_precision_at_k", RANKED, {"k": 4}),
    ("sparse_precision_at_k", RANKED, {"k": 4}),
    ("specificity_at_sensitivity", SCORES, {"sensitivity": 0.6}),
    ("specificity_at_sensitivity", SCORES, {"sensitivity": 0.0}),
    ("true_negatives", BINARY, {}),
    ("true_negatives_at_thresholds", SCORES, THRESHOLDS),
    ("true_positives", BINARY, {}),
    ("true_positives_at_thresholds", SCORES, THRESHOLDS),
]
KERAS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("binary_accuracy", "BinaryAccuracy", SCORES, {"threshold": 0.25}),
    ("binary_crossentropy", "BinaryCrossentropy", INSIDE, {}),
    ("binary_crossentropy", "BinaryCrossentropy", {"labels": bits(), "predictions": normal()}, {"from_logits": True}),
    ("binary_crossentropy", "BinaryCrossentropy", INSIDE, {"label_smoothing": 0.25}),
    ("binary_iou", "BinaryIoU", SCORES, {"target_class_ids": [1], "threshold": 0.25}),
    ("categorical_accuracy", "CategoricalAccuracy", ONE_HOT, {}),
    ("categorical_crossentropy", "CategoricalCrossentropy", ONE_HOT, {"label_smoothing": 0.25}),
    ("categorical_crossentropy", "CategoricalCrossentropy", ONE_HOT_SCORES, {"from_logits": True}),
    ("categorical_hinge", "CategoricalHinge", ONE_HOT_SCORES, {}),
    ("cosine_similarity", "CosineSimilarity", COLUMNS, {}),
    ("f1_score", "F1Score", TAGS, {}),
    ("f1_score", "F1Score", TAGS, {"average": "weighted"}),
    ("fbeta_score", "FBetaScore", TAGS, {"beta": 2.0, "threshold": 0.5}),
    ("fbeta_score", "FBetaScore", ONE_HOT, {"beta": 0.5, "average": "micro"}),
    ("fbeta_score", "FBetaScore", ONE_HOT, {"beta": 0.5, "average": "macro"}),
    ("hinge", "Hinge", {"labels": bits(), "predictions": normal()}, {}),
    ("iou", "IoU", CLASSES, {"num_classes": 6, "target_class_ids": [0, 3]}),
    ("kl_divergence", "KLDivergence", PAIRS, {}),
    ("log_cosh_error", "LogCoshError", NUMBERS, {}),
    ("mean_absolute_percentage_error", "MeanAbsolutePercentageError", NUMBERS, {}),
    ("mean_squared_logarithmic_error", "MeanSquaredLogarithmicError", NUMBERS, {}),
    ("one_hot_iou", "OneHotIoU", ONE_HOT, {"num_classes": 4, "target_class_ids": [1, 2]}),
    ("one_hot_mean_iou", "OneHotMeanIoU", ONE_HOT, {"num_classes": 4}),
    ("poisson", "Poisson", {"labels": ids(), "predictions": probabilities()}, {}),
    ("precision_at_recall", "PrecisionAtRecall", SCORES, {"recall": 0.6}),
    ("r2_score", "R2Score", COLUMNS, {}),
    ("r2_score", "R2Score", COLUMNS, {"class_aggregation": "variance_weighted_average"}),
    ("r2_score", "R2Score", COLUMNS, {"class_aggregation": None}),
    ("recall_at_precision", "RecallAtPrecision", SCORES, {"precision": 0.6}),
    ("sparse_categorical_accuracy", "SparseCategoricalAccuracy", LOGITS, {}),
    ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", {**PAIRS, "labels": ids(of=4)}, {}),
    ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", LOGITS, {"from_logits": True}),
    ("sparse_top_k_categorical_accuracy", "SparseTopKCategoricalAccuracy", LOGITS, {"k": 2}),
    ("squared_hinge", "SquaredHinge", {"labels": bits(), "predictions": normal()}, {}),
    ("sum", "Sum", {"values": normal(3)}, {}),
    ("top_k_categorical_accuracy", "TopKCategoricalAccuracy", ONE_HOT, {"k": 2}),
]


def v1_result(name: str, data: list[Batch], options: dict[str, Any]) -> Any:
    """Return what a function of tf.compat.v1.metrics makes of batches: the value after the last update."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fixed = {"mean_tensor": (2, 3)}.get(name)
        holders = {}
        for argument, value in data[0].items():
            kind = tf.int64 if value.dtype.kind in "iu" else tf.float32
            holders[argument] = tf.compat.v1.placeholder(kind, fixed or (None, *value.shape[1:]))
        value, update = getattr(tf.compat.v1.metrics, name)(**holders, **options)
        session.run(tf.compat.v1.local_variables_initializer())
        for batch in data:
            session.run(update, {holders[argument]: given for argument, given in batch.items()})
        return session.run(value)


def keras_result(name: str, data: list[Batch], options: dict[str, Any]) -> Any:
    """Return what a class of tf.metrics makes of batches."""
    metric = getattr(tf.metrics, name)(**options)
    for batch in data:
        given = dict(batch)
        sample_weight = given.pop("weights", None)
        arrays = [value.astype(np.float32) for value in given.values()]
        if all(array.ndim == 1 for array in arrays):
            arrays = [array[:, np.newaxis] for array in arrays]  # it takes the mean over the last axis before weights
        weight = None if sample_weight is None else sample_weight.astype(np.float32)
        metric.update_state(*arrays, sample_weight=weight)
    return metric.result().numpy()


def weighted(name: str, data: dict[str, Any]) -> list[Any]:
    """Return makers of no weights, of weights of rows, and of weights of all values if these are columns."""
    is_matrix = next(iter(data.values()))(2).shape == (2, 3)
    return [None, weights()] + [weights(3)] * (is_matrix and name in ("mean", "mean_absolute_error", "sum"))


def plain(value: Any) -> Any:
    """Return nested lists; of floats with as many digits as float32 needs."""
    array = np.asarray(value)
    return (
        array.tolist()
        if array.dtype.kind in "iu"
        else np.vectorize(lambda x: float(str(np.float32(x))))(array).tolist()
    )


def main() -> None:
    cases = []
    for name, data, options in V1:
        for weight in weighted(name, data):
            given = batches(**data, **({} if weight is None else {"weights": weight}))
            if name == "mean_tensor":
                given = [{**batch, **({"weights": weights(3)(2)} if weight else {})} for batch in given]
            cases.append((name, given, options, v1_result(name, given, options)))
    for name, keras, data, options in KERAS:
        for weight in weighted(name, data):
            given = batches(**data, **({} if weight is None else {"weights": weight}))
            cases.append((name, given, options, keras_result(keras, given, options)))
    lines = [
        json.dumps(
            {
                "metric": name,
                "options": options,
                "batches": [{argument: plain(value) for argument, value in batch.items()} for batch in data],
                "result": np.asarray(result, float).tolist(),
            }
        )
        for name, data, options, result in cases
    ]
    path = Path(__file__).with_suffix(".json")
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    sys.stdout.write(f"{len(cases)} cases of TensorFlow {tf.__version__}: {path}\n")


main()
