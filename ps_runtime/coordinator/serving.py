"""A task that calls no function, and serves the job of the chief: a ps."""

from __future__ import annotations

from collections.abc import Callable

from psflow.ps_runtime.coordinator.place import Place
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.estimator.manual_cluster import serve_manual_role
from psflow.ps_runtime.specs.run_config import absolute


def serve(place: Place, timeout_secs: float, check: Callable[[], None]) -> None:
    """Wait for the chief to begin a job, and serve it until it has ended. Blocks."""
    serve_manual_role(place.task, meeting_place(place), timeout_secs, check)


def meeting_place(place: Place) -> str:
    """Return the model_dir in which the chief is found, as an Estimator has it: absolute.

    Raises
    ------
    ConfigError
        If nobody has said.
    """
    if place.told.model_dir is None:
        why = "a ps calls no worker_fn, and finds the chief in the model_dir"
        raise ConfigError((f"TF_CONFIG: model_dir is missing: {why}; give it there, to all processes alike",))
    return absolute(place.told.model_dir)
