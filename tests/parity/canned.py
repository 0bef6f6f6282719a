"""Canned models that are compared with TensorFlow 2.15, as plain data. Run, it writes the losses of TensorFlow.

Run from the root of the checkout, in an environment with tensorflow-cpu==2.15.1 and numpy:
``PATH/TO/THAT/python tests/parity/canned.py``. Imported it needs neither TensorFlow nor psflow.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LOSSES_FILE = Path(__file__).with_name("canned.json")
NUM_STEPS, BATCH = 200, 16
NUM_WORDS, EMBEDDING, WIDTH = 7, 3, 4

CASES: dict[str, dict[str, Any]] = {
    "LinearRegressor": {},
    "LinearClassifier": {"n_classes": 3},
    "DNNRegressor": {"hidden_units": [5, 4]},
    "DNNClassifier": {"hidden_units": [5, 4], "n_classes": 3},
    "DNNLinearCombinedRegressor": {"dnn_hidden_units": [5]},
    "DNNLinearCombinedClassifier": {"dnn_hidden_units": [5], "n_classes": 3},
    "BaselineRegressor": {},
    "BaselineClassifier": {"n_classes": 3},
    "LinearClassifier of two words, weighted": {
        "n_classes": 2,
        "weight_column": "weight",
        "label_vocabulary": ["no", "yes"],
    },
    "DNNClassifier of two, SUM": {"hidden_units": [5], "n_classes": 2, "loss_reduction": "SUM"},
    "DNNLinearCombinedClassifier of two, MEAN, weighted": {
        "dnn_hidden_units": [5],
        "n_classes": 2,
        "weight_column": "weight",
        "loss_reduction": "MEAN",
    },
    "BaselineClassifier of two, weighted": {"n_classes": 2, "weight_column": "weight"},
    "LinearClassifier SUM_BY_NONZERO_WEIGHTS, weighted": {
        "n_classes": 3,
        "weight_column": "weight",
        "loss_reduction": "SUM_BY_NONZERO_WEIGHTS",
    },
    "DNNRegressor of two numbers, SUM, weighted": {
        "hidden_units": [5],
        "label_dimension": 2,
        "weight_column": "weight",
        "loss_reduction": "SUM",
    },
    "LinearEstimator of labels": {"head": {"n_classes": 3}},
    "DNNEstimator of labels, SUM, weighted": {
        "hidden_units": [5],
        "head": {"n_classes": 3, "weight_column": "weight", "loss_reduction": "SUM"},
    },
    "DNNLinearCombinedEstimator of labels": {"dnn_hidden_units": [5], "head": {"n_classes": 3}},
    "DNNRegressor with tanh": {"hidden_units": [5, 4], "activation_fn": "tanh"},
    "DNNEstimator of labels with elu": {"hidden_units": [5], "activation_fn": "elu", "head": {"n_classes": 3}},
    "DNNLinearCombinedClassifier with softplus": {
        "dnn_hidden_units": [5],
        "n_classes": 3,
        "dnn_activation_fn": "softplus",
    },
}
"""Hyper-parameters by model and what is special; a head is a MultiLabelHead. The optimizers are the default ones."""


def batches(case: str) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yield features and labels of each step."""
    random = np.random.default_rng(11)
    effects = random.normal(size=(NUM_WORDS, 3))
    mixing = random.normal(size=(WIDTH, 3))
    for _ in range(NUM_STEPS):
        x = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
        word = random.integers(0, NUM_WORDS, BATCH)
        scores = x @ mixing + effects[word] + 0.3 * random.normal(size=(BATCH, 3))
        features = {"x": x, "word": word}
        if "weighted" in case:
            features["weight"] = random.integers(0, 3, BATCH).astype(np.float32)
        yield features, _labels(case, scores)


def _labels(case: str, scores: np.ndarray) -> np.ndarray:
    given = CASES[case]
    if "head" in given:
        return (scores > 0).astype(np.int64)
    if "n_classes" not in given:
        return scores[:, : given.get("label_dimension", 1)].astype(np.float32)
    class_ids = scores[:, : given["n_classes"]].argmax(axis=1)
    return np.array(given["label_vocabulary"])[class_ids] if "label_vocabulary" in given else class_ids


def initial(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first value of a variable: some for layers and vectors, 0 for weights of linear models and biases."""
    if "linear" in name or name.endswith("bias"):
        return np.zeros(shape, np.float32)
    values = np.random.default_rng(sum(map(ord, "/".join(name.split("/")[-2:])))).normal(size=shape) / np.sqrt(shape[0])
    return np.asarray(values, np.float32)


class _TrainedHead:
    """A head of TensorFlow 2 for an Estimator with the optimizers of TensorFlow 1, whose loss hooks find."""

    def __init__(self, head: Any) -> None:
        self.head, self.name, self.logits_dimension = head, head.name, head.logits_dimension

    def create_estimator_spec(
        self, features: Any, mode: Any, logits: Any, labels: Any, optimizer: Any = None, train_op_fn: Any = None
    ) -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1

        def train(loss: Any) -> Any:
            v1.losses.add_loss(loss)
            if train_op_fn is not None:
                return train_op_fn(loss)
            return optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())

        return self.head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train)


def _arguments(case: str) -> dict[str, Any]:
    """Return the hyper-parameters of a case as TensorFlow has them."""
    import tensorflow as tf

    given = dict(CASES[case])
    given |= {key: getattr(tf.nn, given[key]) for key in ("activation_fn", "dnn_activation_fn") if key in given}
    if "head" not in given:
        reduction = given.pop("loss_reduction", "SUM_OVER_BATCH_SIZE")
        return given | {"loss_reduction": getattr(tf.compat.v1.losses.Reduction, reduction)}
    of_head = dict(CASES[case]["head"])
    reduction = getattr(tf.losses.Reduction, of_head.pop("loss_reduction", "SUM_OVER_BATCH_SIZE"))
    return given | {"head": _TrainedHead(tf.estimator.MultiLabelHead(**of_head, loss_reduction=reduction))}


def losses_of_tensorflow(case: str) -> dict[str, Any]:
    """Return the loss of each step, and the variables with their shapes."""
    import tensorflow as tf

    v1 = tf.compat.v1
    model = case.partition(" ")[0]
    x = tf.feature_column.numeric_column("x", (WIDTH,))
    word = tf.feature_column.categorical_column_with_identity("word", NUM_WORDS)
    deep = [x, tf.feature_column.embedding_column(word, EMBEDDING)]
    columns = {
        "Linear": {"feature_columns": [x, word]},
        "DNN": {"feature_columns": deep},
        "DNNLinearCombined": {"linear_feature_columns": [x, word], "dnn_feature_columns": deep},
        "Baseline": {},
    }[model.removesuffix("Classifier").removesuffix("Regressor").removesuffix("Estimator")]
    found: dict[str, Any] = {"losses": [], "variables": {}}

    class Recorder(v1.train.SessionRunHook):  # type: ignore[misc]
        def after_create_session(self, session: Any, coord: Any) -> None:
            for variable in v1.trainable_variables():
                name, shape = variable.op.name.removesuffix("/part_0"), tuple(variable.shape.as_list())
                found["variables"][name] = shape
                variable.load(initial(name, shape), session)

        def before_run(self, run_context: Any) -> Any:
            loss = v1.get_collection(v1.GraphKeys.LOSSES)[-1]
            return v1.train.SessionRunArgs(loss)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            found["losses"].append(float(run_values.results))

    def input_fn() -> Any:
        given = list(batches(case))
        features = {name: np.stack([each[0][name] for each in given]) for name in given[0][0]}
        return tf.data.Dataset.from_tensor_slices((features, np.stack([labels for _, labels in given])))

    kind = getattr(v1.estimator, model)
    config = v1.estimator.RunConfig(tf_random_seed=1)
    kind(**_arguments(case), **columns, config=config).train(input_fn, hooks=[Recorder()])
    return found


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.path.insert(0, str(Path(__file__).parents[2]))
    LOSSES_FILE.write_text(json.dumps({case: losses_of_tensorflow(case) for case in CASES}) + "\n")
