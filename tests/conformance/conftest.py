"""Estimators in directories of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psflow import Estimator
from tests.conformance.programs import estimator_in, line


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Estimator]:
    """Return a maker of Estimators of the small program."""

    def make_estimator(model_fn: Any = line, **settings: Any) -> Estimator:
        return estimator_in(tmp_path / "model", model_fn, **settings)

    return make_estimator
