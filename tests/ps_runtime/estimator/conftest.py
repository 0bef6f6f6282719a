"""Estimators in directories of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.ps_runtime.estimator.regression import regression


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Estimator]:
    """Return a maker of Estimators that save every 5 steps, each model_dir under a name."""

    def make_estimator(name: str = "model", model_fn: Any = regression, **config: Any) -> Estimator:
        settings: dict[str, Any] = {"tf_random_seed": 1, "log_step_count_steps": 5}
        if not config.keys() & {"save_checkpoints_steps", "save_checkpoints_secs"}:
            settings["save_checkpoints_steps"] = 5
        return Estimator(model_fn, str(tmp_path / name), RunConfig(**settings | config))

    return make_estimator
