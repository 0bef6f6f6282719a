"""TensorFlow Estimator 2.15 as a peer: one role of a parameter-server job, as an ordinary program.

Another interpreter, with TensorFlow, runs it; it imports nothing of psflow. TF_CONFIG names the role; without it the
job runs in this process, without any ps. Logging and summaries are at the Estimator's defaults. Stdout has a line of
JSON for each report: ``{"step": .., "time": ..}`` on the system's monotonic clock, ``{"started": time}``,
``{"first_step": time}``, ``{"saved_secs": ..}``, ``{"restored_secs": ..}``, ``{"ended": time}``. The reader takes the
rate between two reports within a window after the warm-up, and the CPU seconds of the processes.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as v1


def main() -> None:
    """Be one role until the job ends, or this process is killed."""
    options = parse_options()
    config = tf.estimator.RunConfig(
        model_dir=options.model_dir,
        save_checkpoints_steps=options.save_steps or None,
        save_checkpoints_secs=None if options.save_steps else 600,
        experimental_max_worker_delay_secs=0,  # workers would start 5, 10, .. s late
    )
    say(started=time.monotonic())
    estimator = tf.estimator.Estimator(MODELS[options.model], config=config, params=vars(options))
    hooks = [ProgressHook(options.report_steps, counts=config.is_chief)]
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(lambda: read(options), max_steps=options.max_steps or None, hooks=hooks),
        tf.estimator.EvalSpec(lambda: read(options), steps=1),
    )
    say(ended=time.monotonic())


def parse_options() -> argparse.Namespace:
    """Return the command line's options; `params` is plain data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--data", required=True, help="npz file with features and labels")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--params", type=json.loads, default={})
    parser.add_argument("--report-steps", type=int, default=100)
    parser.add_argument("--save-steps", type=int, default=0)
    parser.add_argument("--max-steps", type=int, default=0)
    parser.add_argument("--sync-replicas", type=int, default=0, help="gradients of an update; 0: asynchronous")
    return parser.parse_args()


def say(**facts: Any) -> None:
    """Print a line for the measuring process."""
    print(json.dumps(facts), flush=True)


def read(options: argparse.Namespace) -> Any:
    """Return batches of the records forever, from memory: sliced once, then reused."""
    with np.load(options.data) as data:
        features, labels = cut(data["features"], options.batch_size), cut(data["labels"], options.batch_size)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat().prefetch(2)


def cut(array: Any, size: int) -> Any:
    """Return an array of batches, for rows whose number is a multiple of `size`."""
    return array.reshape(len(array) // size, size, *array.shape[1:])


class ProgressHook(v1.train.SessionRunHook):  # type: ignore[misc]  # no types where it is checked
    """Tells of the first step of this process, and, if it counts, of every `report_steps` of the global step."""

    def __init__(self, report_steps: int, counts: bool) -> None:
        self._report_steps = report_steps
        self._counts = counts
        self._told: int | None = None

    def begin(self) -> None:
        """Find the global step in the graph."""
        self._global_step = v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        """Fetch the global step, as the Estimator's own step counter does in the same call."""
        return v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Tell, if it is time to."""
        step = int(run_values.results)
        if self._told is None:
            say(first_step=time.monotonic())
        elif not self._counts or step - self._told < self._report_steps:
            return
        self._told = step
        if self._counts:
            say(step=step, time=time.monotonic())


class TimedSaver(v1.train.Saver):  # type: ignore[misc]
    """A Saver that says how long saving and restoring took."""

    def save(self, *args: Any, **kwargs: Any) -> Any:
        """Save, and say how long that took."""
        started = time.monotonic()
        path = super().save(*args, **kwargs)
        say(saved_secs=time.monotonic() - started)
        return path

    def restore(self, *args: Any, **kwargs: Any) -> None:
        """Restore, and say how long that took."""
        started = time.monotonic()
        super().restore(*args, **kwargs)
        say(restored_secs=time.monotonic() - started)


def spec(mode: Any, loss: Any, optimizer: Any, params: dict[str, Any], config: Any, gradients: Any = None) -> Any:
    """Return the EstimatorSpec of a loss, or of gradients, with an optimizer that may be synchronous."""
    hooks = []
    if params["sync_replicas"]:
        number = params["sync_replicas"]
        optimizer = v1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=number, total_num_replicas=number)
        hooks.append(optimizer.make_session_run_hook(config.is_chief))
    step = v1.train.get_global_step()
    pairs = optimizer.compute_gradients(loss) if gradients is None else gradients
    train_op = optimizer.apply_gradients(pairs, global_step=step)
    saver = TimedSaver(sharded=True, max_to_keep=2, defer_build=True, save_relative_paths=True)
    scaffold = v1.train.Scaffold(saver=saver)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks, scaffold=scaffold)


def mlp(features: Any, labels: Any, mode: Any, params: dict[str, Any], config: Any) -> Any:
    """784-100-10, relu, softmax cross entropy, gradient descent."""
    zeros = v1.zeros_initializer()
    kernel = v1.get_variable("hidden/kernel", [784, 100])
    hidden = tf.nn.relu(features @ kernel + v1.get_variable("hidden/bias", [100], initializer=zeros))
    kernel = v1.get_variable("logits/kernel", [100, 10])
    logits = hidden @ kernel + v1.get_variable("logits/bias", [10], initializer=zeros)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"class_ids": tf.argmax(logits, axis=1), "logits": logits})
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    return spec(mode, loss, v1.train.GradientDescentOptimizer(0.01), params, config)


def dense(features: Any, labels: Any, mode: Any, params: dict[str, Any], config: Any) -> Any:
    """One vector, whose gradient is 0.01 of it."""
    w = v1.get_variable("w", [params["params"]["num_parameters"]], initializer=v1.ones_initializer())
    value = tf.identity(w)  # read once a step
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    return spec(mode, value[0], optimizer, params, config, gradients=[(value * 0.01, w)])


def embedding(features: Any, labels: Any, mode: Any, params: dict[str, Any], config: Any) -> Any:
    """Sum of rows of a table, split over the ps, as the logit of an event; Adagrad."""
    num_ps = max(1, config.num_ps_replicas)
    with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(num_ps)):
        table = v1.get_variable("items", [1_000_000, 16], initializer=v1.random_uniform_initializer(-0.05, 0.05))
    bias = v1.get_variable("bias", [], initializer=v1.zeros_initializer())
    rows = tf.nn.embedding_lookup(table, features)
    logits = tf.reduce_sum(tf.reduce_sum(rows, axis=1), axis=1) + bias
    loss = v1.losses.sigmoid_cross_entropy(labels, logits)
    optimizer = v1.train.AdagradOptimizer(0.05, initial_accumulator_value=0.1)
    return spec(mode, loss, optimizer, params, config)


MODELS = {"mlp": mlp, "dense": dense, "embedding": embedding}

if __name__ == "__main__":
    main()
