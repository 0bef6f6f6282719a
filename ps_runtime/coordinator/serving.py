"""Serves the job of the chief as a task without a function: a ps."""

from __future__ import annotations

from collections.abc import Callable

from psflow.ps_runtime.coordinator.given_task import GivenTask
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.estimator.manual_cluster import serve_manual_role
from psflow.ps_runtime.specs.run_config import absolute


def serve(given: GivenTask, timeout_secs: float, check: Callable[[], None]) -> None:
    """Wait for the chief to start a job, and serve it until it has ended. Blocks."""
    serve_manual_role(given.task, shared_model_dir(given), timeout_secs, check)


def shared_model_dir(given: GivenTask) -> str:
    """Return the model_dir in which the chief is found, absolute as in an Estimator.

    Raises ConfigError if TF_CONFIG has none.
    """
    if given.config.model_dir is None:
        why = "a ps calls no worker_fn, and finds the chief in the model_dir"
        raise ConfigError((f"TF_CONFIG: model_dir is missing: {why}; give it there, to all processes alike",))
    return absolute(given.config.model_dir)
