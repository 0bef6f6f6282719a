"""TensorFlow Estimator 2.15 on the log of clicks: DNNLinearCombinedClassifier, as an ordinary program.

Another interpreter runs it as a module; it imports nothing of psflow. TF_CONFIG names the role; without it the job runs
in this process. It prints the same lines as `benchmarks.peers.tf_estimator`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import tensorflow as tf

from benchmarks.peers.tf_estimator import ProgressHook, say

COLUMNS = ("user", "ad", "site", "price", "age", "clicked")
MEANS, DEVIATIONS = {"price": 50.0, "age": 47.5}, {"price": 28.9, "age": 17.3}


def main() -> None:
    """Be one role until the job ends, or this process is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the CSV file")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--crossed-ids", type=int, required=True)
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--max-steps", type=int, required=True)
    parser.add_argument("--report-steps", type=int, default=10)
    options = parser.parse_args()
    config = tf.estimator.RunConfig(
        model_dir=options.model_dir,
        tf_random_seed=1,
        save_checkpoints_secs=600,
        experimental_max_worker_delay_secs=0,  # workers would start 5, 10, .. s late
    )
    say(started=time.monotonic())
    hooks = [ProgressHook(options.report_steps, counts=config.is_chief)]
    replicas, index = max(1, config.num_worker_replicas), config.global_id_in_cluster or 0

    def train() -> Any:
        return read(options, replicas, index).repeat().prefetch(2)

    tf.estimator.train_and_evaluate(
        classifier(options, config),
        tf.estimator.TrainSpec(train, max_steps=options.max_steps, hooks=hooks),
        tf.estimator.EvalSpec(lambda: read(options, 1, 0), steps=1),
    )
    say(ended=time.monotonic())


def read(options: argparse.Namespace, replicas: int, index: int) -> Any:
    """Return batches of the lines that belong to one of the replicas, parsed a batch at a time."""
    lines = tf.data.TextLineDataset(options.data).skip(1).shard(replicas, index)
    return lines.batch(options.batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def parse(lines: Any) -> Any:
    """Return features and labels of a batch of lines; missing numbers become the mean."""
    defaults = [[""], [""], [""], [MEANS["price"]], [MEANS["age"]], [0]]
    features = dict(zip(COLUMNS, tf.io.decode_csv(lines, defaults), strict=True))
    return features, features.pop("clicked")


def classifier(options: argparse.Namespace, config: Any) -> Any:
    """Return the model; sizes, optimizers and layers are those of the configuration of `benchmarks.click_log`."""
    column = tf.feature_column
    user = column.categorical_column_with_hash_bucket("user", 1_000_000)
    ad = column.categorical_column_with_hash_bucket("ad", 100_000)
    site = column.categorical_column_with_hash_bucket("site", 101)
    numbers = [
        column.numeric_column(name, normalizer_fn=lambda x, name=name: (x - MEANS[name]) / DEVIATIONS[name])
        for name in ("price", "age")
    ]
    embedded = [column.embedding_column(one, size) for one, size in ((user, 8), (ad, 8), (site, 4))]
    return tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[column.crossed_column(["user", "ad"], options.crossed_ids), user, ad, site],
        dnn_feature_columns=[*embedded, *numbers],
        dnn_hidden_units=[64, 32],
        config=config,
    )


if __name__ == "__main__":
    main()
