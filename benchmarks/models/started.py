"""The network of `benchmarks.models.mlp`, with a hook that records the time of the first step."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from benchmarks.models import mlp
from psflow import EstimatorSpec, ModeKeys, SessionRunHook

__all__ = ["FirstStepHook", "model_fn"]


class FirstStepHook(SessionRunHook):
    """Writes the monotonic time of the first step of this replica to a file, unless another one was first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_told = False

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write the time, once."""
        if self._is_told:
            return
        self._is_told = True
        written = Path(f"{self._path}.{os.getpid()}")
        written.write_text(str(time.monotonic()))
        try:
            os.link(written, self._path)  # atomic, and only if the file does not exist
        except FileExistsError:
            pass
        finally:
            written.unlink()


def model_fn(features: NDArray[Any], labels: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any]) -> EstimatorSpec:
    """Return the spec of the network, with the hook in training."""
    spec = mlp.model_fn(features, labels, mode)
    return replace(spec, training_hooks=[FirstStepHook(params["told"])]) if mode == ModeKeys.TRAIN else spec
