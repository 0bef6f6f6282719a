"""The networks of the experiment on consistency, as Estimators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiments.trials import Trial
from psflow import (
    DNNClassifier,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    ModeKeys,
    RunConfig,
    get_variable,
    initializers,
    metrics,
)
from psflow.ps_runtime.layers import dense, dense_backward, dense_input_gradient
from psflow.ps_runtime.losses import softmax_cross_entropy
from psflow.ps_runtime.specs.wire_format import EXACT, WireFormat

__all__ = ["estimator_of", "sigmoid_network"]

NUM_CLASSES = 10


def estimator_of(trial: Trial, model_dir: str, wire: WireFormat = EXACT) -> Estimator:
    """Return what trains in a trial; it is evaluated each time that `gradients_between` more gradients are in."""
    problem = trial.problem
    config = RunConfig(
        model_dir,
        tf_random_seed=trial.seed,
        save_checkpoints_steps=problem.gradients_between // trial.gradients_per_update,
        keep_checkpoint_max=None,
        consistency=trial.consistency,
        wire=wire,
    )
    if problem.network == "sigmoid":
        params = {"hidden_units": problem.hidden_units, "learning_rate": trial.learning_rate}
        return Estimator(sigmoid_network, config=config, params=params)
    optimizer = GradientDescent(learning_rate=trial.learning_rate)
    return DNNClassifier([problem.hidden_units], n_classes=NUM_CLASSES, optimizer=optimizer, config=config)


def sigmoid_network(
    features: Mapping[str, NDArray[Any]], labels: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any]
) -> EstimatorSpec:
    """Be the model_fn of the example of old: sigmoid in the hidden layer, first values from N(0, 1)."""
    images = features["features"]
    normal = initializers.normal(stddev=1.0)
    widths = (images.shape[1], params["hidden_units"], NUM_CLASSES)
    kernels = [get_variable(f"kernel_{i}", widths[i : i + 2], initializer=normal) for i in range(2)]
    biases = [get_variable(f"bias_{i}", widths[i + 1 : i + 2], initializer=initializers.zeros) for i in range(2)]
    hidden = 0.5 + 0.5 * np.tanh(0.5 * dense(images, kernels[0], biases[0]))
    logits = dense(hidden, kernels[1], biases[1])
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"logits": logits})
    loss, gradient = softmax_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        accuracy = metrics.accuracy(labels, logits.argmax(axis=1))
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    gradients = dict(zip(("kernel_1", "bias_1"), dense_backward(hidden, gradient), strict=True))
    gradient = dense_input_gradient(kernels[1], gradient) * hidden * (1 - hidden)
    gradients |= zip(("kernel_0", "bias_0"), dense_backward(images, gradient), strict=True)
    return EstimatorSpec(
        mode, loss=loss, train_op=GradientDescent(learning_rate=params["learning_rate"]).apply_gradients(gradients)
    )
