"""Feature columns that are compared with TensorFlow 2.15, as plain data. Run, it writes what TensorFlow computes.

Run from the root of the checkout, in an environment with tensorflow-cpu==2.15.1 and numpy:
``PATH/TO/THAT/python tests/parity/columns.py``. Imported it needs neither TensorFlow nor psflow.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS_FILE = Path(__file__).with_name("columns.json")
VOCABULARY = Path(__file__).with_name("columns_words.txt")
NUM_STEPS, BATCH = 200, 16

X = np.float32([-1.5, -0.0, 0.1, 0.7, 2.5])
PAIRS = np.float32([[0, 1], [0.1, -3], [0.7, 0.7], [9, 0.1], [-1, 2]])
WORDS = np.array([["red", "red"], ["green", ""], ["", ""], ["mauve", "blue"], ["grey", "red"]])
CODES = np.array([[3, 7], [-1, 7], [9, 9], [4, -1], [-1, -1]])
AMOUNTS = np.float32([[0.5, 2], [3, 0], [0, 0], [-1, 4], [1, 0.25]])
FEATURES = {"x": X, "pairs": PAIRS, "word": WORDS, "other": WORDS[::-1].copy(), "code": CODES, "amount": AMOUNTS}


def halved(numbers: Any) -> Any:
    """Be a normalizer_fn of both systems."""
    return (numbers - 1) / 2


def words(fc: Any, **options: Any) -> Any:
    return fc.categorical_column_with_vocabulary_list("word", ["red", "green", "blue"], **options)


def weighted(fc: Any, **options: Any) -> Any:
    return fc.weighted_categorical_column(words(fc, num_oov_buckets=1), "amount", **options)


Columns = Callable[[Any, Any, Any], list[Any]]
"""Of ``tf.feature_column``, of the module with dtypes, and of what makes first values."""

CATEGORICAL: dict[str, Callable[[Any, Any], Any]] = {
    "bucketized": lambda fc, t: fc.bucketized_column(fc.numeric_column("x"), [-1.5, 0.1, 0.7]),
    "bucketized pairs": lambda fc, t: fc.bucketized_column(fc.numeric_column("pairs", 2), [0.1, 0.7]),
    "vocabulary list": lambda fc, t: words(fc),
    "vocabulary list, default": lambda fc, t: words(fc, default_value=1),
    "vocabulary list, unknown words": lambda fc, t: words(fc, num_oov_buckets=1),
    "vocabulary of integers": lambda fc, t: fc.categorical_column_with_vocabulary_list("code", [9, 3], default_value=0),
    "vocabulary file": lambda fc, t: fc.categorical_column_with_vocabulary_file("word", str(VOCABULARY)),
    "vocabulary file, size": lambda fc, t: fc.categorical_column_with_vocabulary_file(
        "word", str(VOCABULARY), vocabulary_size=2, num_oov_buckets=1
    ),
    "vocabulary file, default": lambda fc, t: fc.categorical_column_with_vocabulary_file(
        "word", str(VOCABULARY), default_value=2
    ),
    "identity": lambda fc, t: fc.categorical_column_with_identity("code", 10),
    "identity, default": lambda fc, t: fc.categorical_column_with_identity("code", 5, default_value=2),
    "weighted": lambda fc, t: weighted(fc),
}
"""Columns of ids that are the same in both systems."""

HASHED: dict[str, Callable[[Any, Any], Any]] = {
    "hash": lambda fc, t: fc.categorical_column_with_hash_bucket("word", 2**40),
    "hash of integers": lambda fc, t: fc.categorical_column_with_hash_bucket("code", 2**40, t.int64),
    "cross of words": lambda fc, t: fc.crossed_column(["word", "other"], 2**40),
    "cross of columns": lambda fc, t: fc.crossed_column([words(fc), "code"], 2**40),
    "cross of a cross": lambda fc, t: fc.crossed_column(
        [words(fc), fc.crossed_column([fc.categorical_column_with_identity("code", 10), "other"], 9)], 2**40, hash_key=5
    ),
    "cross of buckets": lambda fc, t: fc.crossed_column(
        [CATEGORICAL["bucketized pairs"](fc, t), words(fc, num_oov_buckets=2)], 2**40
    ),
}
"""Columns of ids whose hashes are others."""

DENSE: dict[str, Columns] = {
    "numeric": lambda fc, t, first: [fc.numeric_column("x")],
    "numeric, shape": lambda fc, t, first: [fc.numeric_column("pairs", shape=(2,))],
    "numeric, integers": lambda fc, t, first: [fc.numeric_column("code", shape=2, dtype=t.int64)],
    "numeric, normalizer": lambda fc, t, first: [fc.numeric_column("pairs", 2, normalizer_fn=halved)],
    "buckets": lambda fc, t, first: [CATEGORICAL["bucketized pairs"](fc, t)],
    "indicator": lambda fc, t, first: [fc.indicator_column(words(fc, num_oov_buckets=1))],
    "indicator, unknown words": lambda fc, t, first: [fc.indicator_column(words(fc))],
    "indicator, weighted": lambda fc, t, first: [fc.indicator_column(weighted(fc))],
    "embedding, mean": lambda fc, t, first: [fc.embedding_column(words(fc), 3, initializer=first)],
    "embedding, sum": lambda fc, t, first: [fc.embedding_column(words(fc), 3, "sum", first)],
    "embedding, sqrtn": lambda fc, t, first: [fc.embedding_column(words(fc), 3, "sqrtn", first)],
    "weighted embedding, mean": lambda fc, t, first: [fc.embedding_column(weighted(fc), 3, "mean", first)],
    "weighted embedding, sum": lambda fc, t, first: [fc.embedding_column(weighted(fc), 3, "sum", first)],
    "weighted embedding, sqrtn": lambda fc, t, first: [fc.embedding_column(weighted(fc), 3, "sqrtn", first)],
    "embedding, max_norm": lambda fc, t, first: [fc.embedding_column(words(fc), 3, "mean", first, max_norm=0.8)],
    "shared": lambda fc, t, first: [
        *fc.shared_embeddings(
            [
                words(fc),
                fc.categorical_column_with_vocabulary_list("other", ["red", "green", "grey"]),
            ],
            3,
            initializer=first,
        ),
        fc.numeric_column("x"),
    ],
}

STEPS = np.array([["red", "red", "", ""], ["green", "", "blue", "grey"], ["mauve", "", "", ""], ["", "", "", ""]])
SETS = np.array([[["red", "green"], ["", ""]], [["blue", ""], ["red", "red"]]])
LAPS = np.array([[3, 0, -1, -1], [5, 9, 0, 2], [1, -1, -1, -1], [-1, -1, -1, -1]])
TIMES = np.float32([[1.5, -2, np.nan, np.nan], [0.5, np.nan, 4, 3], [7, np.nan, np.nan, np.nan], [np.nan] * 4])
POINTS = np.float32([[1, 2, 3, 4], [5, 6, np.nan, np.nan], [np.nan] * 4])
SEQUENCES = {"step": STEPS, "set": SETS, "lap": LAPS, "time": TIMES, "point": POINTS}


def steps(fc: Any, key: str = "step", **options: Any) -> Any:
    return fc.sequence_categorical_column_with_vocabulary_list(key, ["red", "green", "blue"], **options)


SEQUENCE: dict[str, Columns] = {
    "numbers": lambda fc, t, first: [fc.sequence_numeric_column("time")],
    "numbers, default": lambda fc, t, first: [fc.sequence_numeric_column("time", default_value=-1.5)],
    "numbers, shape": lambda fc, t, first: [fc.sequence_numeric_column("point", 2)],
    "words": lambda fc, t, first: [fc.indicator_column(steps(fc))],
    "sets of words": lambda fc, t, first: [fc.indicator_column(steps(fc, "set", num_oov_buckets=1))],
    "embedded": lambda fc, t, first: [fc.embedding_column(steps(fc), 3, initializer=first)],
    "embedded sets": lambda fc, t, first: [fc.embedding_column(steps(fc, "set"), 3, "sum", first, max_norm=0.8)],
    "vocabulary file": lambda fc, t, first: [
        fc.embedding_column(
            fc.sequence_categorical_column_with_vocabulary_file("step", str(VOCABULARY), 2, default_value=1), 2
        )
    ],
    "identity": lambda fc, t, first: [
        fc.embedding_column(fc.sequence_categorical_column_with_identity("lap", 6, default_value=4), 2)
    ],
    "side by side": lambda fc, t, first: [
        fc.sequence_numeric_column("time"),
        fc.indicator_column(fc.sequence_categorical_column_with_identity("lap", 10)),
        fc.embedding_column(steps(fc), 2),
    ],
    "shared": lambda fc, t, first: fc.shared_embeddings([steps(fc)], 2),
}
"""Columns of sequences. Those of hashes have other ids."""

COMBINERS = ("sum", "mean", "sqrtn")


def first_values(shape: Any, *_: Any, **__: Any) -> np.ndarray:
    """Return the first values of vectors, such as both systems give the same ones to."""
    return np.sin(np.arange(1, 1 + np.prod(shape))).reshape(shape).astype(np.float32)


MODELS: dict[str, dict[str, Any]] = {
    "LinearClassifier": {"n_classes": 3},
    "DNNClassifier": {"hidden_units": [5, 4], "n_classes": 3},
    "DNNLinearCombinedClassifier": {"dnn_hidden_units": [5], "n_classes": 3},
}


def columns_of(model: str, fc: Any) -> dict[str, list[Any]]:
    """Return the columns of each part of a model: one of each kind."""
    x = fc.numeric_column("x", normalizer_fn=halved)
    buckets = fc.bucketized_column(fc.numeric_column("pair", 2), [-1.0, 0.0, 0.5])
    tags = fc.categorical_column_with_vocabulary_list("tags", ["a", "b", "c"], num_oov_buckets=1)
    towns = [fc.categorical_column_with_identity(key, 6) for key in ("from", "to")]
    file = fc.categorical_column_with_vocabulary_file("word", str(VOCABULARY), default_value=0)
    heavy = fc.weighted_categorical_column(tags, "amounts")
    wide = [x, buckets, tags, file, *towns]
    deep = [
        x,
        buckets,
        fc.indicator_column(file),
        fc.embedding_column(heavy, 3, "sqrtn"),
        fc.embedding_column(tags, 2, max_norm=0.5),
        *fc.shared_embeddings(towns, 2),
    ]
    return {
        "LinearClassifier": {"feature_columns": [*wide, heavy]},
        "DNNClassifier": {"feature_columns": deep},
        "DNNLinearCombinedClassifier": {"linear_feature_columns": wide, "dnn_feature_columns": deep},
    }[model]


def batches() -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yield raw features and labels of each step."""
    random = np.random.default_rng(12)
    effects = {"a": [1.0, 0, 0], "b": [0, 1, 0], "c": [0, 0, 1], "d": [0, 0, -1], "": [0, 0, 0]}
    for _ in range(NUM_STEPS):
        x, pair = random.normal(size=BATCH), random.normal(size=(BATCH, 2))
        tags = random.choice(list(effects), (BATCH, 3))
        amounts = np.where(tags == "", 0, random.uniform(0.5, 2, tags.shape))
        word = random.choice(["red", "green", "blue", "mauve", ""], BATCH)
        places = random.integers(-1, 6, (2, BATCH))
        scores = np.array([effects[tag] for tag in tags.ravel()]).reshape(BATCH, 3, 3).sum(axis=1)
        scores[:, 0] += x + pair[:, 0]
        scores[:, 1] += (word == "red") + (places[0] > 2) - 0.5 * (places[1] > 2)
        features = {"x": x.astype(np.float32), "pair": pair.astype(np.float32), "tags": tags, "word": word}
        features |= {"amounts": amounts.astype(np.float32), "from": places[0], "to": places[1]}
        yield features, scores.argmax(axis=1)


def initial(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first value of a variable: some for layers and vectors, 0 for weights of linear models and biases."""
    if "linear" in name or name.endswith("bias"):
        return np.zeros(shape, np.float32)
    return first_values(shape) / np.float32(np.sqrt(shape[0]))


def in_psflow(name: str) -> str:
    """Return what psflow calls a variable of TensorFlow."""
    name = name.removesuffix("/part_0").replace("input_from_feature_columns/", "")
    if name.endswith("shared_embedding"):
        return f"dnn/input_layer/{name.removeprefix('dnn/')}/embedding_weights"
    return name


class TensorFlow:
    """What TensorFlow computes."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.tf, self.v1, self.fc = tf, tf.compat.v1, tf.feature_column

    def run(self, compute: Callable[[dict[str, Any]], Any]) -> Any:
        """Return what is computed of the features in a graph of its own, its variables set by `first_values`."""
        with self.tf.Graph().as_default(), self.v1.Session() as session:
            wanted = compute({name: self.tf.constant(array) for name, array in FEATURES.items()})
            session.run([self.v1.tables_initializer(), self.v1.global_variables_initializer()])
            for variable in self.v1.trainable_variables():
                if "bias" not in variable.name:
                    variable.load(first_values(tuple(variable.shape.as_list())), session)
            return session.run(wanted)

    def ids(self, make: Callable[[Any, Any], Any]) -> list[list[int]]:
        """Return the ids of each example, those that are there; -1 is one."""
        from tensorflow.python.feature_column.feature_column_v2 import FeatureTransformationCache

        def compute(features: dict[str, Any]) -> Any:
            pair = make(self.fc, self.tf).get_sparse_tensors(FeatureTransformationCache(features), None)
            return pair.id_tensor

        sparse = self.run(compute)
        found: list[list[int]] = [[] for _ in X]
        for (row, _), value in zip(sparse.indices.tolist(), sparse.values.tolist(), strict=True):
            found[row].append(value)
        return found

    def dense(self, make: Columns) -> list[list[float]]:
        first = self.v1.constant_initializer(0.0)
        layer = self.v1.keras.layers.DenseFeatures
        return self.run(lambda features: layer(make(self.fc, self.tf, first))(features)).tolist()

    def sequence(self, make: Columns) -> dict[str, Any]:
        """Return the inputs and the lengths of sequences."""
        tf, first = self.tf, self.v1.constant_initializer(0.0)
        numbers = {name: array for name, array in SEQUENCES.items() if array.dtype.kind == "f"}

        def compute(features: dict[str, Any]) -> Any:
            given = {name: tf.constant(array) for name, array in SEQUENCES.items() if name not in numbers}
            for name, array in numbers.items():
                places = np.argwhere(~np.isnan(array))
                given[name] = tf.SparseTensor(places, array[~np.isnan(array)], array.shape)
            return tf.keras.experimental.SequenceFeatures(make(self.fc, tf, first))(given)

        inputs, lengths = self.run(compute)
        return {"inputs": inputs.tolist(), "lengths": lengths.tolist()}

    def linear(self, make: Callable[[Any, Any], Any], combiner: str) -> list[list[float]]:
        linear_model = self.v1.feature_column.linear_model
        return self.run(
            lambda features: linear_model(features, [make(self.fc, self.tf)], units=2, sparse_combiner=combiner)
        ).tolist()

    def default(self) -> list[list[float]]:
        """Return a numeric column of examples, in one of which its feature is missing."""
        tf = self.tf
        column = self.fc.numeric_column("pairs", 2, default_value=[7.0, 8.0])
        full = tf.train.Example(
            features=tf.train.Features(feature={"pairs": tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2]))})
        )
        lines = [full.SerializeToString(), tf.train.Example().SerializeToString()]
        spec = self.fc.make_parse_example_spec([column])
        return tf.keras.layers.DenseFeatures([column])(tf.io.parse_example(lines, spec)).numpy().tolist()

    def losses(self, model: str) -> dict[str, Any]:
        """Return the loss of each step, and the variables with their shapes."""
        tf, v1 = self.tf, self.v1
        found: dict[str, Any] = {"losses": [], "variables": {}}

        class Recorder(v1.train.SessionRunHook):  # type: ignore[misc,name-defined]
            def after_create_session(self, session: Any, coord: Any) -> None:
                for variable in v1.trainable_variables():
                    name, shape = in_psflow(variable.op.name), tuple(variable.shape.as_list())
                    found["variables"][name] = shape
                    variable.load(initial(name, shape), session)

            def before_run(self, run_context: Any) -> Any:
                return v1.train.SessionRunArgs(v1.get_collection(v1.GraphKeys.LOSSES)[-1])

            def after_run(self, run_context: Any, run_values: Any) -> None:
                found["losses"].append(float(run_values.results))

        def input_fn() -> Any:
            given = list(batches())
            features = {name: np.stack([each[0][name] for each in given]) for name in given[0][0]}
            return tf.data.Dataset.from_tensor_slices((features, np.stack([labels for _, labels in given])))

        with tf.Graph().as_default():
            estimator = getattr(v1.estimator, model)(
                **MODELS[model],
                **columns_of(model, self.fc),
                loss_reduction=v1.losses.Reduction.SUM_OVER_BATCH_SIZE,
                config=v1.estimator.RunConfig(tf_random_seed=1),
            )
        estimator.train(input_fn, hooks=[Recorder()])
        return found


def main() -> None:
    given = TensorFlow()
    numbers = {
        "ids": {name: given.ids(make) for name, make in {**CATEGORICAL, **HASHED}.items()},
        "dense": {name: given.dense(make) for name, make in DENSE.items()},
        "linear": {
            name: {combiner: given.linear(make, combiner) for combiner in COMBINERS}
            for name, make in CATEGORICAL.items()
        },
        "default": given.default(),
        "sequence": {name: given.sequence(make) for name, make in SEQUENCE.items()},
        "losses": {model: given.losses(model) for model in MODELS},
    }
    NUMBERS_FILE.write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main()
