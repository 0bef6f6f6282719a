import json
import os

import numpy as np
import psflow as tf

model_dir = os.path.abspath("runs/coordinated")


def rows():
  x = np.linspace(-1, 1, 100, dtype=np.float32)
  return tf.Dataset({"x": x}, 3 * x).shuffle(100, seed=1).repeat().batch(10)


def model_fn(features, labels, mode):
  w = tf.get_variable("w", initializer=0.0)
  loss = ((labels - w * features["x"]) ** 2).mean()
  train_op = tf.GradientDescent(0.1).minimize(loss, global_step=tf.get_or_create_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def worker_fn(strategy):
  context = tf.get_current_worker_context()
  estimator = tf.estimator.Estimator(model_fn, model_dir)
  hooks = [tf.estimator.StopAtStepHook(last_step=3000)]
  creator = context.session_creator(checkpoint_dir=model_dir)
  with tf.MonitoredTrainingSession(estimator, rows, hooks, session_creator=creator) as sess:
    while not sess.should_stop():
      sess.run("loss")
  w = estimator.get_variable_value("w")
  print("%s %s of %d, w = %.2f" % (context.task_type, context.task_id, context.num_workers, w))


tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
os.environ["TF_CONFIG"] = json.dumps({**tf_config, "model_dir": model_dir})
mode = tf.CoordinatorMode.INDEPENDENT_WORKER
tf.run_distribute_coordinator(worker_fn, tf.ParameterServerStrategy(), mode=mode)
