from __future__ import print_function

import autograd.numpy as np
import psflow as tf
import time

# hosts and settings of this example
tf.app.flags.DEFINE_string("ps_hosts", "localhost:2222", "Addresses of the parameter servers")
tf.app.flags.DEFINE_string("worker_hosts", "localhost:2223", "Addresses of the workers")
tf.app.flags.DEFINE_bool("sync", False, "Average the gradients of all workers")
tf.app.flags.DEFINE_float("learning_rate", 0.001, "Learning rate")
tf.app.flags.DEFINE_integer("training_epochs", 20, "Epochs of each worker")

# input flags
tf.app.flags.DEFINE_string("job_name", "", "Either 'ps' or 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
FLAGS = tf.app.flags.FLAGS

# cluster specification
parameter_servers = FLAGS.ps_hosts.split(",")
workers = FLAGS.worker_hosts.split(",")
cluster = tf.train.ClusterSpec({"ps":parameter_servers, "worker":workers})

# start a server for a specific task
server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

# config
batch_size = 100
learning_rate = FLAGS.learning_rate
training_epochs = FLAGS.training_epochs
logs_path = "runs/mnist"

# load mnist data set
import input_data
mnist = input_data.read_data_sets('MNIST_data', one_hot=True)

if FLAGS.job_name == "ps":
  server.join()
elif FLAGS.job_name == "worker":

  def model_fn(features, labels, mode):
    # count the number of updates
    global_step = tf.train.get_or_create_global_step()

    # input images
    x = features
    # target 10 output classes
    y_ = labels

    # model parameters will change during training
    W1 = tf.get_variable("W1", [784, 100], initializer=tf.initializers.normal(stddev=1.0))
    W2 = tf.get_variable("W2", [100, 10], initializer=tf.initializers.normal(stddev=1.0))

    # bias
    b1 = tf.get_variable("b1", [100], initializer=tf.initializers.zeros)
    b2 = tf.get_variable("b2", [10], initializer=tf.initializers.zeros)

    # implement model
    # y is our prediction
    z2 = np.add(np.matmul(x,W1),b1)
    a2 = (1 + np.tanh(z2 / 2)) / 2
    z3 = np.add(np.matmul(a2,W2),b2)
    y  = np.exp(z3) / np.sum(np.exp(z3), axis=1, keepdims=True)

    # specify cost function
    # this is our cost
    cross_entropy = np.mean(-np.sum(y_ * np.log(y), axis=1))

    # specify optimizer
    # optimizer is an "operation" which we can execute in a session
    grad_op = tf.train.GradientDescentOptimizer(learning_rate)
    train_op = grad_op.minimize(cross_entropy, global_step=global_step)

    # accuracy
    correct_prediction = np.equal(np.argmax(y,1), np.argmax(y_,1))
    accuracy = np.mean(correct_prediction)

    # create a summary for our cost and accuracy
    tf.summary.scalar("cost", cross_entropy)
    tf.summary.scalar("accuracy", accuracy)
    return tf.estimator.EstimatorSpec(mode, loss=cross_entropy, train_op=train_op)

  # None -> batch size can be any size, 784 -> flattened mnist image
  x = tf.placeholder(np.float32, shape=[None, 784], name="x-input")
  y_ = tf.placeholder(np.float32, shape=[None, 10], name="y-input")
  train_op, cross_entropy, summary_op, global_step = "train_op", "loss", "summaries", "global_step"
  accuracy = "accuracy"

  rep_op = tf.Sync(replicas_to_aggregate=len(workers)) if FLAGS.sync else tf.Async()
  config = tf.estimator.RunConfig(logs_path, tf_random_seed=1, consistency=rep_op, cluster=server.target)
  sv = tf.estimator.Estimator(model_fn, config=config)

  begin_time = time.time()
  frequency = 100
  with tf.train.MonitoredTrainingSession(sv, (x, y_)) as sess:
    # create log writer object (this will log on every machine)
    writer = tf.summary.FileWriter(sess)
    # perform training cycles
    start_time = time.time()
    for epoch in range(training_epochs):

      # number of batches in one epoch
      batch_count = int(mnist.train.num_examples/batch_size)

      count = 0
      for i in range(batch_count):
        batch_x, batch_y = mnist.train.next_batch(batch_size)
        # perform the operations we defined earlier on batch
        _, cost, summary, step = sess.run(
                        [train_op, cross_entropy, summary_op, global_step], 
                        feed_dict={x: batch_x, y_: batch_y})
        writer.add_summary(summary, step)

        count += 1
        if count % frequency == 0 or i+1 == batch_count:
          elapsed_time = time.time() - start_time
          start_time = time.time()
          print("Step: %d," % (step+1), 
                " Epoch: %2d," % (epoch+1), 
                " Batch: %3d of %3d," % (i+1, batch_count), 
                " Cost: %.4f," % cost, 
                " AvgTime: %3.2fms" % float(elapsed_time*1000/frequency))
          count = 0

    print("Test-Accuracy: %2.2f" % sess.run(accuracy, feed_dict={x: mnist.test.images, y_: mnist.test.labels}))
    print("Total Time: %3.2fs" % float(time.time() - begin_time))
    print("Final Cost: %.4f" % cost)
