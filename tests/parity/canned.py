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
}
"""Hyper-parameters of each model; the optimizers are the default ones."""


def batches(model: str) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yield features and labels of each step."""
    random = np.random.default_rng(11)
    effects = random.normal(size=(NUM_WORDS, 3))
    mixing = random.normal(size=(WIDTH, 3))
    for _ in range(NUM_STEPS):
        x = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
        word = random.integers(0, NUM_WORDS, BATCH)
        scores = x @ mixing + effects[word] + 0.3 * random.normal(size=(BATCH, 3))
        is_class = model.endswith("Classifier")
        yield {"x": x, "word": word}, scores.argmax(axis=1) if is_class else scores[:, :1].astype(np.float32)


def initial(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first value of a variable: some for layers and vectors, 0 for weights of linear models and biases."""
    if "linear" in name or name.endswith("bias"):
        return np.zeros(shape, np.float32)
    values = np.random.default_rng(sum(map(ord, "/".join(name.split("/")[-2:])))).normal(size=shape) / np.sqrt(shape[0])
    return np.asarray(values, np.float32)


def losses_of_tensorflow(model: str) -> dict[str, Any]:
    """Return the loss of each step, and the variables with their shapes."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = tf.feature_column.numeric_column("x", (WIDTH,))
    word = tf.feature_column.categorical_column_with_identity("word", NUM_WORDS)
    deep = [x, tf.feature_column.embedding_column(word, EMBEDDING)]
    columns = {
        "Linear": {"feature_columns": [x, word]},
        "DNN": {"feature_columns": deep},
        "DNNLinearCombined": {"linear_feature_columns": [x, word], "dnn_feature_columns": deep},
        "Baseline": {},
    }[model.removesuffix("Classifier").removesuffix("Regressor")]
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
        given = list(batches(model))
        features = {name: np.stack([each[0][name] for each in given]) for name in given[0][0]}
        return tf.data.Dataset.from_tensor_slices((features, np.stack([labels for _, labels in given])))

    kind = getattr(v1.estimator, model)
    kind(
        **CASES[model],
        **columns,
        loss_reduction=v1.losses.Reduction.SUM_OVER_BATCH_SIZE,
        config=v1.estimator.RunConfig(tf_random_seed=1),
    ).train(input_fn, hooks=[Recorder()])
    return found


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.path.insert(0, str(Path(__file__).parents[2]))
    LOSSES_FILE.write_text(json.dumps({model: losses_of_tensorflow(model) for model in CASES}) + "\n")
