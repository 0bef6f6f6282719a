"""Estimators in directories of their own, and a checkpoint to warm-start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import Estimator
from tests.conformance import hooked
from tests.conformance.programs import estimator_in, line
from tests.conformance.warm_checkpoints import BIAS, ROWS, write


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Estimator]:
    """Return a maker of Estimators of the small program."""

    def make_estimator(model_fn: Any = line, **settings: Any) -> Estimator:
        return estimator_in(tmp_path / "model", model_fn, **settings)

    return make_estimator


@pytest.fixture
def estimator(tmp_path: Path) -> Estimator:
    """Return a new Estimator of the program with hooks."""
    return Estimator(hooked.model_fn, str(tmp_path / "model"), hooked.CONFIG)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Estimator:
    """Return one to be evaluated and predicted with: its w is 1 - 3 * 0.5."""
    directory = str(tmp_path_factory.mktemp("trained"))
    return Estimator(hooked.model_fn, directory, hooked.CONFIG).train(hooked.examples, max_steps=3)


@pytest.fixture
def parent(tmp_path: Path) -> str:
    """Return the model_dir of a checkpoint to warm-start from."""
    return write(tmp_path / "parent", {"rows": ROWS, "bias": BIAS, "scope/frozen": np.float32(3)})
