import argparse
import json
import os

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


parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
parser.add_argument("--job_name", help="ps, worker or evaluator; without it all is done here")
parser.add_argument("--task_index")
FLAGS = parser.parse_args()

if FLAGS.job_name:
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    job_name = FLAGS.job_name
    task_index = int(FLAGS.task_index)

    cluster = {'chief': [worker_hosts[0]],
               'ps': ps_hosts,
               'worker': worker_hosts[1:]}
    if job_name == 'worker' and task_index == 0:
        job_name = 'chief'
    if job_name == 'worker' and task_index > 0:
        task_index = task_index - 1
    os.environ['TF_CONFIG'] = json.dumps({
        'cluster': cluster,
        'task': {'type': job_name, 'index': task_index}
    })

feature_columns = [
        tf.feature_column.numeric_column(key="feature1"),
        tf.feature_column.numeric_column(key="feature2"),
]
model_dir = "runs/linear"
model = tf.estimator.LinearRegressor(feature_columns=feature_columns, model_dir=model_dir)

train_spec = tf.estimator.TrainSpec(input_fn=input_train_fn, max_steps=STEPS)
eval_spec = tf.estimator.EvalSpec(input_fn=input_test_fn)

tf.estimator.train_and_evaluate(model, train_spec, eval_spec)
