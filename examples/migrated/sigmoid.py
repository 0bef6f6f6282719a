import argparse
import time

import autograd.numpy as np
import psflow as tf

from input_data import read_data_sets

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", default="localhost:2222")
parser.add_argument("--worker_hosts", default="localhost:2223")
parser.add_argument("--job_name", default="", help="Either 'ps' or 'worker'")
parser.add_argument("--task_index", type=int, default=0, help="Index of task within the job")
parser.add_argument("--sync", action="store_true", help="Average the gradients of all workers")
parser.add_argument("--learning_rate", type=float, default=0.001)
parser.add_argument("--training_epochs", type=int, default=20)
FLAGS = parser.parse_args()

# cluster specification
parameter_servers = FLAGS.ps_hosts.split(",")
workers = FLAGS.worker_hosts.split(",")
cluster = tf.ClusterSpec({"ps": parameter_servers, "worker": workers})

# this process of it
server = tf.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

batch_size = 100
learning_rate = FLAGS.learning_rate
training_epochs = FLAGS.training_epochs
logs_path = "runs/mnist"

mnist = read_data_sets()
batch_count = int(mnist.train.num_examples/batch_size)


def input_fn():
  for _ in range(training_epochs * batch_count):
    yield mnist.train.next_batch(batch_size)


def test_input_fn():
  yield mnist.test.images, mnist.test.labels


def model_fn(features, labels, mode):
  x, y_ = features, labels

  # count the number of updates
  global_step = tf.get_or_create_global_step()

  # model parameters
  W1 = tf.get_variable("W1", [784, 100], initializer=tf.initializers.normal(stddev=1.0))
  W2 = tf.get_variable("W2", [100, 10], initializer=tf.initializers.normal(stddev=1.0))
  b1 = tf.get_variable("b1", [100], initializer=tf.initializers.zeros)
  b2 = tf.get_variable("b2", [10], initializer=tf.initializers.zeros)

  # y is our prediction
  z2 = np.add(np.matmul(x, W1), b1)
  a2 = (1 + np.tanh(z2 / 2)) / 2
  z3 = np.add(np.matmul(a2, W2), b2)
  y = np.exp(z3) / np.sum(np.exp(z3), axis=1, keepdims=True)

  # this is our cost
  cross_entropy = np.mean(-np.sum(y_ * np.log(y), axis=1))

  grad_op = tf.GradientDescent(learning_rate)
  train_op = grad_op.minimize(cross_entropy, global_step=global_step)

  metrics = {"accuracy": tf.metrics.accuracy(np.argmax(y_, 1), np.argmax(y, 1))}
  tf.summary.scalar("cost", cross_entropy)
  tf.summary.scalar("accuracy", np.mean(np.argmax(y, 1) == np.argmax(y_, 1)))
  return tf.estimator.EstimatorSpec(mode, loss=cross_entropy, train_op=train_op, eval_metric_ops=metrics)


if FLAGS.job_name == "ps":
  server.join(logs_path)
elif FLAGS.job_name == "worker":
  rep_op = tf.Sync(replicas_to_aggregate=len(workers)) if FLAGS.sync else tf.Async()
  config = tf.RunConfig(logs_path, tf_random_seed=1, consistency=rep_op, cluster=server.target)
  estimator = tf.estimator.Estimator(model_fn, config=config)

  begin_time = time.time()
  frequency = 100
  cost = float("nan")  # stays NaN in a worker that restarts after the last step
  with tf.MonitoredTrainingSession(estimator, input_fn, each_worker_reads_all=True) as sess:
    # perform training cycles
    start_time = time.time()
    for epoch in range(training_epochs):
      count = 0
      for i in range(batch_count):
        # a restarted worker has less input left
        if sess.should_stop():
          break
        cost, step = sess.run(["loss", "global_step"])

        count += 1
        if count % frequency == 0 or i+1 == batch_count:
          elapsed_time = time.time() - start_time
          start_time = time.time()
          print("Step: %d," % step,
                " Epoch: %2d," % (epoch+1),
                " Batch: %3d of %3d," % (i+1, batch_count),
                " Cost: %.4f," % cost,
                " AvgTime: %3.2fms" % float(elapsed_time*1000/frequency))
          count = 0

  print("Test-Accuracy: %2.2f" % estimator.evaluate(test_input_fn)["accuracy"])
  print("Total Time: %3.2fs" % float(time.time() - begin_time))
  print("Final Cost: %.4f" % cost)
