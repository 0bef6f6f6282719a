import numpy as np
import psflow as tf

STEPS = 800


def rows(seed):
    random = np.random.default_rng(seed)
    feature1, feature2 = random.uniform(-1, 1, (2, 400)).astype(np.float32)
    labels = 2 * feature1 - 3 * feature2 + 0.5
    return tf.Dataset({"feature1": feature1, "feature2": feature2}, labels).batch(20)


def input_train_fn():
    return rows(1).repeat()


def input_test_fn():
    return rows(2)


feature_columns = [
        tf.feature_column.numeric_column(key="feature1"),
        tf.feature_column.numeric_column(key="feature2"),
]
model_dir = "runs/migrated"
model = tf.estimator.LinearRegressor(feature_columns=feature_columns, model_dir=model_dir)

train_spec = tf.estimator.TrainSpec(input_fn=input_train_fn, max_steps=STEPS)
eval_spec = tf.estimator.EvalSpec(input_fn=input_test_fn)

tf.estimator.train_and_evaluate(model, train_spec, eval_spec)
